"""Range of keys: half-open, over the order of their bytes in UTF-8, with either end open. Sans-I/O.

Python compares texts by code points, which is the order of their bytes in UTF-8. Halves of surrogate pairs have no
bytes, and are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

__all__ = ["WHOLE", "KeyRange", "least_end", "merged"]

SHOWN: Final = 80
"""Characters of a bound in a message."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from ``low`` on, and below ``high``.

    Attributes:
        low: least key; empty for an open end, which no key is below.
        high: key below which the others are; None for an open end.

    Raises:
        ValueError: no key is between the bounds, or one of them is no valid Unicode.
    """

    low: str = ""
    high: str | None = None

    def __post_init__(self) -> None:
        for name, bound in (("low", self.low), ("high", self.high)):
            try:
                (bound or "").encode()
            except UnicodeEncodeError as error:
                text = f"{name}={bound!r:.{SHOWN}} has half of a surrogate pair: expected valid Unicode"
                raise ValueError(text) from error
        if self.high is not None and self.low >= self.high:
            raise ValueError(f"no key is in {self}: low must be below high, which is not part of the range")

    def __str__(self) -> str:
        high = "end" if self.high is None else f"{self.high!r:.{SHOWN}}"
        return f"[{self.low!r:.{SHOWN}}, {high})"

    @classmethod
    def of(cls, low: str | None, high: str | None) -> Self:
        """Return the range of two optional bounds.

        Args:
            low: least key; None for no bound.
            high: key below which the others are; None for no bound.

        Returns:
            The range.

        Raises:
            ValueError: no key is between the bounds, or one of them is no valid Unicode.
        """
        return cls(low or "", high)

    def __contains__(self, key: str) -> bool:
        return self.low <= key and (self.high is None or key < self.high)

    @property
    def whole(self) -> bool:
        """True if all keys are in it."""
        return not self.low and self.high is None

    def query(self) -> list[tuple[str, str]]:
        """Return the parameters of a request.

        Returns:
            Names and values of the bounds.
        """
        low = [("low", self.low)] if self.low else []
        return low if self.high is None else [*low, ("high", self.high)]

    def covers(self, other: KeyRange) -> bool:
        """Return whether all keys of an ``other`` range are in this one."""
        return self.low <= other.low and least_end(self.high, other.high) == other.high

    def overlap(self, other: KeyRange) -> KeyRange | None:
        """Return the range of the keys that are in this and in an ``other`` one; None if there are none."""
        low, high = max(self.low, other.low), least_end(self.high, other.high)
        return None if high is not None and low >= high else KeyRange(low, high)

    def without(self, other: KeyRange) -> list[KeyRange]:
        """Return the ranges of the keys that are not in an ``other`` one.

        Args:
            other: the range that is taken out.

        Returns:
            None, one or two ranges, in order.
        """
        part = self.overlap(other)
        if part is None:
            return [self]
        left = [KeyRange(self.low, part.low)] if self.low < part.low else []
        right = [KeyRange(part.high, self.high)] if part.high is not None and part.high != self.high else []
        return [*left, *right]


WHOLE: Final = KeyRange()
"""All keys."""


def least_end(one: str | None, other: str | None) -> str | None:
    """Return the lower one of two upper bounds.

    Args:
        one: bound; None for an open end.
        other: bound; None for an open end.
    """
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def merged(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Return ranges that touch or overlap as one.

    Args:
        ranges: in any order.

    Returns:
        Ranges of the same keys, in order, none of which touches the next.
    """
    found: list[KeyRange] = []
    for each in sorted(ranges, key=lambda each: each.low):
        last = found[-1] if found else None
        if last is None or (last.high is not None and last.high < each.low):
            found.append(each)
        elif last.high is not None and (each.high is None or each.high > last.high):
            found[-1] = KeyRange(last.low, each.high)
    return found
