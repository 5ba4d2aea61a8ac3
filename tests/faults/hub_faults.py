"""Faults of a run with a hub: each process dies, all are replaced, and the store is restored from a backup."""

from __future__ import annotations

import asyncio
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from griphub.store import maintenance
from tests.faults.hub_crowd import Publisher, Topic
from tests.support.hub import PATIENCE, HubSite

__all__ = ["CONFIG", "KINDS", "HubFaults"]

CONFIG: Final = {
    "runner.shutdown_timeout": "1",
    "runner.reload_hold_time": "1",
    "runner.reload_spread": "1",
    "proxy.hold_confirm_timeout": "60",
}
"""Changes of the config of ``hub_site``: old workers let their clients go soon, and a hold waits for a slow handler."""

LOSSES: Final = (0.5, 3.0)
"""Seconds between a backup and its restore, at least and at most: whatever is published meanwhile is lost."""

RELOAD_PATIENCE: Final = 120.0
"""Seconds for a reload on a busy machine."""


class HubFaults:
    """Hurts the service, one fault after the other; the next one begins when it serves again.

    Args:
        site: the service.
        serving: returns when the hub answers.
        topics: all topics, by name.
        publisher: for large requests, which another process reads.
        chance: decides order and instants.
    """

    def __init__(
        self,
        site: HubSite,
        serving: Callable[[], Awaitable[object]],
        topics: Mapping[str, Topic],
        publisher: Publisher,
        chance: random.Random,
    ) -> None:
        self._site = site
        self._serving = serving
        self._topics = topics
        self._publisher = publisher
        self._chance = chance
        self._backups = 0
        self._begun = 0.0
        self.counts: Counter[str] = Counter()
        """Faults so far, by kind."""

    async def run(self, end: float, pause: float) -> None:
        """Hurt the service until a time; all kinds take turns, in another order each time, and each has at least one.

        Args:
            end: monotonic time in seconds.
            pause: seconds between two faults, on average.
        """
        last, first = "", True
        while True:
            kinds = self._chance.sample(list(KINDS), len(KINDS))
            if kinds[0] == last:
                kinds.reverse()
            for kind in kinds:
                await asyncio.sleep(pause * (0.5 + self._chance.random()))
                if time.monotonic() >= end and not first:
                    return
                # A child that is killed while the hub starts ends the hub, which counts as a failed start.
                await self._serving()
                self._begun = time.monotonic()
                await KINDS[kind](self)
                # On a busy machine a start takes its time, and only then positions are compared.
                await self._serving()
                if kind in POSITIONS:
                    self._note()
                self.counts[kind] += 1
                last = kind
            first = False

    def _note(self) -> None:
        """Note the time in which positions may be lost."""
        for topic in self._topics.values():
            topic.recorder.history.faults.append((self._begun, time.monotonic()))

    # --- processes

    async def kill(self, kind: str) -> None:
        """A process dies.

        Args:
            kind: of the process, as in ``HubSite.pid``.
        """
        pids = await asyncio.to_thread(self._site.pids, kind)
        await asyncio.to_thread(self._site.kill, kind, self._chance.choice(pids) if pids else 0)

    async def kill_reader_of_bodies(self) -> None:
        """The process that reads large requests dies; it is there since the first of them."""
        topic = self._topics["kept"]
        publishing = asyncio.ensure_future(self._publisher.publish(topic, large=True))
        deadline = time.monotonic() + PATIENCE
        while not (pids := await asyncio.to_thread(self._site.pids, "body_process")):
            assert time.monotonic() < deadline, "a large request is not read by another process"
            await asyncio.sleep(0.01)
        await asyncio.to_thread(self._site.kill, "body_process", pids[0])
        await publishing

    async def end_service(self) -> None:
        """The runner dies, or is ended in order; the service is started again."""
        number = self._chance.choice((signal.SIGKILL, signal.SIGTERM))
        await asyncio.to_thread(self._site.end, number)
        await asyncio.to_thread(self._site.start)

    async def reload(self) -> None:
        """All processes but the runner are replaced in order."""
        config = self._site.directory / "gripproxy.conf"
        command = [sys.executable, "-m", "gripproxy", "reload", "--hub", "--handler", f"--config={config}"]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=RELOAD_PATIENCE, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    # --- the store

    async def restore(self) -> None:
        """The hub dies, and is started again on a backup, while workers and handler hold the clients."""
        await self._restored(self._beneath_clients)

    async def restore_at_rest(self) -> None:
        """The service is ended, the store is restored from a backup, and the service is started again."""
        await self._restored(self._at_rest)

    def _beneath_clients(self, restore: Callable[[], object]) -> None:
        with self._site.away():
            restore()

    def _at_rest(self, restore: Callable[[], object]) -> None:
        self._site.end()
        restore()
        self._site.start()

    async def _restored(self, carry_out: Callable[[Callable[[], object]], None]) -> None:
        """Make a backup, wait until more was published, and restore it. Each backup is restored once."""
        store, backup = self._site.directory / "hub.db", self._site.directory / f"backup-{self._backups}.db"
        self._backups += 1
        # While a topic is made again, its birth is not known.
        async with self._topics["reborn"].lock:
            await asyncio.to_thread(maintenance.back_up, store, backup)
            births = {name: len(topic.recorder.history.births) for name, topic in self._topics.items()}
        await asyncio.sleep(self._chance.uniform(*LOSSES))
        async with self._topics["reborn"].lock:
            self._begun = time.monotonic()
            await asyncio.to_thread(carry_out, partial(maintenance.restore, backup, store, replace=True))
            await asyncio.to_thread(self._record, store, births)
        backup.unlink()

    def _record(self, store: pathlib.Path, births: Mapping[str, int]) -> None:
        """Record the events that are lost, from the store that was replaced, and remove that one."""
        lost = store.with_name(store.name + ".replaced")
        for name, topic in self._topics.items():
            topic.recorder.restored(lost, store, births[name])
        for path in lost.parent.glob(lost.name + "*"):
            path.unlink()


def _kill(kind: str) -> Callable[[HubFaults], Awaitable[None]]:
    return lambda faults: faults.kill(kind)


KINDS: Final[dict[str, Callable[[HubFaults], Awaitable[None]]]] = {
    "kills of hub": _kill("hub"),
    "kills of handler": _kill("handler"),
    "kills of worker": _kill("worker"),
    "kills of writer": _kill("writer_process"),
    "kills of reader": _kill("reader_process"),
    "kills of sender": _kill("sender_process"),
    "kills of body reader": HubFaults.kill_reader_of_bodies,
    "restarts of the service": HubFaults.end_service,
    "reloads": HubFaults.reload,
    "restores": HubFaults.restore,
    "restores at rest": HubFaults.restore_at_rest,
}
"""All faults by name."""

POSITIONS: Final = frozenset(KINDS) - {
    "kills of worker",
    "kills of writer",
    "kills of reader",
    "kills of sender",
    "kills of body reader",
}
"""Faults with which a position on its way between hub and handler may be lost."""
