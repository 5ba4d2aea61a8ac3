"""State of a cache of ranges: messages of watchers in, reads at one version out. Sans-I/O; times are handed in.

Each range has a feed, a watcher of its own, and regions of knowledge. A range that is added with knowledge, of this or
of another cache, is watched from the least of its tops on, so the new knowledge joins the old one and no change is
between them. Without knowledge, or with a hole in it, the feed begins with a snapshot. Until then the range is not
known.

    STARTING   no region: reads are answered as not known
    KNOWN      regions cover the range
    ENDED      the feed failed, or was the largest when the cache was full: not known until the range is added again
"""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from griphub.client.cached_value import CachedValue, mutation_of
from griphub.client.key_range import KeyRange, merged
from griphub.client.region import Region, RegionBuilder
from griphub.client.stitched import NotKnown, View, stitch
from griphub.client.watch_messages import Change, Progress, Version

__all__ = [
    "BYTES_MAX",
    "HISTORY",
    "CacheAction",
    "FeedEnded",
    "FeedPhase",
    "Knowledge",
    "SnapshotCacheState",
    "StartFeed",
    "StopFeed",
]

BYTES_MAX: Final = 512 * 1024 * 1024
"""Bytes of all regions. With more of them earlier versions are forgotten first; then the largest feed is ended, and its
range is not known."""

HISTORY: Final = 60.0
"""Seconds for which versions are kept, so that ranges with other tops can be read together."""

RANGES_MAX: Final = 10_000
"""Number of ranges of a cache. Another one is refused."""

PIECES_MAX: Final = 64
"""Number of regions of a feed. Progress of a part that would make more has no effect; that of the whole range joins
them."""

MARK_GAP: Final = 1.0
"""Seconds between the versions that are noted to be forgotten later."""

MARK_EVENTS: Final = 500
"""Events after which a version is noted in any case: they are forgotten in one turn."""

MARKS_TURN: Final = 2
"""Noted versions that are forgotten in one turn."""

Knowledge = Sequence[Region[CachedValue]]


@dataclass(frozen=True, slots=True)
class StartFeed:
    """Request for a watcher.

    Attributes:
        number: of the feed; messages name it.
        range: keys to be watched.
        cursor: place to begin at; None to begin with a snapshot.
    """

    number: int
    range: KeyRange
    cursor: str | None


@dataclass(frozen=True, slots=True)
class StopFeed:
    """Request to end the watcher of a feed."""

    number: int


@dataclass(frozen=True, slots=True)
class FeedEnded:
    """Report that a range is not known any more.

    Attributes:
        range: the range.
        reason: text.
    """

    range: KeyRange
    reason: str


CacheAction = StartFeed | StopFeed | FeedEnded


class FeedPhase(enum.Enum):
    """State of a feed."""

    STARTING = "starting"
    KNOWN = "known"
    ENDED = "ended"


