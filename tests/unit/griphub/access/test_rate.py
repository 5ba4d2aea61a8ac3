"""Rates: bursts, refusals, and owners that are forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.access.quota import LimitReached
from griphub.access.rate import RateLimit


def test_a_burst_then_one_by_one() -> None:
    rate = RateLimit("topics made", per_minute=60, burst=3)
    for _ in range(3):
        rate.spend("a", 100.0)
    with pytest.raises(LimitReached, match="limit of 60 topics made per owner is reached: repeat the request in 1 s"):
        rate.spend("a", 100.0)
    rate.spend("a", 101.0)
    with pytest.raises(LimitReached):
        rate.spend("a", 101.0)
    rate.spend("b", 101.0)


def test_the_refusal_names_the_time_to_wait() -> None:
    rate = RateLimit("failures", per_minute=2, burst=1)
    rate.spend("a", 0.0)
    assert rate.wait("a", 10.0) == 20.0
    with pytest.raises(LimitReached, match="in 20 s") as caught:
        rate.spend("a", 10.0)
    assert (caught.value.name, caught.value.limit, caught.value.whose) == ("failures", 2, "owner")
    assert caught.value.retry_after == 20.0
    assert rate.wait("a", 30.0) == 0.0


def test_being_refused_costs_nothing() -> None:
    rate = RateLimit("failures", per_minute=60, burst=1)
    rate.spend("a", 0.0)
    for _ in range(100):
        with pytest.raises(LimitReached):
            rate.spend("a", 0.5)
    rate.spend("a", 1.0)


def test_a_clock_that_goes_back_gives_no_turns() -> None:
    rate = RateLimit("failures", per_minute=60, burst=1)
    rate.spend("a", 100.0)
    with pytest.raises(LimitReached):
        rate.spend("a", 50.0)


def test_the_owner_that_spent_longest_ago_is_forgotten_first() -> None:
    rate = RateLimit("failures", per_minute=1, burst=1, owners_max=2)
    rate.spend("a", 0.0)
    rate.spend("b", 1.0)
    rate.spend("c", 2.0)
    assert len(rate) == 2
    assert rate.wait("a", 2.0) == 0.0
    assert rate.wait("b", 2.0) > 0
    assert rate.wait("c", 2.0) > 0


@pytest.mark.parametrize(("per_minute", "burst", "owners_max"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_limits_below_one_are_refused(per_minute: int, burst: int, owners_max: int) -> None:
    with pytest.raises(ValueError, match="at least 1 each"):
        RateLimit("failures", per_minute, burst, owners_max)


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=200), st.integers(1, 5))
def test_no_span_of_time_has_more_than_its_share_and_the_burst(pauses: list[int], burst: int) -> None:
    rate = RateLimit("failures", per_minute=60, burst=burst)
    now, taken = 0.0, []
    for pause in pauses:
        now += pause / 1000
        try:
            rate.spend("a", now)
        except LimitReached:
            assert rate.wait("a", now) > 0
        else:
            taken.append(now)
    for first, begin in enumerate(taken):
        for last, end in enumerate(taken[first:], first):
            assert last - first + 1 <= burst + (end - begin) + 1e-6
