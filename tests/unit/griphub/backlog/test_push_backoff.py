"""Backoff of push subscriptions (scenario 38)."""

from __future__ import annotations

import pytest

from griphub.backlog.push_backoff import PushBackoff


def at(share: float) -> PushBackoff:
    found = PushBackoff()
    found.share = share
    return found


@pytest.mark.parametrize(("share", "pause"), [(0.2, 0.5), (0.5, 3.0), (0.8, 17.9), (1.0, 58.8)])
def test_the_table(share: float, pause: float) -> None:
    assert at(share).pause == pytest.approx(pause, rel=0.02)


def test_few_failures_make_no_pause() -> None:
    assert at(1 / 64 - 0.001).pause == 0
    assert at(1 / 64).pause >= 0.1


def test_acknowledgements_in_a_row_end_it() -> None:
    backoff, pauses = at(1.0), []
    total = 0.0
    for _ in range(40):
        backoff.answered(0.0, acked=True)
        pauses.append(backoff.pause)
        total += backoff.pause
    assert pauses[:5] == pytest.approx([28, 14, 8.2, 5.0, 3.2], abs=0.6)
    assert pauses[-1] == 0
    # Well again after about a minute.
    assert 50 < total < 75


@pytest.mark.parametrize(("every", "low", "high"), [(5, 0.3, 0.8), (1, 30, 60)])
def test_one_failure_in_so_many(every: int, low: float, high: float) -> None:
    backoff, pauses = PushBackoff(), []
    for number in range(500):
        backoff.answered(0.0, acked=bool(number % every))
        if number > 100:
            pauses.append(backoff.pause)
    assert low <= sum(pauses) / len(pauses) <= high


def test_one_request_begins_in_each_pause() -> None:
    backoff = at(0.5)
    backoff.answered(100.0, acked=False)
    assert backoff.until == 100.0 + backoff.pause
    backoff.started(200.0)
    assert backoff.until == 200.0 + backoff.pause


def test_without_failures_none_waits() -> None:
    backoff = PushBackoff()
    backoff.started(100.0)
    backoff.answered(101.0, acked=True)
    assert backoff.until == float("-inf")


def test_a_receiver_may_ask_for_more_up_to_a_minute() -> None:
    backoff = PushBackoff()
    backoff.answered(100.0, acked=False, asked=20.0)
    assert backoff.until == 120.0
    backoff.answered(100.0, acked=False, asked=1000.0)
    assert backoff.until == 160.0


def test_another_endpoint_begins_anew() -> None:
    backoff = at(1.0)
    backoff.answered(100.0, acked=False)
    backoff.clear()
    assert (backoff.pause, backoff.until) == (0, float("-inf"))
