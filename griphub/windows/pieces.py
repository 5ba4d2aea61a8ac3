"""Pieces: progress of the elementary ranges of a topic's keys, as its ingesters have cut them.

A piece is cut where progress or a reset has a bound; each part begins with the progress of the whole. Progress is never
lowered. That of a wider range is the least of its pieces, and none while one of them has none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from griphub.windows.soft_event import Place
from griphub.windows.span import TOP, Span

__all__ = ["Piece", "Pieces", "Raised"]


class Piece(NamedTuple):
    """Elementary range of keys; it ends where the next one begins.

    Attributes:
        low: least key; empty for no bound.
        progress: version up to which all events were given; None while that is unknown.
        floor: place up to which events may be missing.
        due: version that the first progress must reach: up to there events were given or dropped before a reset.
        given: version up to which events were given before a reset in this epoch; 0 for none. If the first progress is
            equal, a place that names this version alone may be one of before.
    """

    low: str = ""
    progress: int | None = None
    floor: Place = (0, 0)
    due: int = 0
    given: int = 0

    def joins(self, other: Piece) -> bool:
        """Return whether this piece and the ``other`` differ in their place only."""
        return self[1:] == other[1:]


class Raised(NamedTuple):
    """Progress that was raised.

    Attributes:
        span: its range, part of one piece.
        before: version before; None if it was unknown.
        version: version now.
    """

    span: Span
    before: int | None
    version: int


class Pieces:
    """Pieces of all keys.

    Args:
        pieces: in the order of keys, the first without a least key.
    """

    __slots__ = ("_lows", "_pieces")

    def __init__(self, pieces: Iterable[Piece] = (Piece(),)) -> None:
        self._pieces = list(pieces)
        self._lows = [piece.low for piece in self._pieces]

    def __len__(self) -> int:
        return len(self._pieces)

    def copy(self) -> Pieces:
        """Return pieces that change without these."""
        return Pieces(self._pieces)

    def at(self, key: str) -> Piece:
        """Return the piece that contains a ``key``."""
        if len(self._lows) == 1:
            return self._pieces[0]
        return self._pieces[bisect_right(self._lows, key) - 1]

    def each(self) -> Iterator[tuple[Span, Piece]]:
        """Yield all pieces with their ranges, in the order of keys."""
        for piece, high in zip(self._pieces, [*self._lows[1:], TOP], strict=True):
            yield Span(piece.low, high), piece

    def span_at(self, key: str) -> Span:
        """Return the range of the piece that contains a ``key``."""
        index = bisect_right(self._lows, key) - 1
        return Span(self._lows[index], self._high(index))

    def _high(self, index: int) -> str:
        return self._lows[index + 1] if index + 1 < len(self._lows) else TOP

    def _overlapping(self, span: Span) -> tuple[int, int]:
        return bisect_right(self._lows, span.low) - 1, bisect_left(self._lows, span.high)

    def width(self, span: Span) -> int:
        """Return the number of pieces that a range touches.

        Args:
            span: the range.
        """
        first, last = self._overlapping(span)
        return last - first

    def progress(self, span: Span) -> int | None:
        """Return the version up to which all events of a range were given.

        Args:
            span: the range.

        Returns:
            The least progress of its pieces; None if one of them has none.
        """
        first, last = self._overlapping(span)
        least: int | None = None
        for piece in self._pieces[first:last]:
            if piece.progress is None:
                return None
            if least is None or piece.progress < least:
                least = piece.progress
        return least

    def floor(self, span: Span) -> Place:
        """Return the place up to which events of a range may be missing.

        Args:
            span: a range whose progress is known.
        """
        first, last = self._overlapping(span)
        return max([piece.floor for piece in self._pieces[first:last]])

    def ambiguous(self, span: Span, version: int) -> bool:
        """Return whether a place that names a version alone may be one of before a reset.

        Args:
            span: range of the place.
            version: the version.
        """
        first, last = self._overlapping(span)
        return version > 0 and any(piece.given == version == piece.floor[0] for piece in self._pieces[first:last])

    def raise_to(self, span: Span, version: int, stamp: int) -> list[Raised]:
        """Raise the progress of a range to a version, where it is below it.

        Args:
            span: the range.
            version: the version.
            stamp: stamp of the last event that was taken in, in microseconds: the first progress of a piece is its
                floor.

        Returns:
            The parts whose progress was raised.
        """
        raised: list[Raised] = []

        def change(piece: Piece, low: str, high: str) -> Piece | None:
            if piece.progress is None:
                if version < piece.due:
                    return None
                raised.append(Raised(Span(low, high), None, version))
                return Piece(low, version, (version, stamp), given=piece.given)
            if version <= piece.progress:
                return None
            raised.append(Raised(Span(low, high), piece.progress, version))
            return Piece(low, version, piece.floor, given=piece.given)

        self._change(span, change)
        return raised

    def reset(self, span: Span) -> None:
        """Forget the progress of a range, with all that was given before.

        Args:
            span: the range.
        """
        self._change(span, lambda piece, low, high: Piece(low))

    def forget(self, span: Span, dropped: Mapping[str, int]) -> None:
        """Forget the progress of a range in an epoch that goes on.

        The first progress must reach all that was dropped, or followers would miss it, and all that was given before,
        or a place of then would be one of now.

        Args:
            span: the range.
            dropped: greatest version of the events that were dropped, by the least key of their piece.
        """

        def change(piece: Piece, low: str, _high: str) -> Piece:
            given = max(piece.given, piece.progress or 0)
            return Piece(low, None, (0, 0), max(dropped.get(piece.low, 0), piece.due, given), given)

        self._change(span, change)

    def raise_floor(self, key: str, floor: Place) -> Span:
        """Raise the floor of one piece.

        Args:
            key: a key in it.
            floor: place up to which events may be missing.

        Returns:
            The range of the piece.
        """
        index = bisect_right(self._lows, key) - 1
        piece = self._pieces[index]
        if piece.floor < floor:
            self._pieces[index] = piece._replace(floor=floor)
        return Span(piece.low, self._high(index))

    def _change(self, span: Span, change: Callable[[Piece, str, str], Piece | None]) -> None:
        """Replace the parts of pieces in a range, and unite equal neighbours.

        Args:
            span: the range.
            change: called with a piece and the bounds of its part in the range; returns the part, or None to leave it.
        """
        first, last = self._overlapping(span)
        parts: list[Piece] = [self._pieces[first - 1]] if first else []
        for index in range(first, last):
            piece, end = self._pieces[index], self._high(index)
            low, high = max(piece.low, span.low), min(end, span.high)
            changed = change(piece, low, high)
            if changed is None:
                parts.append(piece)
                continue
            if piece.low < low:
                parts.append(piece)
            parts.append(changed)
            if high < end:
                parts.append(piece._replace(low=high))
        begin, end_index = max(0, first - 1), min(last + 1, len(self._pieces))
        parts += self._pieces[last:end_index]
        self._replace(begin, end_index, _united(parts, Piece.joins))

    def unite(self) -> None:
        """Unite neighbours of equal progress, whose floor is then the higher one: that costs resyncs, never events."""
        self._replace(0, len(self._pieces), _united(self._pieces, lambda one, two: one.progress == two.progress))

    def _replace(self, begin: int, end: int, parts: list[Piece]) -> None:
        self._pieces[begin:end] = parts
        self._lows[begin:end] = [piece.low for piece in parts]


def _united(pieces: list[Piece], join: Callable[[Piece, Piece], bool]) -> list[Piece]:
    united: list[Piece] = []
    for piece in pieces:
        if united and join(united[-1], piece):
            last = united[-1]
            floor, due, given = max(last.floor, piece.floor), max(last.due, piece.due), max(last.given, piece.given)
            united[-1] = last._replace(floor=floor, due=due, given=given)
        else:
            united.append(piece)
    return united
