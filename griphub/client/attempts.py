"""Attempts at requests of one kind: one at a time, with pauses after failures, which are reported after a time."""

from __future__ import annotations

import enum
from collections.abc import Callable

from griphub.client.retry import Backoff

__all__ = ["Attempts", "Phase"]


class Phase(enum.Enum):
    """Phase of the requests of one kind."""

    READY = enum.auto()
    UNDER_WAY = enum.auto()
    PAUSED = enum.auto()
    BLOCKED = enum.auto()
    """The next request has to wait for another event."""


class Attempts:
    """Requests of one kind, one after the other, with a growing pause after each failure.

    Args:
        chance: makes random numbers from 0 up to 1, for pauses.
        failure_after: seconds of failed attempts after which they are reported.

    Attributes:
        phase: phase of the request.
        begun: time at which the last one was begun, in seconds.
    """

    def __init__(self, chance: Callable[[], float], failure_after: float) -> None:
        self._chance = chance
        self._failure_after = failure_after
        self._backoff = Backoff()
        self._failing_since: float | None = None
        self._reported = False
        self._retry_at = 0.0
        self.phase = Phase.READY
        self.begun = 0.0

    @property
    def deadline(self) -> float | None:
        """Time of the next attempt or report, in seconds; None for none."""
        times = [self._retry_at] if self.phase is Phase.PAUSED else []
        if self._failing_since is not None and not self._reported:
            times.append(self._failing_since + self._failure_after)
        return min(times, default=None)

    def ready(self, now: float) -> bool:
        """Return whether a request may begin at the time ``now``, in seconds."""
        return self.phase is Phase.READY or (self.phase is Phase.PAUSED and now >= self._retry_at)

    def begin(self, now: float) -> None:
        """Note that a request begins at the time ``now``, in seconds."""
        self.phase = Phase.UNDER_WAY
        self.begun = now

    def free(self, *, blocked: bool = False) -> None:
        """Note the end of a request.

        Args:
            blocked: whether the next one has to wait for another event.
        """
        self.phase = Phase.BLOCKED if blocked else Phase.READY

    def pause(self, now: float, asked: float | None = None) -> None:
        """Begin the pause before the next request.

        Args:
            now: monotonic time in seconds.
            asked: seconds that the publisher asks to wait; None if it names none.
        """
        self.phase = Phase.PAUSED
        self._retry_at = now + self._backoff.pause(self._chance(), asked)

    def fail(self, now: float, asked: float | None) -> None:
        """Note a failure.

        Args:
            now: monotonic time in seconds.
            asked: seconds that the publisher asks to wait; None if it names none.
        """
        if self._failing_since is None:
            self._failing_since = self.begun
        self.pause(now, asked)

    def answered(self) -> None:
        """Note an answer: the publisher is there."""
        self._failing_since = None
        self._reported = False

    def progressed(self) -> None:
        """Begin with the shortest pause again."""
        self._backoff.reset()

    def overdue(self, now: float) -> bool:
        """Return whether attempts have failed for long at the time ``now``, in seconds."""
        return self._failing_since is not None and now >= self._failing_since + self._failure_after

    def report(self, now: float) -> bool:
        """Return whether the failure is to be reported at the time ``now``, in seconds: once."""
        if self._reported or not self.overdue(now):
            return False
        self._reported = True
        return True
