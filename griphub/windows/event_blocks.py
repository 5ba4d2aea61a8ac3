"""Blocks of events: events in the order of their versions, found by ranges of keys.

The range of keys is cut into blocks of a bounded number of events. A narrow range looks at one or two blocks; a cut of
ranges at any place, as ingesters choose them, moves no event.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice
from typing import Final

from griphub.windows.soft_event import EVERYTHING, Place, SoftEvent
from griphub.windows.span import ALL, TOP, Span

__all__ = ["BLOCK", "EventBlocks"]

BLOCK: Final = 512
"""Events of a block; one that has more is cut in two, unless it has a single key."""


class EventBlocks:
    """Events by key and version, one for each pair of these."""

    __slots__ = ("_blocks", "_known", "_lows", "size")

    def __init__(self) -> None:
        self._lows = [""]
        """Least key of each block; each ends where the next one begins."""
        self._blocks: list[list[SoftEvent]] = [[]]
        self._known: dict[tuple[int, str], SoftEvent] = {}
        self.size = 0
        """Bytes that the events count for."""

    def __len__(self) -> int:
        return len(self._known)

    def oldest(self) -> Iterator[SoftEvent]:
        """Yield the events in the order in which they were added; none may be added or removed meanwhile."""
        return iter(self._known.values())

    def get(self, version: int, key: str) -> SoftEvent | None:
        """Return the event of a key in a version.

        Args:
            version: the version.
            key: the key.

        Returns:
            The event; None if there is none.
        """
        return self._known.get((version, key))

    def add(self, event: SoftEvent) -> None:
        """Add an event whose key has none in its version.

        Args:
            event: with a stamp.
        """
        index = bisect_right(self._lows, event.key) - 1
        block = self._blocks[index]
        if not block or block[-1] < event:
            block.append(event)
        else:
            insort(block, event)
        self._known[event.version, event.key] = event
        self.size += event.size
        if len(block) > BLOCK:
            self._split(index)

    def _split(self, index: int) -> None:
        low = self._lows[index]
        high = self._high(index)
        if high == low + "\0":
            return
        block = self._blocks[index]
        keys = sorted([event.key for event in block])
        middle = keys[len(keys) // 2]
        lows = [low] if low == middle else [low, middle]
        # A key with most of the events gets a block of its own, which no range can cut.
        if keys.count(middle) > len(keys) // 2 and middle + "\0" < high:
            lows.append(middle + "\0")
        parts = [
            [event for event in block if part <= event.key < end]
            for part, end in zip(lows, [*lows[1:], high], strict=True)
        ]
        self._lows[index : index + 1] = lows
        self._blocks[index : index + 1] = parts

    def _high(self, index: int) -> str:
        return self._lows[index + 1] if index + 1 < len(self._lows) else TOP

    def _overlapping(self, span: Span) -> range:
        return range(bisect_right(self._lows, span.low) - 1, bisect_left(self._lows, span.high))

    def width(self, span: Span) -> int:
        """Return the number of blocks that a range touches.

        Args:
            span: the range.
        """
        return len(self._overlapping(span))

    def _inside(self, index: int, span: Span) -> bool:
        return span.low <= self._lows[index] and self._high(index) <= span.high

    def _events(self, index: int, span: Span, after: Place, upto: Place) -> list[SoftEvent]:
        block = self._blocks[index]
        first = bisect_right(block, (*after, TOP))
        last = bisect_right(block, (*upto, TOP))
        if self._inside(index, span):
            return block[first:last]
        low, high = span
        return [event for event in block[first:last] if low <= event.key < high]

    def _merged(self, span: Span, after: Place, upto: Place) -> Iterator[SoftEvent]:
        indices = self._overlapping(span)
        if len(indices) == 1:
            return iter(self._events(indices[0], span, after, upto))
        parts = [self._events(index, span, after, upto) for index in indices]
        return heapq.merge(*[part for part in parts if part])

    def read(self, span: Span, after: Place, upto: Place, limit: int) -> list[SoftEvent]:
        """Return events in their order.

        Args:
            span: range of their keys.
            after: place that they lie behind.
            upto: place up to which they lie.
            limit: greatest number of events.
        """
        return list(islice(self._merged(span, after, upto), limit))

    def newest(self, span: Span) -> int:
        """Return the greatest version of the events in a range.

        Args:
            span: the range.

        Returns:
            The version; 0 for none.
        """
        newest = 0
        for index in self._overlapping(span):
            block = self._blocks[index]
            if not block or block[-1].version <= newest:
                continue
            if self._inside(index, span):
                newest = block[-1].version
                continue
            for event in reversed(block):
                if event.version <= newest:
                    break
                if span.low <= event.key < span.high:
                    newest = event.version
                    break
        return newest

    def drop(self, span: Span, upto: Place) -> None:
        """Remove the events of a range up to a place.

        Args:
            span: the range.
            upto: the place.
        """
        if span == ALL and upto == EVERYTHING:
            self._lows, self._blocks, self._known, self.size = [""], [[]], {}, 0
        else:
            self._taken(span, upto)

    def take(self, span: Span) -> list[list[SoftEvent]]:
        """Remove all events of a range.

        Args:
            span: the range.

        Returns:
            The events of each block that had some, in their order.
        """
        return self._taken(span, EVERYTHING)

    def _taken(self, span: Span, upto: Place) -> list[list[SoftEvent]]:
        """Remove the events of a range up to a place; return those of each block, in their order."""
        taken, emptied = [], []
        for index in self._overlapping(span):
            dropped = self._events(index, span, (0, 0), upto)
            if not dropped:
                continue
            taken.append(dropped)
            block = self._blocks[index]
            if self._inside(index, span):
                del block[: len(dropped)]
            else:
                removed = {event.place for event in dropped}
                block[:] = [event for event in block if event.place not in removed]
            for event in dropped:
                del self._known[event.version, event.key]
                self.size -= event.size
            if not block and index:
                emptied.append(index)
        if emptied:
            self._unite(emptied)
        return taken

    def _unite(self, emptied: list[int]) -> None:
        """Let each empty block be a part of the one before it."""
        if len(emptied) == 1:
            del self._lows[emptied[0]], self._blocks[emptied[0]]
            return
        gone = set(emptied)
        self._lows = [low for index, low in enumerate(self._lows) if index not in gone]
        self._blocks = [block for index, block in enumerate(self._blocks) if index not in gone]
