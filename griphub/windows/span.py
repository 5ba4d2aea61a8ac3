"""Spans: half-open ranges of keys, with bounds that can be compared. Keys are ordered by their bytes in UTF-8.

The order of Python's strings, by code points, is the order of their bytes in UTF-8.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from griphub.topics.ranges import BadRange, key_range

__all__ = ["ALL", "TOP", "Span", "span_of"]

TOP: Final = "\U0010ffff" * 257
"""Bound above all keys: a key of 1,024 bytes has at most 256 characters of this size."""

SHOWN: Final = 80
"""Characters of a refused value that a message shows."""


class Span(NamedTuple):
    """Range of keys ``low <= key < high``.

    Attributes:
        low: least key; empty for no bound.
        high: first key beyond; ``TOP`` for no bound.
    """

    low: str = ""
    high: str = TOP

    @property
    def bounds(self) -> tuple[str | None, str | None]:
        """Both bounds as clients write them, None for no bound."""
        return self.low or None, None if self.high == TOP else self.high

    def overlaps(self, other: Span) -> bool:
        """Return whether a key can be in both this span and the ``other``."""
        return self.low < other.high and other.low < self.high

    def __str__(self) -> str:
        low, high = self.bounds
        return f"[{'' if low is None else repr(low[:SHOWN])}, {'' if high is None else repr(high[:SHOWN])})"


ALL: Final = Span()
"""All keys."""


def span_of(low: object, high: object) -> Span:
    """Return the span of two bounds as a client wrote them.

    Args:
        low: least key; None for no bound.
        high: first key beyond; None for no bound.

    Raises:
        BadRange: a bound is no text, is empty or too long, or no key is between them.
    """
    if low is None and high is None:
        return ALL
    if not (low is None or isinstance(low, str)) or not (high is None or isinstance(high, str)):
        raise BadRange("low and high are keys: expected strings, or null for no bound")
    key_range(low, high)
    return Span(low or "", TOP if high is None else high)
