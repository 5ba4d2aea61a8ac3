"""Load on both replicas: administrators, workers of different speeds, and readers from outside."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from access import PAIRS, Step, beginning, grant, leaks, withdraw
from judge import Seen, StoreLog
from pubsub_replica import PubsubReplica, Row
from watch_replica import WatchReplica

from griphub import KeyRange, NewEvent, Publisher, ReceivedEvent, Selection, Version
from griphub.client.connection import HubConnection
from griphub.client.history import read_history

TOPIC = "access"

PACES = {
    KeyRange("document-00", "document-10"): 0.001,
    KeyRange("document-10", "document-20"): 0.002,
    KeyRange("group-00", "group-10"): 0.010,
    KeyRange("group-10", "group-20"): 0.020,
}
"""Ranges of the workers, and seconds that each takes for an event. They differ as in reality, where one worker shares
its disk, and another one has larger rows. All are fast enough for the load."""

ADMINISTRATORS, PAUSE = 2, 0.05  # seconds between two actions of one
READ_PAUSE = 0.005  # seconds between two reads of both replicas
REPORT_PAUSE = 2.0  # seconds between two lines of progress
PATIENCE = 60  # seconds until both replicas have to have everything

ENOUGH_STEPS, ENOUGH_READS = 200, 500  # a run is not shorter, however slow the machine is


@dataclass(frozen=True)
class Leak:
    """A read of the replica of events in which the rule is broken: its time, and the two rows that break it."""

    time: float
    rows: tuple[tuple[str, Row], tuple[str, Row]]


class Load:
    """The store, both replicas, and all that is done with them.

    Args:
        hub: its URL.
        newest: whether readers see the newest values of each watcher, to see that one version of all is needed.
    """

    def __init__(self, hub: str, newest: bool = False) -> None:
        self.pubsub_replica = PubsubReplica(hub, TOPIC)
        self.watch_replica = WatchReplica(hub, TOPIC, list(PACES), newest)
        self.pubsub, self.watch = Seen(), Seen()
        self.steps: dict[int, tuple[float, str]] = {}
        """Time and text of each step, by its version."""
        self.leak: Leak | None = None
        """The last one."""
        self.behind: list[float] = []
        """Seconds by which the watching replica was behind the store, for each read."""
        self.began = time.monotonic()
        self._hub = hub
        self._ending = False

    async def administrate(self, numbers: range) -> None:
        """Give documents to groups, and take them away, as long as the load lasts.

        Args:
            numbers: of the groups.
        """
        async with Publisher(self._hub, TOPIC) as store:
            while not self._ending:
                number = random.choice(numbers)
                for steps in (grant(number), withdraw(number)):
                    for step in steps:
                        await self._take(store, step)
                    await asyncio.sleep(PAUSE)

    async def _take(self, store: Publisher, step: Step) -> None:
        receipt = await store.publish(step.value, key=step.key)
        self.steps[Version.of(receipt.version_cursor).number] = (time.monotonic(), step.text)

    async def read(self) -> None:
        """Read both replicas, again and again."""
        while True:
            await asyncio.sleep(READ_PAUSE)
            self._read_pubsub()
            self._read_watch()

    def _read_pubsub(self) -> None:
        rows = self.pubsub_replica.read()
        state = {key: row.value for key, row in rows.items()}
        found = leaks(state)
        self.pubsub.see(state, bool(found))
        if found:
            first, second = ((key, rows[key]) for key in found[0])
            self.leak = Leak(time.monotonic(), (first, second))

    def _read_watch(self) -> None:
        known = self.watch_replica.read()
        if known is None:
            self.watch.miss()
            return
        version, state = known
        self.watch.see(state, bool(leaks(state)), version)
        missing = takewhile(lambda step: step[0] > version, reversed(self.steps.items()))
        now = time.monotonic()
        self.behind.append(now - min((at for _, (at, _) in missing), default=now))

    async def run(self, seconds: float) -> StoreLog:
        """Do all of that for some time, and until enough has happened.

        Args:
            seconds: duration of the load in seconds.

        Returns:
            The log of the store.
        """
        await self._prepare()
        async with asyncio.TaskGroup() as group:
            workers = [
                group.create_task(replica.work(keys, pace))
                for replica in (self.pubsub_replica, self.watch_replica)
                for keys, pace in PACES.items()
            ]
            await until(lambda: len(self.pubsub_replica.rows) == 2 * PAIRS and self.watch_replica.version is not None)
            self.began = time.monotonic()
            async with asyncio.TaskGroup() as load:
                for first in range(ADMINISTRATORS):
                    load.create_task(self.administrate(range(first, PAIRS, ADMINISTRATORS)))
                reader = load.create_task(self.read())
                while time.monotonic() < self.began + seconds or not self._enough:
                    await asyncio.sleep(REPORT_PAUSE)
                    now = time.monotonic() - self.began
                    print(f"{now:6.0f} s  {len(self.steps):6,} steps  {self.pubsub.reads:7,} reads of each replica")
                self._ending = True
                reader.cancel()
            log = await self._settle()
            for worker in workers:
                worker.cancel()
        return log

    async def _prepare(self) -> None:
        """Make the topic anew, and the first value of each key."""
        async with HubConnection(self._hub) as connection:
            await connection.request("DELETE", ("topics", TOPIC))
            await connection.request("PUT", ("topics", TOPIC), body=b'{"progress": 1}')
        async with Publisher(self._hub, TOPIC) as store:
            await store.publish_many(NewEvent(step.value, step.key) for step in beginning())

    @property
    def _enough(self) -> bool:
        return len(self.steps) >= ENOUGH_STEPS and self.watch.reads - self.watch.unknown >= ENOUGH_READS

    async def _settle(self) -> StoreLog:
        """Wait until both replicas have everything."""
        async with HubConnection(self._hub) as connection:
            history = read_history(connection, TOPIC, Selection(after="0"))
            events = [event async for event in history if isinstance(event, ReceivedEvent)]
        writes = [(Version.of(event.version_cursor).number, event.key or "", event.data) for event in events]
        versions = {version for version, _, _ in writes}
        await until(lambda: versions == self.pubsub_replica.applied.keys())
        await until(lambda: (self.watch_replica.version or 0) >= max(versions))
        self.pubsub.quiet.update({key: row.value for key, row in self.pubsub_replica.read().items()})
        _, state = self.watch_replica.read() or (0, {})
        self.watch.quiet.update(state)
        return StoreLog(writes)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds.

    Args:
        condition: returns whether it does.

    Raises:
        TimeoutError: it does not.
    """
    for _ in range(10 * PATIENCE):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"a replica does not have everything after {PATIENCE} s")
