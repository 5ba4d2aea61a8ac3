"""Window of push subscriptions (scenario 39)."""

from __future__ import annotations

import pytest

from griphub.backlog.push_window import PushWindow


def acks(window: PushWindow, number: int, now: float = 0.0, latency: float = 0.05, *, full: bool = True) -> None:
    for _ in range(number):
        window.answered(now, latency, acked=True, full=full)


def test_it_begins_small_and_a_full_window_doubles_it() -> None:
    window = PushWindow(10_000)
    sizes = [window.size]
    for _ in range(5):
        acks(window, int(window.size))
        sizes.append(window.size)
    assert sizes == [3, 6, 12, 24, 48, 96]


def test_from_cold_to_a_thousand_in_nine_round_trips() -> None:
    window, trips = PushWindow(10_000), 0
    while window.size < 1000:
        acks(window, int(window.size))
        trips += 1
    assert trips == 9


def test_above_the_edge_it_grows_by_a_hundred_a_round_trip() -> None:
    window = PushWindow(10_000)
    acks(window, 2997)
    assert window.size == 3000
    acks(window, 3000)
    assert window.size == pytest.approx(3100, abs=5)


def test_it_does_not_grow_while_it_is_not_what_limits() -> None:
    window = PushWindow(10_000)
    acks(window, 1000, full=False)
    assert window.size == 3


def test_a_failure_halves_it_down_to_one() -> None:
    window = PushWindow(10_000)
    acks(window, 97)
    sizes = []
    for _ in range(9):
        window.answered(0.0, 0.05, acked=False, full=True)
        sizes.append(window.size)
    assert sizes == [50, 25, 12.5, 6.25, 3.125, 1.5625, 1, 1, 1]


def test_its_bound() -> None:
    window = PushWindow(50)
    acks(window, 1000)
    assert window.size == 50
    assert PushWindow(2).size == 2


def grown() -> PushWindow:
    """A window of more than 3,500, at the beginning of a period."""
    window = PushWindow(10_000)
    acks(window, 20_000)
    assert window.size > 3500
    return window


def test_slow_answers_bring_it_back_to_the_edge() -> None:
    window = grown()
    acks(window, 999, latency=1.01)
    assert window.size > 3500
    acks(window, 1, latency=1.01)
    assert 3000 <= window.size < 3001


def test_fast_answers_do_not() -> None:
    window = grown()
    acks(window, 1000, latency=0.99)
    assert window.size > 3500


def test_one_failure_in_fifty_brings_it_back_to_the_edge_at_most() -> None:
    window = grown()
    for number in range(1000):
        window.answered(0.0, 0.05, acked=bool(number % 50), full=True)
    assert window.size < 3001


def test_after_ten_seconds_fewer_answers_are_enough() -> None:
    window = grown()
    acks(window, 1, now=100.0, latency=5.0)
    acks(window, 1, now=109.9, latency=5.0)
    assert window.size > 3500
    acks(window, 1, now=110.0, latency=5.0)
    assert 3000 <= window.size < 3001


def test_another_endpoint_begins_anew() -> None:
    window = grown()
    window.clear()
    assert window.size == 3