class _Feed:
    """Knowledge of one range.

    Args:
        number: of the feed.
        range: its keys.
        regions: knowledge of all its keys in one epoch, in order; none for none.
    """

    def __init__(self, number: int, range: KeyRange, regions: Knowledge) -> None:
        self.number = number
        self.range = range
        self.regions = list(regions)
        self.reached = min((region.top for region in regions), default=0)
        """Number of the version up to which the watcher has given all changes."""
        self.ended = False
        self._marks: deque[tuple[float, int]] = deque()
        self._events = 0
        self.size = sum(region.size for region in regions)

    @property
    def phase(self) -> FeedPhase:
        """State of the feed."""
        if self.ended:
            return FeedPhase.ENDED
        return FeedPhase.KNOWN if self.regions else FeedPhase.STARTING

    @property
    def cursor(self) -> str | None:
        """Place to begin at; None for a snapshot."""
        return Version(self.regions[0].epoch, self.reached).end if self.regions else None

    def joins(self, version: Version) -> bool:
        """Return whether changes up to a ``version`` join the knowledge.

        In another epoch those above the version that was reached may be lost by a restore, so that one has to be known.
        """
        return all(region.epoch == version.epoch or region.bottom <= self.reached for region in self.regions)

    def replace(self, region: Region[CachedValue]) -> None:
        """Take the region of a snapshot in place of all others."""
        self.reached = region.top
        self._marks.clear()
        self._set([region])

    def change(self, change: Change, now: float) -> None:
        """Take the events of a version."""
        mutations = [found for event in change.events if (found := mutation_of(event)) is not None]
        self._set([region.extend(self.reached, change.version, mutations) for region in self.regions])
        self.reached = change.version.number
        self._events += len(mutations)
        self._forget(now)

    def progress(self, progress: Progress, now: float) -> None:
        """Take progress of the range, or of a part of it."""
        part = progress.range.overlap(self.range)
        if part is None:
            return
        pieces: list[Region[CachedValue]] = []
        for region in self.regions:
            common = region.range.overlap(part)
            if common is None:
                pieces.append(region)
                continue
            rests = region.range.without(common)
            raised = region.clip(common).raised(self.reached, progress.version)
            pieces += sorted([raised, *map(region.clip, rests)], key=lambda each: each.range.low)
        joined = _joined(pieces)
        if len(joined) <= PIECES_MAX:
            self._set(joined)
        if part == self.range:
            self.reached = max(self.reached, progress.version.number)
        self._forget(now)

    def end(self) -> None:
        """Forget all: the range is not known any more."""
        self.regions, self.size, self.ended = [], 0, True

    def shorten(self) -> None:
        """Forget all versions below the one that was reached."""
        self._marks.clear()
        self._evict(self.reached)

    def _set(self, regions: list[Region[CachedValue]]) -> None:
        self.regions = _joined(regions)
        self.size = sum(region.size for region in self.regions)

    def _evict(self, bottom: int) -> None:
        self._set([region.evict(min(bottom, region.top)) for region in self.regions])

    def _forget(self, now: float) -> None:
        """Note the version, and forget those that were noted long ago."""
        marks = self._marks
        if not marks or now - marks[-1][0] >= MARK_GAP or self._events >= MARK_EVENTS:
            marks.append((now, self.reached))
            self._events = 0

    def expire(self, before: float) -> None:
        """Forget versions that were reached before a time in seconds, a few of them in one turn."""
        for _ in range(MARKS_TURN):
            # The newest of them was the top at that time, so it stays readable.
            if len(self._marks) < 2 or self._marks[1][0] > before:
                return
            self._marks.popleft()
            self._evict(self._marks[0][1])


