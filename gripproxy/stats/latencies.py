"""Latencies: a histogram of times, as counts by the bounds of LATENCIES."""

from __future__ import annotations

from bisect import bisect_left

from gripproxy.grip.stats_format import LATENCIES

__all__ = ["Latencies"]


class Latencies:
    """Histogram of times since the process began."""

    __slots__ = ("counts", "microseconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCIES) + 1)
        """Times by bound; longer ones are last."""
        self.microseconds = 0
        """Sum of all times."""

    def add(self, seconds: float, count: int = 1) -> None:
        """Add a time.

        Args:
            seconds: the time; negative ones count as 0.
            count: how often.
        """
        self.counts[bisect_left(LATENCIES, seconds)] += count
        if seconds > 0:
            self.microseconds += round(seconds * 1_000_000) * count

    def totals(self, name: str) -> dict[str, int]:
        """Return the histogram as totals: ``NAME-latency-PLACE`` for each bound that has times, and ``NAME-us``.

        Args:
            name: beginning of the names.
        """
        totals = {f"{name}-latency-{place}": count for place, count in enumerate(self.counts) if count}
        totals[f"{name}-us"] = self.microseconds
        return totals
