"""Times of commits as publishers see them, for a histogram."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

__all__ = ["BOUNDS", "CommitTimes"]

BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper bounds of the buckets, in seconds."""


class CommitTimes:
    """Histogram of times from the request of a publication to its outcome."""

    __slots__ = ("_counts", "sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0
        """Sum of all times, in seconds."""

    def add(self, seconds: float) -> None:
        """Count a time in ``seconds``."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return upper bound and cumulated count of each bucket, as Prometheus has them."""
        found, total = [], 0
        for bound, count in zip((*BOUNDS, float("inf")), self._counts, strict=True):
            total += count
            found.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
        return found
