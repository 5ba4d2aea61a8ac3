"""Pending events: those that wait for the application, and the place up to which it has processed them."""

from __future__ import annotations

from collections import deque

from griphub.client.received import ReceivedEvent

__all__ = ["PendingEvents"]


class PendingEvents:
    """Queue of events. It is full from its bounds on, until half of it was taken; the caller refuses events then.

    Args:
        events_max: events from which on it is full.
        bytes_max: bytes from which on it is full.
        cursor: place up to which events were processed.

    Attributes:
        full: whether it has reached a bound, and not half of it since.

    Raises:
        ValueError: a bound is less than 1.
    """

    def __init__(self, events_max: int, bytes_max: int, cursor: str) -> None:
        if min(events_max, bytes_max) < 1:
            raise ValueError(f"events_max={events_max}, bytes_max={bytes_max}: expected at least 1")
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._queue: deque[tuple[ReceivedEvent, int]] = deque()
        self._bytes = 0
        self._taken: str | None = None
        """Cursor of the event that the application is processing."""
        self._processed = cursor
        self.full = False

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, event: ReceivedEvent, size: int) -> None:
        """Add an event, also beyond the bounds.

        Args:
            event: the next one.
            size: its bytes.
        """
        self._queue.append((event, size))
        self._bytes += size
        if len(self._queue) >= self._events_max or self._bytes >= self._bytes_max:
            self.full = True

    def take(self) -> ReceivedEvent:
        """Remove the first event; from now on the application is processing it.

        Returns:
            The event.

        Raises:
            IndexError: there is none.
        """
        event, size = self._queue.popleft()
        self._bytes -= size
        self._taken = event.cursor
        if 2 * len(self._queue) <= self._events_max and 2 * self._bytes <= self._bytes_max:
            self.full = False
        return event

    def processed(self) -> bool:
        """Note that the event that was taken last is processed.

        Returns:
            Whether there was one.
        """
        if self._taken is None:
            return False
        self._processed, self._taken = self._taken, None
        return True

    def cursor(self, reached: str) -> str:
        """Return the place up to which all events were processed.

        Args:
            reached: place up to which they were added, or reported as lost.
        """
        return self._processed if self._queue or self._taken is not None else reached
