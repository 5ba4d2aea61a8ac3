"""Countdown to the next poll of a subscriber: adapted to the pace of the events. Sans-I/O; times are handed in.

It lasts three times the mean gap between events, so that a poll is rare while pushes arrive, and a topic that has
become silent is asked soon. Each poll without events doubles it, since silence is then the topic's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["COUNTDOWN_MAX", "COUNTDOWN_MIN", "Countdown"]

COUNTDOWN_MIN: Final = 1.0
"""Seconds of the shortest countdown: a busy topic is not polled more often."""

COUNTDOWN_MAX: Final = 300.0
"""Seconds of the longest countdown: a loss in a silent topic is found after so long."""

GAPS: Final = 3.0
"""Length in mean gaps: of gaps by chance (exponential), one in twenty is longer."""

WEIGHT: Final = 0.2
"""Share of the newest gap in the mean."""

JITTER: Final = 0.1
"""Share by which the length is shorter or longer by chance, so that subscribers do not poll together."""


class Countdown:
    """Time of the next poll.

    Args:
        chance: makes random numbers from 0 up to 1.
        shortest: seconds of the shortest countdown, before chance.
        longest: seconds of the longest countdown, before chance.
        weight: share of the newest gap in the mean, above 0 and at most 1.

    Raises:
        ValueError: the bounds or the weight are none.
    """

    __slots__ = ("_chance", "_deadline", "_length", "_longest", "_mean", "_newest", "_shortest", "_weight")

    def __init__(
        self,
        chance: Callable[[], float],
        shortest: float = COUNTDOWN_MIN,
        longest: float = COUNTDOWN_MAX,
        weight: float = WEIGHT,
    ) -> None:
        if not 0 < shortest <= longest < float("inf"):
            raise ValueError(f"countdown from {shortest} to {longest} s: expected 0 < shortest <= longest")
        if not 0 < weight <= 1:
            raise ValueError(f"weight {weight}: expected a number above 0, and at most 1")
        self._chance = chance
        self._shortest = shortest
        self._longest = longest
        self._weight = weight
        self._mean: float | None = None
        self._newest: float | None = None
        """Time of the newest event, in seconds."""
        self._length = shortest
        self._deadline = float("-inf")

    @property
    def deadline(self) -> float:
        """Monotonic time of the next poll in seconds; before the first event or poll it lies in the past."""
        return self._deadline

    @property
    def length(self) -> float:
        """Seconds of the countdown before chance."""
        return self._length

    def event(self, now: float, number: int = 1) -> None:
        """Begin again with the length for the mean gap, since events arrived.

        Args:
            now: monotonic time in seconds.
            number: events that arrived together: they divide the gap before them. At least 1.
        """
        if self._newest is not None:
            # A night of silence counts as the longest gap that matters, or the mean would need the next day to fall.
            gap = min(max(0.0, now - self._newest), self._longest / GAPS) / number
            if self._mean is None:
                self._mean = gap
            else:
                self._mean += (gap - self._mean) * (1 - (1 - self._weight) ** number)
        self._newest = now
        self.found(now)

    def found(self, now: float) -> None:
        """Begin again with the length for the mean gap, since a poll found events.

        Args:
            now: monotonic time in seconds.
        """
        self._begin(now, GAPS * self._mean if self._mean is not None else self._shortest)

    def empty(self, now: float) -> None:
        """Begin again with twice the length, since a poll found no events.

        Args:
            now: monotonic time in seconds.
        """
        self._begin(now, 2 * self._length)

    def _begin(self, now: float, length: float) -> None:
        self._length = min(max(length, self._shortest), self._longest)
        self._deadline = now + self._length * (1 - JITTER + 2 * JITTER * self._chance())
