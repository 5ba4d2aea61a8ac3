"""Sets of ids as intervals: the messages of a subscription that are acknowledged.

A message covers all ids from behind the message before it in its topic up to its own. So neighbours make one interval,
however many ids of other topics lie between them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

__all__ = ["Intervals"]

_MORE: Final = 0x80


class Intervals:
    """Set of ids, as disjoint intervals; each is exclusive of its start and inclusive of its end.

    Args:
        position: all ids up to this one are in the set.
    """

    __slots__ = ("_ends", "_starts", "position")

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, id: int) -> bool:
        if id <= self.position:
            return True
        place = bisect_left(self._ends, id)
        return place < len(self._ends) and self._starts[place] < id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Intervals):
            return NotImplemented
        return (self.position, self._starts, self._ends) == (other.position, other._starts, other._ends)

    __hash__ = None  # type: ignore[assignment]

    def add(self, after: int, last: int) -> None:
        """Add the ids of an interval.

        Args:
            after: id before the first one.
            last: the last one.
        """
        if last <= self.position or after >= last:
            return
        if after <= self.position:
            self.position = last
            self._absorb()
            return
        starts, ends = self._starts, self._ends
        # All intervals that touch it become one with it.
        low, high = bisect_left(ends, after), bisect_right(starts, last)
        if low < high:
            after, last = min(after, starts[low]), max(last, ends[high - 1])
        starts[low:high] = [after]
        ends[low:high] = [last]

    def _absorb(self) -> None:
        """Move the position over the intervals that it has reached."""
        number = 0
        for after, last in self:
            if after > self.position:
                break
            self.position = max(self.position, last)
            number += 1
        del self._starts[:number]
        del self._ends[:number]

    def copy(self) -> Intervals:
        """Return an equal set."""
        found = Intervals(self.position)
        found._starts, found._ends = [*self._starts], [*self._ends]
        return found

    def encode(self) -> bytes:
        """Return the intervals above the position in a short form: distances, seven bits a byte."""
        out = bytearray()
        before = self.position
        for after, last in self:
            for distance in (after - before, last - after):
                number = distance
                while number >= _MORE:
                    out.append(number & 0x7F | _MORE)
                    number >>= 7
                out.append(number)
            before = last
        return bytes(out)

    @classmethod
    def decode(cls, position: int, data: bytes) -> Intervals:
        """Return the set that ``encode`` was called of.

        Args:
            position: all ids up to this one are in the set.
            data: the intervals above.

        Raises:
            ValueError: they are none.
        """
        found = cls(position)
        before, distances = position, list[int]()
        number = shift = 0
        for byte in data:
            number |= (byte & 0x7F) << shift
            shift += 7
            if not byte & _MORE:
                distances.append(number)
                number = shift = 0
            elif shift > 63:
                raise ValueError("the intervals have a number of more than 64 bits")
        if shift or len(distances) % 2:
            raise ValueError("the intervals are cut off")
        for gap, length in zip(distances[::2], distances[1::2], strict=True):
            if not (gap and length):
                raise ValueError("the intervals have an empty one")
            found._starts.append(before + gap)
            found._ends.append(before + gap + length)
            before += gap + length
        return found
