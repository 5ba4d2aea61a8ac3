"""Busy key: one article changes faster than its changes can be worked off, and others share its consumer."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from freshness import Freshness
from ring import Ring
from shelf import Shelf

from griphub import Change, KeyRange, Snapshot, Watcher

ARTICLES = [f"article-{number:02}" for number in range(1, 13)]
BUSY = ARTICLES[0]

PARTITIONS = 4
"""Partitions of the queue, and ranges of the watch: each has one consumer."""

WORK = 0.005
"""Seconds that it takes to work off a value: a page is rendered, an index is changed."""

TICK = 0.05
"""Seconds between two bursts of changes."""

BURST = 20
"""Changes of the busy article in a burst, twice as many as can be worked off until the next one."""

PATIENCE = 60.0
"""Seconds for the watch to have worked off all."""


def partition(article: str) -> int:
    """Return the partition of an article, by a hash as usual."""
    return zlib.crc32(article.encode()) % PARTITIONS


def now() -> float:
    """Return monotonic time, seconds."""
    return asyncio.get_running_loop().time()


class QueueLane:
    """Consumer of a partition: one event after the other.

    Args:
        ring: the partition, large enough to retain all.
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.last = 0
        self.freshness = Freshness(BUSY)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            for entry in await self.ring.read(self.last):
                await asyncio.sleep(WORK)
                self.last = entry.id
                self.freshness.add(entry.key, entry.time, entry.time, now())

    @property
    def waiting(self) -> int:
        """Number of changes that wait."""
        return self.ring.last - self.last

    def end(self) -> None:
        """Count the changes that wait with the time that they have waited so far."""
        for entry in self.ring.behind(self.last):
            if entry.key != BUSY:
                self.freshness.add(entry.key, entry.time, entry.time, now())


@dataclass(frozen=True, slots=True)
class Waiting:
    """Article with a change that is to be worked off.

    Attributes:
        key: the article.
        event: monotonic time of the first such change, seconds.
        arrival: monotonic time of its arrival, seconds.
    """

    key: str
    event: float
    arrival: float


class WatchLane:
    """Consumer of a range: it has the newest value of each key, and works off those that have changed, in turn.

    Args:
        shelf: its topic.
        range: the keys.
        collapse: whether several changes of a key are one. Without it others wait as in a queue: try it.
    """

    def __init__(self, shelf: Shelf, range: KeyRange, collapse: bool) -> None:
        self.shown: dict[str, int] = {}
        self.freshness = Freshness(BUSY)
        self._watcher = Watcher(shelf.url, shelf.topic, range.low, range.high)
        self._collapse = collapse
        self._newest: dict[str, int] = {}
        self._waiting: dict[str, Waiting] = {}
        self._changed = asyncio.Event()
        self.ready = asyncio.Event()
        """Set when the range is watched."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._work())

    @property
    def waiting(self) -> int:
        """Number of changes that wait."""
        return len(self._waiting)

    async def _follow(self) -> None:
        async with self._watcher:
            async for message in self._watcher:
                if isinstance(message, Change | Snapshot):
                    for event in message.events:
                        key = str(event.key)
                        self._newest[key] = event.data["number"]
                        # A key that waits keeps its turn: its newest value takes the place of the one before.
                        name = key if self._collapse else event.id
                        self._waiting.setdefault(name, Waiting(key, event.data["time"], now()))
                    self._changed.set()
                self.ready.set()

    async def _work(self) -> None:
        while True:
            while self._waiting:
                waiting = self._waiting.pop(next(iter(self._waiting)))
                number = self._newest[waiting.key]
                await asyncio.sleep(WORK)
                self.shown[waiting.key] = number
                self.freshness.add(waiting.key, waiting.event, waiting.arrival, now())
            self._changed.clear()
            await self._changed.wait()


@dataclass(frozen=True, slots=True)
class BusyVerdict:
    """Outcome for the consumer of the busy article in one system.

    Attributes:
        changes: changes of the busy article.
        worked: values of it that were worked off.
        freshness: waits of the other articles of this consumer.
        waiting: changes that wait at the end of the flood.
        wrong: articles whose newest number was not shown in the end; of the watch only.
    """

    changes: int
    worked: int
    freshness: Freshness
    waiting: int
    wrong: tuple[str, ...] = ()

    @property
    def anomalies(self) -> int:
        """Number of changes of other articles that were held up, and of articles that are wrong."""
        return len(self.freshness.held_up) + len(self.wrong)


class BusyKey:
    """The act.

    Args:
        url: of the hub.
        seconds: time of the flood, in seconds.
        note: prints a line.
        collapse: as of ``WatchLane``.
    """

    def __init__(self, url: str, seconds: float, note: Callable[[str], None], collapse: bool = True) -> None:
        self._ticks = max(40, round(seconds / TICK))
        rings = [Ring(self._ticks * (BURST + 1)) for _ in range(PARTITIONS)]
        self._shelf = Shelf(url, "flood", {"progress": 1}, lambda article: rings[partition(article)])
        size = len(ARTICLES) // PARTITIONS
        starts = [*ARTICLES[::size], None]
        self._queue = [QueueLane(ring) for ring in rings]
        self._watch = [WatchLane(self._shelf, KeyRange.of(low, high), collapse) for low, high in pairwise(starts)]
        self._note = note

    async def play(self) -> tuple[BusyVerdict, BusyVerdict]:
        """Play the act.

        Returns:
            Verdicts about the queue and the watch.
        """
        queue, watch = self._queue[partition(BUSY)], self._watch[0]
        async with self._shelf, asyncio.TaskGroup() as group:
            consuming = [group.create_task(lane.run()) for lane in self._queue]
            watching = [group.create_task(lane.run()) for lane in self._watch]
            for lane in self._watch:
                await lane.ready.wait()
            changes = await self._flood(queue, watch)
            waiting = queue.waiting, watch.waiting
            queue.end()
            for task in consuming:
                task.cancel()
            wrong = await self._rest()
            for task in watching:
                task.cancel()
        return (
            BusyVerdict(changes, queue.freshness.worked, queue.freshness, waiting[0]),
            BusyVerdict(changes, watch.freshness.worked, watch.freshness, waiting[1], wrong),
        )

    async def _flood(self, queue: QueueLane, watch: WatchLane) -> int:
        """Ingest all changes; returns the number of those of the busy article."""
        number = 0
        for tick in range(self._ticks):
            for _ in range(BURST):
                number += 1
                await self._shelf.put(BUSY, number)
            await self._shelf.put(ARTICLES[1 + tick % (len(ARTICLES) - 1)], tick)
            await asyncio.sleep(TICK)
            if tick % 20 == 19:
                self._note(f"{number} changes of {BUSY}; behind it wait: queue {queue.waiting}, watch {watch.waiting}")
        return number

    async def _rest(self) -> tuple[str, ...]:
        """Wait until the watching consumers have shown the newest numbers; returns the articles that stay wrong."""
        await self._shelf.stored()
        store, end = await self._shelf.table(), now() + PATIENCE
        while True:
            shown = {key: number for lane in self._watch for key, number in lane.shown.items()}
            wrong = tuple(key for key in store if shown.get(key) != store[key])
            if not wrong or now() > end:
                return wrong
            await asyncio.sleep(0.05)
