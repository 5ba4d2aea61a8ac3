"""Repetition of requests: which answers deserve one, and after which pause. Sans-I/O; times are handed in."""

from __future__ import annotations

import email.utils
import math
from typing import Final

__all__ = ["CONTENT_FAULTS", "PAUSE_MAX", "REPEATED", "UNCERTAIN", "Backoff", "retry_after"]

REPEATED: Final = frozenset({429, 502, 503, 504})
"""Status codes after which the request is sent again, under its ``Idempotency-Key``."""

UNCERTAIN: Final = frozenset({500, 502, 504})
"""Status codes after which the request may have been carried out nevertheless."""

CONTENT_FAULTS: Final = frozenset({400, 413, 415, 422})
"""Status codes that are about one event of a batch: the others are published without it."""

PAUSE_MIN: Final = 0.1
"""Seconds of the first pause."""

PAUSE_MAX: Final = 5.0
"""Seconds of the longest pause that the client chooses itself."""

HEADER_MAX: Final = 300.0
"""Seconds of the longest pause that a server may ask for."""


class Backoff:
    """Pauses between attempts: twice as long each time, and up to half of it shorter by chance."""

    def __init__(self) -> None:
        self._next = PAUSE_MIN

    def reset(self) -> None:
        """Begin with the shortest pause again, after a success."""
        self._next = PAUSE_MIN

    def pause(self, chance: float, asked: float | None = None) -> float:
        """Return the seconds until the next attempt.

        Args:
            chance: random number, from 0 up to 1.
            asked: seconds that the server asks for; None if it names none.
        """
        own = self._next * (0.5 + chance / 2)
        self._next = min(2 * self._next, PAUSE_MAX)
        return own if asked is None else max(own, asked)


def retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for (RFC 9110 section 10.2.3).

    Args:
        value: of the header: seconds, or a date; None if there is none.
        now: seconds since 1970.

    Returns:
        Seconds from now, from 0 to 300; None if the header has no meaning.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), HEADER_MAX)
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, moment - now), HEADER_MAX) if math.isfinite(moment) else None
