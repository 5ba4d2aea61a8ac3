"""How long messages took: counts in buckets of equal ratio, which can be added up over clients and processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

__all__ = ["Latencies"]

STEPS = 64
"""Buckets from each power of two to the next: a quantile is exact to one per cent. As in native/crowd.c."""


def middle(bucket: int) -> float:
    """The time that stands for a bucket, in nanoseconds."""
    if bucket < STEPS:
        return float(bucket)
    width = 1 << (bucket // STEPS - 1)
    return (STEPS + bucket % STEPS + 0.5) * width


class Latencies:
    """Times of many messages."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        """``pairs``: bucket and count, as a crowd reports them; a bucket may come more than once."""
        self._counts: Counter[int] = Counter()
        for bucket, count in pairs:
            self._counts[bucket] += count

    def __len__(self) -> int:
        """How many messages."""
        return self._counts.total()

    def __add__(self, other: Latencies) -> Latencies:
        return Latencies([*self._counts.items(), *other._counts.items()])

    def quantile(self, share: float) -> float:
        """The time within which this share (0 to 1) of the messages came, in milliseconds; 0 without any."""
        left = share * len(self)
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                return middle(bucket) / 1e6
        return 0.0
