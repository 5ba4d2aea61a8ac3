"""Histograms of times."""

from __future__ import annotations

from gripproxy.grip.stats_format import LATENCIES
from gripproxy.stats.latencies import Latencies


def test_times_are_counted_by_their_bound() -> None:
    latencies = Latencies()
    for seconds, count in ((0.0005, 1), (0.001, 2), (0.0011, 3), (1000.0, 4), (-0.1, 5)):
        latencies.add(seconds, count)
    assert latencies.totals("x") == {
        "x-latency-0": 8,
        "x-latency-1": 3,
        f"x-latency-{len(LATENCIES)}": 4,
        "x-us": 500 + 2000 + 3300 + 4_000_000_000,
    }


def test_nothing_is_a_sum_of_nothing() -> None:
    assert Latencies().totals("x") == {"x-us": 0}
