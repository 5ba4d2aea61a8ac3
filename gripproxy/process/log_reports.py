"""Log reports: the warnings and errors of a process, counted by event, for metrics and the live view."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

__all__ = ["EVENTS_MAX", "FRESH_MAX", "LogReport", "LogReports"]

EVENTS_MAX: Final = 200
"""Greatest number of events that are counted one by one; further ones are one sum. The code has some hundred."""

FRESH_MAX: Final = 20
"""Greatest number of reports that are kept until they are taken; older ones are dropped, and stay counted."""

TEXT_MAX: Final = 300
"""Characters of a report."""

OTHERS: Final = "(others)"


class LogReport(NamedTuple):
    """A warning or an error.

    Attributes:
        level: ``error`` or ``warning``.
        event: name of the event.
        text: the line behind the process.
    """

    level: str
    event: str
    text: str


class LogReports:
    """Warnings and errors of a process."""

    __slots__ = ("_fresh", "counts")

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}
        """Numbers since the start, by level and event."""
        self._fresh: deque[LogReport] = deque(maxlen=FRESH_MAX)

    def note(self, level: str, event: str, text: str) -> None:
        """Count a report, and keep it until it is taken.

        Args:
            level: ``error`` or ``warning``.
            event: name of the event.
            text: the line behind the process.
        """
        key = (level, event)
        if key not in self.counts and len(self.counts) >= EVENTS_MAX:
            key = (level, OTHERS)
        self.counts[key] = self.counts.get(key, 0) + 1
        self._fresh.append(LogReport(level, event, text[:TEXT_MAX]))

    def take(self) -> list[LogReport]:
        """Return the reports since the last call."""
        fresh = list(self._fresh)
        self._fresh.clear()
        return fresh
