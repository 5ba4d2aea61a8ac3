"""SnapshotCache: the values of ranges of keys, kept up to date, and read together at one version or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Self

from griphub.client.cached_value import CachedValue, mutation_of
from griphub.client.connection import Token
from griphub.client.errors import Closed
from griphub.client.key_range import WHOLE, KeyRange
from griphub.client.region import Region
from griphub.client.snapshot_cache_state import (
    BYTES_MAX,
    HISTORY,
    CacheAction,
    FeedEnded,
    FeedPhase,
    Knowledge,
    SnapshotCacheState,
    StartFeed,
    StopFeed,
)
from griphub.client.source_snapshot import SourceSnapshot, SourceSnapshots
from griphub.client.stitched import NotKnown, View
from griphub.client.watch_actions import WatchReport
from griphub.client.watch_messages import Snapshot, Version
from griphub.client.watch_silence import INTERVAL
from griphub.client.watcher import Watcher

__all__ = ["SnapshotCache"]

SLICE: Final = 500
"""Values of a snapshot that are taken in one turn of the loop."""

READS_MAX: Final = 4
"""Number of snapshots of a source that are read at a time: a resync of thousands of ranges is no attack on it."""


class SnapshotCache:
    """Values of ranges of keys of a topic, each range kept up to date by a watcher of its own.

    A read gives the values of one version, over all ranges that it asks for, or ``NotKnown``: never a mixture, never a
    guess. Values may be some seconds old; ``wait`` waits for a version. Ranges are added and removed at any time, as
    an auto-sharder has it. Knowledge that another cache hands over is used, and watched on from its own version, so a
    change during the handover is not lost.

    Callbacks are called from the event loop, and have to return soon.

    Args:
        url: of the hub with the prefix of its route.
        topic: name of the topic.
        token: bearer token, or a function that returns one for each request; None for none.
        snapshots: reads a snapshot of a range from the source of a soft topic, as that of a ``Watcher``; it is called
            for at most four ranges at a time. None for a topic whose snapshots the hub has.
        bytes_max: bytes of all values. With more of them earlier versions are forgotten first, then the largest range.
        history: seconds for which versions are kept, so that ranges with other tops can be read together.
        interval: seconds between progress, a setting of the topic.
        on_report: receives range and report of lost streams, resyncs and faults of the hub. The cache goes on.
        on_ended: receives the range that is not known any more, and the reason. It may be added again.

    Raises:
        ValueError: the URL is not one of HTTP, or a bound is not above 0.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        token: Token = None,
        snapshots: SourceSnapshots | None = None,
        bytes_max: int = BYTES_MAX,
        history: float = HISTORY,
        interval: float = INTERVAL,
        on_report: Callable[[KeyRange, WatchReport], object] | None = None,
        on_ended: Callable[[KeyRange, str], object] | None = None,
    ) -> None:
        self._url = url
        self._topic = topic
        self._token = token
        self._snapshots = snapshots
        self._reading = asyncio.Semaphore(READS_MAX)
        self._interval = interval
        self._on_report = on_report
        self._on_ended = on_ended
        self._state = SnapshotCacheState(bytes_max, history)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._closed = False
        # A wrong URL is an error here, not one of each range.
        Watcher(url, topic, token=token)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """URL of the hub."""
        return self._url

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._topic

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return self._state.size

    @property
    def ranges(self) -> list[tuple[KeyRange, FeedPhase]]:
        """Ranges that were added, in order, and the states of their feeds."""
        return self._state.ranges

    # --- ranges

    def add(self, low: str | None = None, high: str | None = None, regions: Knowledge = ()) -> None:
        """Add a range. It is known some time later: see ``wait``.

        Args:
            low: least key; None for no bound.
            high: key below which the others are; None for no bound.
            regions: knowledge of another cache of the topic, from its ``regions``.

        Raises:
            ValueError: no key is in the range, it overlaps one that is there, or there are too many.
            Closed: the cache is closed.
        """
        self._check()
        self._apply(self._state.add(KeyRange.of(low, high), regions))

    def remove(self, low: str | None = None, high: str | None = None) -> None:
        """Remove the keys of a range.

        Args:
            low: least key; None for no bound.
            high: key below which the others are; None for no bound.

        Raises:
            ValueError: no key is in the range.
            Closed: the cache is closed.
        """
        self._check()
        self._apply(self._state.remove(KeyRange.of(low, high)))

    def assign(self, ranges: Iterable[KeyRange], regions: Knowledge = ()) -> None:
        """Have exactly these ranges. Knowledge of keys that stay is kept.

        Args:
            ranges: the ranges.
            regions: knowledge of other caches of the topic.

        Raises:
            ValueError: the ranges overlap, or there are too many.
            Closed: the cache is closed.
        """
        self._check()
        self._apply(self._state.assign(ranges, regions))

    def regions(self, low: str | None = None, high: str | None = None) -> list[Region[CachedValue]]:
        """Return knowledge, to be handed over to another cache. It does not change any more.

        Args:
            low: least key; None for no bound.
            high: key below which the others are; None for no bound.

        Returns:
            Regions of keys of the range, in order.

        Raises:
            ValueError: no key is in the range.
        """
        return self._state.regions(KeyRange.of(low, high))

    # --- reading

    def get(self, key: str, others: Sequence[SnapshotCache] = ()) -> CachedValue | NotKnown | None:
        """Return the value of a key.

        Args:
            key: the key.
            others: caches of the topic that may know it as well.

        Returns:
            The value, None if the key has none, or that it is not known.

        Raises:
            ValueError: another cache is of another topic.
        """
        view = self.read([KeyRange(key, key + "\0")], others)
        return view if isinstance(view, NotKnown) else view.get(key)

    def read(
        self,
        ranges: Sequence[KeyRange] = (WHOLE,),
        others: Sequence[SnapshotCache] = (),
        *,
        at: str | None = None,
        at_least: str | None = None,
    ) -> View[CachedValue] | NotKnown:
        """Return the values of ranges at one version.

        Args:
            ranges: at least one; all keys if none are named.
            others: caches of the topic, to be read together with this one.
            at: cursor of the version; None for the newest that is known.
            at_least: cursor of a version below which an answer is of no use; None for none.

        Returns:
            The values, or that they are not known.

        Raises:
            ValueError: another cache is of another topic.
            BadAnswer: ``at`` or ``at_least`` is no cursor.
        """
        known: list[Region[CachedValue]] = []
        for cache in others:
            if (cache.url, cache.topic) != (self._url, self._topic):
                raise ValueError(f"a cache of {cache.topic!r} and one of {self._topic!r} have no version in common")
            known += [region for range in ranges for region in cache.regions(range.low, range.high)]
        place, least = (None if cursor is None else Version.of(cursor) for cursor in (at, at_least))
        return self._state.read(ranges, known, at=place, at_least=least)

    async def wait(
        self,
        ranges: Sequence[KeyRange] = (WHOLE,),
        others: Sequence[SnapshotCache] = (),
        *,
        at_least: str | None = None,
    ) -> View[CachedValue]:
        """Wait until the values of ranges are known at one version. The caller limits the time.

        Args:
            ranges: at least one; all keys if none are named.
            others: caches of the topic, to be read together with this one.
            at_least: cursor of a version below which an answer is of no use, as ``version_cursor`` of a publication;
                None for none.

        Returns:
            The values.

        Raises:
            Closed: the cache is closed.
            ValueError: another cache is of another topic.
            BadAnswer: ``at_least`` is no cursor.
        """
        caches = [self, *others]
        while True:
            self._check()
            view = self.read(ranges, others, at_least=at_least)
            if isinstance(view, View):
                return view
            waits = [asyncio.ensure_future(cache.changed()) for cache in caches]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()

    async def changed(self) -> None:
        """Wait until something else is known."""
        await self._changed.wait()

    async def close(self) -> None:
        """End all watchers."""
        self._closed = True
        tasks = [*self._tasks.values(), *self._ending]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._notify()

    # --- feeds

    def _check(self) -> None:
        if self._closed:
            raise Closed("the cache is closed: make another one")

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _apply(self, actions: Sequence[CacheAction]) -> None:
        for action in actions:
            match action:
                case StartFeed():
                    self._tasks[action.number] = asyncio.create_task(self._feed(action))
                case StopFeed(number):
                    task = self._tasks.pop(number, None)
                    if task is not None and task is not asyncio.current_task():
                        task.cancel()
                        self._ending.add(task)
                        task.add_done_callback(self._ending.discard)
                case FeedEnded(range, reason):
                    if self._on_ended is not None:
                        self._on_ended(range, reason)
        self._notify()

    async def _feed(self, feed: StartFeed) -> None:
        """Give the messages of a watcher to the state, until the feed is stopped."""
        loop = asyncio.get_running_loop()
        low, high = feed.range.low or None, feed.range.high

        def report(report: WatchReport) -> None:
            if self._on_report is not None:
                self._on_report(feed.range, report)

        watcher = Watcher(
            self._url,
            self._topic,
            low,
            high,
            cursor=feed.cursor,
            token=self._token,
            snapshots=None if self._snapshots is None else self._read_source,
            on_report=report,
            interval=self._interval,
        )
        try:
            async with watcher:
                async for message in watcher:
                    if isinstance(message, Snapshot):
                        await self._replace(feed.number, message)
                    else:
                        self._apply(self._state.taken(feed.number, message, loop.time()))
                    if self._tasks.get(feed.number) is not asyncio.current_task():
                        return
        except Exception as error:  # noqa: BLE001 - only this range is lost
            # Refused by the hub, or raised by a callback: the range is not known any more, and the others go on.
            self._apply(self._state.failed(feed.number, str(error) or type(error).__name__))

    async def _read_source(self, range: KeyRange) -> SourceSnapshot | None:
        assert self._snapshots is not None
        async with self._reading:
            return await self._snapshots(range)

    async def _replace(self, number: int, snapshot: Snapshot) -> None:
        builder = self._state.builder(number, snapshot.version)
        if builder is None:
            return
        for begin in range(0, len(snapshot.events), SLICE):
            part = snapshot.events[begin : begin + SLICE]
            builder.add([found for event in part if (found := mutation_of(event)) is not None])
            await asyncio.sleep(0)
        self._apply(self._state.replaced(number, builder.region()))
