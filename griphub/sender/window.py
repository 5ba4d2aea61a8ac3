"""Window: the next events of one subscription in memory, bounded by number, by bytes, and by a budget of all windows.

An event that does not fit is not kept: it is read from the store when its turn arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["BUDGET", "EVENTS_MAX", "WINDOW_BYTES", "Deliverable", "Window", "WindowBudget"]

BUDGET: Final = 64_000_000
"""Bytes of events in all windows. An event in several of them counts several times."""

EVENTS_MAX: Final = 100
"""Greatest number of events in a window."""

WINDOW_BYTES: Final = 1_000_000
"""Bytes of events in a window; one larger event alone is possible."""


class Deliverable(Protocol):
    """Stored event, as far as its delivery depends on it."""

    @property
    def id(self) -> int:
        """Strictly increasing over the store."""

    @property
    def prev_id(self) -> int:
        """Id of the event before it in the topic; 0 for the first."""

    @property
    def size(self) -> int:
        """Bytes that it takes."""


E = TypeVar("E", bound=Deliverable)


class WindowBudget:
    """Bytes that all windows have together.

    Args:
        bytes_max: greatest number of bytes.

    Attributes:
        used: bytes of the events in all windows.
    """

    __slots__ = ("_bytes_max", "used")

    def __init__(self, bytes_max: int = BUDGET) -> None:
        self._bytes_max = bytes_max
        self.used = 0

    def take(self, size: int, *, beyond: bool = False) -> bool:
        """Count an event, if there is space.

        Args:
            size: bytes of the event.
            beyond: whether it is counted without space too: for the event of a request that has its place already.

        Returns:
            Whether it was counted.
        """
        if self.used + size > self._bytes_max and not beyond:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        """Count an event no more.

        Args:
            size: bytes of the event.
        """
        self.used -= size


class Window(Generic[E]):
    """Events that follow each other, the next one first.

    Args:
        budget: of all windows.
        events_max: greatest number of events.
        bytes_max: greatest number of bytes.
    """

    __slots__ = ("_budget", "_bytes_max", "_events", "_events_max", "_size")

    def __init__(self, budget: WindowBudget, events_max: int = EVENTS_MAX, bytes_max: int = WINDOW_BYTES) -> None:
        self._budget = budget
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._events: deque[E] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._events)

    @property
    def first(self) -> E:
        """The next event; there must be one."""
        return self._events[0]

    def add(self, event: E, *, beyond: bool = False) -> bool:
        """Add an event behind the others, if it fits.

        Args:
            event: the one that follows the last.
            beyond: whether it is added to an empty window in any case.

        Returns:
            Whether it was added.
        """
        beyond = beyond and not self._events
        full = len(self._events) >= self._events_max or self._size + event.size > self._bytes_max
        if (full and not beyond) or not self._budget.take(event.size, beyond=beyond):
            return False
        self._events.append(event)
        self._size += event.size
        return True

    def fill(self, events: Sequence[E]) -> int:
        """Add the first event of a page in any case, the others as far as they fit.

        Args:
            events: in order; the window is empty.

        Returns:
            Number of events that were added.
        """
        for number, event in enumerate(events):
            if not self.add(event, beyond=True):
                return number
        return len(events)

    def drop_until(self, id: int) -> None:
        """Remove the events that were delivered.

        Args:
            id: of the last of them.
        """
        while self._events and self._events[0].id <= id:
            event = self._events.popleft()
            self._size -= event.size
            self._budget.give(event.size)

    def clear(self) -> None:
        """Remove all events."""
        self._events.clear()
        self._budget.give(self._size)
        self._size = 0
