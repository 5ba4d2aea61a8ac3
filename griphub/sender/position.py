"""Position of a subscription: up to where its events were delivered, and how much of that is not written yet.

It is written lazily: after a crash, the events above the written position are delivered again.
"""

from __future__ import annotations

__all__ = ["Position"]


class Position:
    """Id up to which every event of a topic was delivered.

    Args:
        id: the one that is written.
        events_max: delivered events after which it is to be written.
        save_after: seconds after which a changed one is to be written.

    Attributes:
        id: id up to which every event was delivered.
        unsaved: number of delivered events that are repeated after a crash.
    """

    __slots__ = ("_changed", "_events_max", "_save_after", "id", "unsaved")

    def __init__(self, id: int, events_max: int, save_after: float) -> None:
        self.id = id
        self.unsaved = 0
        self._events_max = events_max
        self._save_after = save_after
        self._changed: float | None = None
        """Monotonic time of the first change that is not written, in seconds; None if there is none."""

    def move(self, id: int, events: int, now: float) -> None:
        """Move forward; an id that is not above the position changes nothing.

        Args:
            id: up to which every event was delivered.
            events: number of events delivered.
            now: monotonic time in seconds.
        """
        if id <= self.id:
            return
        self.id = id
        self.unsaved += events
        if self._changed is None:
            self._changed = now

    @property
    def changed(self) -> bool:
        """True if a change is not written."""
        return self._changed is not None

    def save_due(self, now: float) -> bool:
        """Return whether the position is to be written.

        Args:
            now: monotonic time in seconds.
        """
        if self._changed is None:
            return False
        return self.unsaved >= self._events_max or now - self._changed >= self._save_after

    def saving(self) -> int:
        """Return the id to be written; it counts as written unless ``not_saved`` follows."""
        self.unsaved = 0
        self._changed = None
        return self.id

    def not_saved(self, now: float) -> None:
        """Note that the position was not written: it is due again after the usual time.

        Args:
            now: monotonic time in seconds.
        """
        self._changed = now
