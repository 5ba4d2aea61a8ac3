"""Window of a push subscription: requests under way, by slow start."""

from __future__ import annotations

from typing import Final

__all__ = ["EDGE", "FIRST", "PushWindow"]

FIRST: Final = 3.0
"""Window at the beginning."""

EDGE: Final = 3000.0
"""Window up to which it grows with each acknowledgement by one, and above more slowly."""

SLOW_STEP: Final = 100.0
"""Growth above the edge while as many are acknowledged as the window has."""

LATENCY_MAX: Final = 1.0
"""Mean seconds to an answer above which the window goes back to the edge."""

ACKED_MIN: Final = 0.99
"""Share of acknowledgements below which it does."""

ANSWERS: Final = 1000
PERIOD: Final = 10.0
"""Number of answers, and seconds, after which both are looked at."""


class PushWindow:
    """Greatest number of requests under way.

    Args:
        most: greatest window.
    """

    __slots__ = ("_acked", "_answers", "_latency", "_most", "_since", "size")

    def __init__(self, most: int) -> None:
        self._most = float(most)
        self.size = min(FIRST, self._most)
        """Requests that may be under way; a fraction counts as none."""
        self._answers = 0
        self._acked = 0
        self._latency = 0.0
        """Sums of the answers since the last look, in seconds."""
        self._since = float("-inf")

    def answered(self, now: float, latency: float, *, acked: bool, full: bool) -> None:
        """Take an answer.

        Args:
            now: time, in seconds.
            latency: seconds from its request on.
            acked: whether it was an acknowledgement.
            full: whether only the window kept further requests from starting.
        """
        self._count(now, latency, acked=acked)
        if not acked:
            self.size = max(1.0, self.size / 2)
        elif full:
            step = 1.0 if self.size < EDGE else SLOW_STEP / self.size
            self.size = min(self._most, self.size + step)

    def _count(self, now: float, latency: float, *, acked: bool) -> None:
        if not self._answers:
            self._since = now
        self._answers += 1
        self._acked += acked
        self._latency += latency
        if self._answers < ANSWERS and now - self._since < PERIOD:
            return
        if self._latency > LATENCY_MAX * self._answers or self._acked < ACKED_MIN * self._answers:
            self.size = min(self.size, EDGE)
        self._answers = self._acked = 0
        self._latency = 0.0

    def clear(self) -> None:
        """Begin anew: the endpoint is another one."""
        self.size = min(FIRST, self._most)
        self._answers = self._acked = 0
        self._latency = 0.0
