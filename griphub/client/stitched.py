"""Stitched reads: values of ranges at one version, over regions of any number of caches. Sans-I/O.

The newest version at which all is known is the least of the tops, if no bottom is above it. Otherwise the answer is
that it is not known: values of two versions are never mixed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from griphub.client.key_range import KeyRange, least_end, merged
from griphub.client.region import Region
from griphub.client.watch_messages import Version

__all__ = ["NotKnown", "View", "stitch"]

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class NotKnown:
    """Answer that the values are not known at any one version that was asked for.

    Attributes:
        missing: ranges of which no version is known, in order; none if only the versions do not meet.
        bottom: greatest of the bottoms; None if ranges are missing.
        top: least of the tops; None if ranges are missing.
    """

    missing: tuple[KeyRange, ...] = ()
    bottom: Version | None = None
    top: Version | None = None

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        if self.missing:
            return f"not known: {', '.join(map(str, self.missing[:10]))}"
        return f"no version is known of all: some begin at {self.bottom}, others end at {self.top}"


class View(Generic[V]):
    """Values of ranges at one version. It does not change, and needs no more memory than the regions that it is of.

    Args:
        version: the version.
        parts: ranges in order, and the regions that know them.
    """

    def __init__(self, version: Version, parts: Sequence[tuple[KeyRange, Region[V]]]) -> None:
        self._version = version
        self._parts = tuple(parts)
        self._lows = [range.low for range, _ in parts]

    @property
    def version(self) -> Version:
        """Version at which the values are read."""
        return self._version

    @property
    def ranges(self) -> list[KeyRange]:
        """Ranges of the keys that can be read, in order."""
        return merged(range for range, _ in self._parts)

    def get(self, key: str) -> V | None:
        """Return the value of a key.

        Args:
            key: a key of the ranges.

        Returns:
            The value; None if the key has none.

        Raises:
            LookupError: the key is in none of the ranges.
        """
        index = bisect_right(self._lows, key) - 1
        if index < 0 or key not in self._parts[index][0]:
            raise LookupError(f"{key!r:.80} is not among the ranges of this view")
        return self._parts[index][1].get(key, self._version.number)

    def items(self) -> Iterator[tuple[str, V]]:
        """Yield keys and values, by key."""
        for range, region in self._parts:
            yield from region.items(range, self._version.number)


@dataclass(frozen=True, slots=True)
class _Segment(Generic[V]):
    """Keys between two bounds of ranges or regions, and the regions that know them."""

    range: KeyRange
    regions: tuple[Region[V], ...]

    def best(self, version: int) -> int | None:
        """Return the greatest known version that is not above another; None if there is none."""
        known = [min(each.top, version) for each in self.regions if each.bottom <= version]
        return max(known, default=None)

    def region(self, version: int) -> Region[V]:
        return next(each for each in self.regions if each.bottom <= version <= each.top)

    def of(self, epoch: str) -> Self:
        regions = tuple(each for each in self.regions if each.epoch == epoch)
        return type(self)(self.range, regions)


def stitch(
    ranges: Sequence[KeyRange],
    regions: Sequence[Region[V]],
    *,
    at: Version | None = None,
    at_least: Version | None = None,
) -> View[V] | NotKnown:
    """Return the values of ranges at one version.

    Args:
        ranges: at least one; they may overlap.
        regions: of one topic, from any number of caches; they may overlap.
        at: the version; None for the newest that is known.
        at_least: version below which an answer is of no use; None for none.

    Returns:
        The values, or that they are not known.
    """
    segments = [segment for range in merged(ranges) for segment in _segments(range, regions)]
    missing = merged(segment.range for segment in segments if not segment.regions)
    if missing or not segments:
        return NotKnown(tuple(missing))
    wanted = at or at_least
    epochs = {each.epoch for each in segments[0].regions} if wanted is None else {wanted.epoch}
    found: Version | None = None
    for epoch in epochs:
        number = _newest([segment.of(epoch) for segment in segments], None if at is None else at.number)
        if number is not None and (found is None or number > found.number):
            found = Version(epoch, number)
    if found is None or (at is not None and found != at) or (at_least is not None and found.number < at_least.number):
        bottoms = [min((each.bottom, each.epoch) for each in segment.regions) for segment in segments]
        tops = [max((each.top, each.epoch) for each in segment.regions) for segment in segments]
        (bottom, first), (top, last) = max(bottoms), min(tops)
        return NotKnown((), Version(first, bottom), Version(last, top))
    parts = [(segment.range, segment.of(found.epoch).region(found.number)) for segment in segments]
    return View(found, parts)


def _newest(segments: Sequence[_Segment[V]], limit: int | None) -> int | None:
    """Return the greatest version that all segments know; None if there is none.

    Args:
        segments: at least one.
        limit: number that it is not above; None for no limit.
    """
    tops = [max((each.top for each in segment.regions), default=None) for segment in segments]
    if any(top is None for top in tops):
        return None
    version: int | None = min(top for top in tops if top is not None)
    if limit is not None and version is not None:
        version = min(version, limit)
    while version is not None:
        # Each round ends, or goes on below a top of one segment.
        least: int | None = version
        for segment in segments:
            best = segment.best(version)
            least = None if best is None or least is None else min(least, best)
        if least == version:
            return version
        version = least
    return None


def _segments(range: KeyRange, regions: Sequence[Region[V]]) -> Iterator[_Segment[V]]:
    """Yield the parts of a range between bounds of regions, in order."""
    near = sorted((each for each in regions if each.range.overlap(range) is not None), key=lambda each: each.range.low)
    low, index = range.low, 0
    active: list[Region[V]] = []
    while range.high is None or low < range.high:
        while index < len(near) and near[index].range.low <= low:
            active.append(near[index])
            index += 1
        active = [each for each in active if each.range.high is None or low < each.range.high]
        high = range.high
        for each in active:
            high = least_end(high, each.range.high)
        if index < len(near):
            high = least_end(high, near[index].range.low)
        yield _Segment(KeyRange(low, high), tuple(active))
        if high is None:
            return
        low = high
