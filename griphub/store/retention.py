"""Retention: the floor that the bounds of a topic demand. Sans-I/O: the engine finds the rows and deletes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from griphub.store.topic import Retention

__all__ = ["SLICE", "SLICE_TIME", "SPAN", "Excess", "excess_of"]

SLICE: Final = 500
"""Rows deleted in one transaction, so that publications do not wait for a retention."""

SLICE_TIME: Final = 0.01
"""Seconds after which a transaction that deletes ends with fewer rows."""

SPAN: Final = 5000
"""Rows looked at for one demand of a floor: a topic far beyond its bounds takes several."""


class Excess:
    """Part of a topic that is beyond its bounds.

    Args:
        events: number of events to pass, 0 or less for none.
        size: bytes of events to pass, 0 or less for none.
    """

    __slots__ = ("_events", "_size")

    def __init__(self, events: int, size: int) -> None:
        self._events = events
        self._size = size

    def __bool__(self) -> bool:
        return self._events > 0 or self._size > 0

    def passed(self, rows: Iterable[tuple[int, int]]) -> int:
        """Return the id of the last row that is beyond the bounds, or of the last row if there are too few.

        Args:
            rows: id and size in bytes of retained events, the oldest first.

        Returns:
            The id; 0 if there are no rows.
        """
        events, size, last = self._events, self._size, 0
        for id, row_size in rows:
            if events <= 0 and size <= 0:
                break
            events -= 1
            size -= row_size
            last = id
        return last


def excess_of(retention: Retention, events: int, size: int) -> Excess:
    """Return the part of a topic that is beyond the bounds of number and size.

    Args:
        retention: its bounds.
        events: number of its events above the floor.
        size: their size in bytes.
    """
    return Excess(
        0 if retention.events is None else events - retention.events,
        0 if retention.bytes is None else size - retention.bytes,
    )
