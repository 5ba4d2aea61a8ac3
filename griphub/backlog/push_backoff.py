"""Backoff of a push subscription: pauses between its requests while they fail."""

from __future__ import annotations

from typing import Final

__all__ = ["LONGEST", "PushBackoff"]

STEP: Final = 1 / 8
"""Part of the way that the share of failures goes with each answer."""

WELL: Final = 1 / 64
"""Share of failures below which nothing waits."""

SHORTEST: Final = 0.1
"""Seconds from which pauses are counted."""

LONGEST: Final = 60.0
"""Greatest pause, in seconds."""

OFFSET: Final = 0.6
SLOPE: Final = 8.6
"""Exponent of two: its value without failures, and how it grows with their share."""


class PushBackoff:
    """Share of failures among the latest answers, and the pause that it makes.

    Attributes:
        share: from 0 up to 1.
        until: time before which no request starts, in seconds.
    """

    __slots__ = ("share", "until")

    def __init__(self) -> None:
        self.share = 0.0
        self.until = float("-inf")

    @property
    def pause(self) -> float:
        """Seconds between two requests; 0 for no pause."""
        if self.share < WELL:
            return 0.0
        pause: float = SHORTEST * 2.0 ** (OFFSET + SLOPE * self.share)
        return min(LONGEST, pause)

    def answered(self, now: float, *, acked: bool, asked: float = 0.0) -> None:
        """Take an answer: acknowledged, or refused or none in time.

        Args:
            now: time, in seconds.
            acked: whether it was an acknowledgement.
            asked: seconds that the receiver asks for before the next request.
        """
        self.share += ((0.0 if acked else 1.0) - self.share) * STEP
        if not acked:
            self.until = max(self.until, now + min(max(self.pause, asked), LONGEST))

    def started(self, now: float) -> None:
        """Note the beginning of a request; ``now`` in seconds. The next one begins a pause later."""
        if pause := self.pause:
            self.until = max(self.until, now + pause)

    def clear(self) -> None:
        """Forget all answers: the endpoint is another one."""
        self.share, self.until = 0.0, float("-inf")
