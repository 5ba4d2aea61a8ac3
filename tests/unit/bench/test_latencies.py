"""Latencies in buckets: quantiles are right to one per cent, and buckets of several crowds add up."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.latencies import STEPS, Latencies


def bucket(nanoseconds: int) -> int:
    """As native/crowd.c has it."""
    if nanoseconds < STEPS:
        return nanoseconds
    power = nanoseconds.bit_length() - 1
    return (power - 5) * STEPS + (nanoseconds >> (power - 6)) % STEPS


def made(times: Iterable[int]) -> Latencies:
    return Latencies((bucket(time), 1) for time in times)


def test_without_any_message_it_is_zero() -> None:
    assert Latencies().quantile(0.5) == 0


@given(st.integers(1, 10**12))
def test_one_time_is_found_again_to_one_per_cent(nanoseconds: int) -> None:
    assert made([nanoseconds]).quantile(0.5) == pytest.approx(nanoseconds / 1e6, rel=0.01)


@given(st.lists(st.integers(1_000, 10**10), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_the_time_within_which_that_share_came(times: list[int], share: float) -> None:
    exact = next(time for index, time in enumerate(sorted(times), 1) if index >= share * len(times)) / 1e6
    assert made(times).quantile(share) == pytest.approx(exact, rel=0.01)


def test_crowds_add_up() -> None:
    both = made([1_000_000] * 3) + made([9_000_000])
    assert len(both) == 4
    assert both.quantile(0.75) == pytest.approx(1.0, rel=0.01)
    assert both.quantile(0.99) == pytest.approx(9.0, rel=0.01)
