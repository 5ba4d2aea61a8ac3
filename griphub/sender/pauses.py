"""Pauses between the attempts of a request: twice as long each time, spread by chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SPREAD", "Pauses"]

SPREAD: Final = 0.2
"""Share by which a pause is shorter or longer by chance, so that callbacks of one host do not return together."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Lengths of pauses.

    Attributes:
        first: seconds of the first pause.
        longest: seconds of the longest one, before the spread.
    """

    first: float = 1.0
    longest: float = 300.0

    def after(self, failures: int, chance: float, asked: float | None = None) -> float:
        """Return the seconds until the next attempt.

        Args:
            failures: number of failed attempts, at least 1.
            chance: random factor, from 0 up to 1.
            asked: seconds that the callback asks for, which no spread shortens; None if it names none.
        """
        # The exponent is bounded: 2.0 ** 1100 is an OverflowError.
        pause = min(self.first * 2.0 ** min(failures - 1, 60), self.longest)
        pause *= 1 - SPREAD + 2 * SPREAD * chance
        return pause if asked is None else max(pause, asked)
