"""Followed ranges: how far the events of each were released to its followers.

A range that covers several pieces is released up to the least progress of them: a version that touches several pieces
becomes visible with the last of them, as a whole, and behind all lower versions. So *atomic* and *ordered* hold for
each range, though its pieces advance by themselves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from griphub.topics.range_index import RangeIndex
from griphub.topics.ranges import key_range
from griphub.windows.span import Span

__all__ = ["Due", "FollowedRange", "FollowedRanges"]

SPANS_MAX: Final = 4
"""Number of raised ranges that the waiting ones are compared with, one by one."""


class FollowedRange:
    """Range with followers.

    Args:
        span: the range.
        released: version up to which its events were given to the followers.

    Attributes:
        span: the range.
        released: version up to which its events were given to the followers.
        behind: whether it has events above that.
    """

    __slots__ = ("behind", "released", "span")

    def __init__(self, span: Span, released: int) -> None:
        self.span: Final = span
        self.released = released
        self.behind = False

    def mark(self, *, behind: bool) -> None:
        """Note whether there are events above the released version.

        Args:
            behind: the answer.
        """
        self.behind = behind

    def advance(self, version: int) -> None:
        """Note the ``version`` up to which events were given."""
        self.released = version


class Due(NamedTuple):
    """Turn of a range.

    Attributes:
        range: the range.
        beat: whether its followers are to get progress even without events.
    """

    range: FollowedRange
    beat: bool


class FollowedRanges:
    """Distinct ranges with followers; those that wait for events to be released are known by themselves."""

    __slots__ = ("_behind", "_index", "_queue", "_spans")

    def __init__(self) -> None:
        self._spans: dict[Span, FollowedRange] = {}
        self._index: RangeIndex[FollowedRange] = RangeIndex()
        self._behind: dict[FollowedRange, None] = {}
        self._queue: OrderedDict[FollowedRange, bool] = OrderedDict()

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[FollowedRange]:
        return iter(self._spans.values())

    def get(self, span: Span) -> FollowedRange | None:
        """Return the followed range with a ``span``; None if it is not followed."""
        return self._spans.get(span)

    def add(self, span: Span, released: int, *, behind: bool) -> FollowedRange:
        """Follow a range.

        Args:
            span: range that is not followed.
            released: version up to which its first follower has the events.
            behind: whether there are events above that.

        Returns:
            The range.
        """
        found = self._spans[span] = FollowedRange(span, released)
        self._index.add(key_range(*span.bounds), found)
        self._note(found, behind=behind)
        return found

    def remove(self, span: Span) -> bool:
        """Follow a range no longer.

        Args:
            span: the range.

        Returns:
            Whether it was followed.
        """
        found = self._spans.pop(span, None)
        if found is None:
            return False
        self._index.remove(key_range(*span.bounds))
        self._behind.pop(found, None)
        self._queue.pop(found, None)
        return True

    def added(self, key: str) -> int:
        """Note a new event: the ranges that contain it wait for its release.

        Args:
            key: of the event.

        Returns:
            The number of these ranges.
        """
        if not self._spans:
            return 0
        found = self._index.matching(key)
        for each in found:
            if not each.behind:
                self._note(each, behind=True)
        return len(found)

    def _note(self, found: FollowedRange, *, behind: bool) -> None:
        found.mark(behind=behind)
        if behind:
            self._behind[found] = None
        else:
            self._behind.pop(found, None)

    def raised(self, spans: Sequence[Span]) -> None:
        """Note raised progress: ranges there that wait for it get a turn.

        Args:
            spans: ranges whose progress was raised.
        """
        # Of very many, each is likely to be met, and a turn without effect costs less than the comparisons.
        many = len(spans) > SPANS_MAX
        for each in self._behind:
            if each not in self._queue and (many or any(each.span.overlaps(span) for span in spans)):
                self.due(each)

    def due(self, found: FollowedRange, *, beat: bool = False) -> None:
        """Give a range a turn.

        Args:
            found: a followed range.
            beat: whether its followers are to get progress even without events.
        """
        self._queue[found] = beat or self._queue.get(found, False)

    @property
    def waiting(self) -> bool:
        """True if the turn of a range is due."""
        return bool(self._queue)

    def next(self) -> Due | None:
        """Return the range whose turn it is, which is not due any more; None for none."""
        if not self._queue:
            return None
        found, beat = self._queue.popitem(last=False)
        return Due(found, beat)

    def released(self, found: FollowedRange, version: int, *, behind: bool) -> None:
        """Note that the followers of a range have its events up to a version.

        Args:
            found: the range.
            version: the version.
            behind: whether there are events above it.
        """
        found.advance(version)
        self._note(found, behind=behind)

    def overlapping(self, spans: Sequence[Span]) -> list[FollowedRange]:
        """Return the followed ranges that have keys in common with some ranges.

        Args:
            spans: the ranges, in order, of which none overlaps another.
        """
        if len(spans) == 1:
            return [each for each in self._spans.values() if each.span.overlaps(spans[0])]
        lows = [span.low for span in spans]
        found = []
        for each in self._spans.values():
            # The last one that begins before its end is the one that reaches farthest.
            place = bisect_left(lows, each.span.high)
            if place and spans[place - 1].overlaps(each.span):
                found.append(each)
        return found
