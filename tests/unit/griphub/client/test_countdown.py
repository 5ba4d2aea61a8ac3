"""The countdown to the next poll follows the pace of the events, and grows while there are none."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.client.countdown import Countdown


def middle() -> float:
    """The chance that changes no length."""
    return 0.5


def regular(gap: float, number: int = 50, **bounds: float) -> Countdown:
    """A countdown after events at equal gaps, the last at 0."""
    countdown = Countdown(middle, **bounds)
    for index in range(number):
        countdown.event((index - number + 1) * gap)
    return countdown


def test_before_the_first_event_it_is_over() -> None:
    assert Countdown(middle).deadline < 0


def test_it_lasts_three_gaps() -> None:
    assert regular(7.0).deadline == pytest.approx(21.0)


@pytest.mark.parametrize(("gap", "seconds"), [(0.33, 1.0), (0.34, 1.02), (99.0, 297.0), (101.0, 300.0), (1e9, 300.0)])
def test_it_has_bounds(gap: float, seconds: float) -> None:
    assert regular(gap).length == pytest.approx(seconds)


def test_the_bounds_are_configurable() -> None:
    assert regular(0.1, shortest=5.0).length == 5.0
    assert regular(100.0, longest=10.0).length == 10.0


@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.9), (0.25, 0.95), (1.0, 1.1)])
def test_chance_moves_it_by_a_tenth(chance: float, share: float) -> None:
    countdown = Countdown(lambda: chance, shortest=20.0)
    countdown.found(100.0)
    assert countdown.deadline == pytest.approx(100.0 + 20.0 * share)
    assert countdown.length == 20.0


def test_empty_polls_double_it_up_to_the_bound_and_a_finding_one_takes_it_back() -> None:
    countdown = regular(10.0)
    lengths = []
    for _ in range(5):
        countdown.empty(0.0)
        lengths.append(countdown.length)
    assert lengths == pytest.approx([60.0, 120.0, 240.0, 300.0, 300.0])
    countdown.found(1000.0)
    assert (countdown.length, countdown.deadline) == pytest.approx((30.0, 1030.0))


def test_an_event_takes_it_back_as_well() -> None:
    countdown = regular(10.0)
    countdown.empty(0.0)
    countdown.event(10.0)
    assert (countdown.length, countdown.deadline) == pytest.approx((30.0, 40.0))


def test_without_a_gap_it_begins_with_the_shortest() -> None:
    countdown = Countdown(middle)
    countdown.empty(0.0)
    assert countdown.length == 2.0
    countdown.event(5.0)
    assert countdown.length == 1.0


def test_newer_gaps_weigh_more() -> None:
    countdown = regular(10.0)
    countdown.event(20.0)
    assert countdown.length == pytest.approx(3 * (10.0 + 0.2 * 10.0))
    assert regular(10.0, weight=1.0).length == pytest.approx(30.0)


def test_events_of_one_page_divide_the_gap_before_them() -> None:
    one_by_one, page = regular(10.0), regular(10.0)
    for index in range(1, 6):
        one_by_one.event(index * 2.0)
    page.event(10.0, 5)
    assert page.length == pytest.approx(one_by_one.length)


def test_a_night_of_silence_is_one_longest_gap() -> None:
    countdown = regular(1.0)
    countdown.event(36_000.0)
    assert countdown.length == pytest.approx(3 * (1.0 + 0.2 * 99.0))


def test_a_clock_that_stands_still() -> None:
    countdown = Countdown(middle)
    for _ in range(3):
        countdown.event(5.0)
    assert countdown.deadline == 6.0


@pytest.mark.parametrize(("shortest", "longest"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0), (1.0, float("inf"))])
def test_bounds_that_are_none(shortest: float, longest: float) -> None:
    with pytest.raises(ValueError, match="expected 0 < shortest <= longest"):
        Countdown(middle, shortest, longest)


@pytest.mark.parametrize("weight", [0.0, -0.1, 1.1])
def test_weights_that_are_none(weight: float) -> None:
    with pytest.raises(ValueError, match=f"weight {weight}: expected"):
        Countdown(middle, weight=weight)


steps = st.lists(
    st.tuples(st.sampled_from(["event", "empty", "found"]), st.floats(0, 1e6), st.floats(0, 1, exclude_max=True))
)


@given(steps)
def test_after_any_history_it_ends_within_its_bounds(history: list[tuple[str, float, float]]) -> None:
    chances = itertools.chain([chance for _, _, chance in history])
    countdown, now = Countdown(lambda: next(chances)), 0.0
    for kind, seconds, _ in history:
        now += seconds
        getattr(countdown, kind)(now)
        assert 0.9 - 1e-6 <= countdown.deadline - now <= 330 + 1e-6
