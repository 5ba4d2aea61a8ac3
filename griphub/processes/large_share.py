"""Share of the writer's time that large publications have while small ones arrive. Sans-I/O.

The commit of 10 MB takes a tenth of a second, for which every small publication waits that arrives meanwhile. So behind
a large one, the next waits several times as long as that one took, unless no small ones arrive.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LARGE_MAX", "PAUSE", "PAUSE_MAX", "QUIET", "LargeShare"]

LARGE_MAX: Final = 1
"""Large publications that the process has."""

PAUSE: Final = 9.0
"""Pause behind a large publication, in times that it took: these have a tenth of the writer's time."""

PAUSE_MAX: Final = 2.0
"""Seconds of the longest pause: a disk that has hung must not hold publications up for nine times as long."""

QUIET: Final = 1.0
"""Seconds without a small publication after which large ones need no pause."""


class LargeShare:
    """Turns of large publications, one after the other."""

    __slots__ = ("_begun", "_free_from", "_running", "_small")

    def __init__(self) -> None:
        self._running = 0
        self._begun = 0.0
        self._free_from = 0.0
        """Time from which on the next may begin, in seconds."""
        self._small = float("-inf")
        """Time of the last small publication, in seconds."""

    def small(self, now: float) -> None:
        """Note a small publication.

        Args:
            now: monotonic time in seconds.
        """
        self._small = now

    def ready(self, now: float) -> bool:
        """Return whether the process may have a large publication.

        Args:
            now: monotonic time in seconds.
        """
        return self._running < LARGE_MAX and (now >= self._free_from or now - self._small >= QUIET)

    def begin(self) -> None:
        """Note that a large publication is on its way to the process."""
        self._running += 1

    def sent(self, now: float) -> None:
        """Note that the process has all of it.

        Args:
            now: monotonic time in seconds.
        """
        self._begun = now

    def end(self, now: float) -> float:
        """Note its outcome.

        Args:
            now: monotonic time in seconds.

        Returns:
            Seconds until the next may begin.
        """
        self._running -= 1
        pause = min(PAUSE * (now - self._begun), PAUSE_MAX)
        self._free_from = now + pause
        return pause