class SnapshotCacheState:
    """Knowledge of ranges of one topic.

    Args:
        bytes_max: bytes of all regions.
        history: seconds for which versions are kept.

    Raises:
        ValueError: a bound is not above 0.
    """

    def __init__(self, bytes_max: int = BYTES_MAX, history: float = HISTORY) -> None:
        if bytes_max <= 0 or history <= 0:
            raise ValueError(f"bytes_max={bytes_max}, history={history}: expected numbers above 0")
        self._bytes_max = bytes_max
        self._history = history
        self._number = 0
        self._feeds: dict[int, _Feed] = {}
        self._order: list[tuple[str, int]] = []
        """Least key and number of each feed, in order."""
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes of all regions."""
        return self._size

    @property
    def ranges(self) -> list[tuple[KeyRange, FeedPhase]]:
        """Ranges that were added, in order, and the states of their feeds."""
        feeds = [self._feeds[number] for _, number in self._order]
        return [(feed.range, feed.phase) for feed in feeds]

    # --- the application

    def add(self, range: KeyRange, regions: Knowledge = ()) -> list[CacheAction]:
        """Add a range.

        Args:
            range: its keys.
            regions: knowledge handed over; used if it is of all keys of the range, in one epoch.

        Returns:
            Actions, in order.

        Raises:
            ValueError: it overlaps a range that is there, or there are too many.
        """
        taken = [feed for feed in self._near(range) if not feed.ended]
        if taken:
            raise ValueError(f"{range} overlaps {taken[0].range}: remove that one, or assign all ranges in one call")
        if len(self._feeds) >= RANGES_MAX:
            raise ValueError(f"{range} would be one of more than {RANGES_MAX} ranges: add greater ones")
        actions = self.remove(range)
        self._number += 1
        feed = _Feed(self._number, range, _adopted(range, regions))
        self._feeds[feed.number] = feed
        self._size += feed.size
        insort(self._order, (range.low, feed.number))
        return [*actions, StartFeed(feed.number, range, feed.cursor)]

    def remove(self, range: KeyRange) -> list[CacheAction]:
        """Remove the keys of a range. Feeds of other keys as well are continued without these.

        Args:
            range: the keys.

        Returns:
            Actions, in order.
        """
        actions: list[CacheAction] = []
        for feed in self._near(range):
            self._drop(feed)
            if not feed.ended:
                actions.append(StopFeed(feed.number))
            for rest in feed.range.without(range):
                if not feed.ended:
                    actions += self.add(rest, feed.regions)
        return actions

    def assign(self, ranges: Iterable[KeyRange], regions: Knowledge = ()) -> list[CacheAction]:
        """Have exactly these ranges, as an auto-sharder assigns them. Knowledge of keys that stay is kept.

        Args:
            ranges: the ranges.
            regions: knowledge handed over.

        Returns:
            Actions, in order.

        Raises:
            ValueError: the ranges overlap, or there are too many.
        """
        wanted = list(ranges)
        for one, other in zip(ordered := sorted(wanted, key=lambda each: each.low), ordered[1:], strict=False):
            if one.overlap(other) is not None:
                raise ValueError(f"{one} overlaps {other}: a key has one owner in a cache")
        if len(wanted) > RANGES_MAX:
            raise ValueError(f"{len(wanted)} ranges: at most {RANGES_MAX} are allowed, assign greater ones")
        kept = {feed.range for feed in self._feeds.values() if not feed.ended}.intersection(wanted)
        own = self.regions()
        ends = [region.range.low for region in own]
        actions: list[CacheAction] = []
        for feed in list(self._feeds.values()):
            if feed.range not in kept:
                self._drop(feed)
                actions += [] if feed.ended else [StopFeed(feed.number)]
        for range in wanted:
            if range not in kept:
                first = max(0, bisect_left(ends, range.low) - 1)
                end = len(own) if range.high is None else bisect_left(ends, range.high)
                actions += self.add(range, [*regions, *own[first:end]])
        return actions

    def regions(self, range: KeyRange | None = None) -> list[Region[CachedValue]]:
        """Return knowledge, to be handed over or read: it does not change any more.

        Args:
            range: its keys; None for all.

        Returns:
            Regions of keys of the range, in order.
        """
        if range is None:
            return [region for _, number in self._order for region in self._feeds[number].regions]
        found = [(region, region.range.overlap(range)) for feed in self._near(range) for region in feed.regions]
        return [region.clip(part) for region, part in found if part is not None]

    def read(
        self,
        ranges: Sequence[KeyRange],
        regions: Knowledge = (),
        *,
        at: Version | None = None,
        at_least: Version | None = None,
    ) -> View[CachedValue] | NotKnown:
        """Return the values of ranges at one version.

        Args:
            ranges: at least one.
            regions: knowledge of other caches of the topic, to be read together with this one.
            at: the version; None for the newest that is known.
            at_least: version below which an answer is of no use; None for none.

        Returns:
            The values, or that they are not known.
        """
        near = [each for range in merged(ranges) for feed in self._near(range) for each in feed.regions]
        return stitch(ranges, [*near, *regions], at=at, at_least=at_least)

    # --- watchers

    def taken(self, number: int, message: Change | Progress, now: float) -> list[CacheAction]:
        """Take a message of a feed's watcher.

        Args:
            number: of the feed; a message of one that is not there has no effect.
            message: the message.
            now: monotonic time in seconds.

        Returns:
            Actions, in order.
        """
        feed = self._feeds.get(number)
        if feed is None or feed.ended or not feed.regions:
            return []
        if not feed.joins(message.version):
            self._drop(feed)
            return [StopFeed(number), *self.add(feed.range)]
        before = feed.size
        if isinstance(message, Change):
            feed.change(message, now)
        else:
            feed.progress(message, now)
        feed.expire(now - self._history)
        self._size += feed.size - before
        return self._bound(feed)

    def builder(self, number: int, version: Version) -> RegionBuilder[CachedValue] | None:
        """Return the maker of the region of a snapshot.

        Args:
            number: of the feed.
            version: of the snapshot.

        Returns:
            The maker; None if the feed is not there.
        """
        feed = self._feeds.get(number)
        return None if feed is None or feed.ended else RegionBuilder(feed.range, version)

    def replaced(self, number: int, region: Region[CachedValue]) -> list[CacheAction]:
        """Take the region of a snapshot of a feed.

        Args:
            number: of the feed; a region of one that is not there has no effect.
            region: the region.

        Returns:
            Actions, in order.
        """
        feed = self._feeds.get(number)
        if feed is None or feed.ended:
            return []
        before = feed.size
        feed.replace(region)
        self._size += feed.size - before
        return self._bound(feed)

    def failed(self, number: int, reason: str) -> list[CacheAction]:
        """Take the end of a feed's watcher that no repetition cures: its range is not known any more.

        Args:
            number: of the feed.
            reason: text.

        Returns:
            Actions, in order.
        """
        feed = self._feeds.get(number)
        return [] if feed is None or feed.ended else self._end(feed, reason)

    # --- transitions

    def _near(self, range: KeyRange) -> list[_Feed]:
        """Return the feeds that have keys of a range, in order: feeds do not overlap."""
        index = max(0, bisect_left(self._order, (range.low, 0)) - 1)
        found: list[_Feed] = []
        while index < len(self._order) and (range.high is None or self._order[index][0] < range.high):
            feed = self._feeds[self._order[index][1]]
            if feed.range.overlap(range) is not None:
                found.append(feed)
            index += 1
        return found

    def _drop(self, feed: _Feed) -> None:
        del self._feeds[feed.number]
        del self._order[bisect_left(self._order, (feed.range.low, feed.number))]
        self._size -= feed.size

    def _end(self, feed: _Feed, reason: str) -> list[CacheAction]:
        self._size -= feed.size
        feed.end()
        return [StopFeed(feed.number), FeedEnded(feed.range, reason)]

    def _bound(self, changed: _Feed) -> list[CacheAction]:
        """Forget versions, and then keys, until the cache is within its bound."""
        actions: list[CacheAction] = []
        if self._size > self._bytes_max:
            # Mostly that is enough.
            self._shorten(changed)
        for feed in sorted(self._feeds.values(), key=lambda each: -each.size) if self._size > self._bytes_max else ():
            if self._size > self._bytes_max:
                self._shorten(feed)
        reason = f"the cache has more than {self._bytes_max} bytes: give it more, or fewer keys"
        while self._size > self._bytes_max and (left := [feed for feed in self._feeds.values() if not feed.ended]):
            actions += self._end(max(left, key=lambda each: each.size), reason)
        return actions

    def _shorten(self, feed: _Feed) -> None:
        before = feed.size
        feed.shorten()
        self._size += feed.size - before


def _joined(regions: Iterable[Region[CachedValue]]) -> list[Region[CachedValue]]:
    """Return regions that touch and have equal versions as one."""
    found: list[Region[CachedValue]] = []
    for region in regions:
        both = found[-1].join(region) if found else None
        if both is None:
            found.append(region)
        else:
            found[-1] = both
    return found


def _adopted(range: KeyRange, regions: Knowledge) -> Knowledge:
    """Return regions that cover a range, in order and each key once; none if they do not."""
    parts = [(region, part) for region in regions if (part := region.range.overlap(range)) is not None]
    if len({region.epoch for region, _ in parts}) != 1:
        return []
    found: list[Region[CachedValue]] = []
    holes = [range]
    for region, part in sorted(parts, key=lambda each: -each[0].top):
        found += [region.clip(common) for hole in holes if (common := hole.overlap(part)) is not None]
        holes = [rest for hole in holes for rest in hole.without(part)]
    if holes:
        return []
    return _joined(sorted(found, key=lambda each: each.range.low))
