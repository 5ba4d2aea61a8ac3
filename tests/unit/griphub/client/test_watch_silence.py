"""Silence: three intervals, learned where the topic has longer ones."""

from __future__ import annotations

import pytest

from griphub.client.watch_silence import LIMIT_MAX, WatchSilence


def test_three_intervals_without_a_line() -> None:
    silence = WatchSilence(10.0)
    silence.connect(100.0, 60.0)
    assert silence.deadline == 160.0
    silence.begin(101.0)
    assert silence.deadline == 131.0
    silence.heard(110.0)
    assert silence.deadline == 140.0


def test_a_stream_that_is_not_read_is_not_silent() -> None:
    silence = WatchSilence(10.0)
    silence.begin(0.0)
    silence.wait(25.0)
    assert silence.deadline == 55.0
    silence.progress(26.0)
    assert silence.limit == 30.0, "the gap was the application's"


def test_a_longer_interval_is_learned_and_a_dead_connection_is_not_one() -> None:
    silence = WatchSilence(10.0)
    for _ in range(2):
        silence.begin(0.0)
        silence.expired()
    assert silence.limit == 120.0
    silence.begin(0.0)
    silence.progress(55.0)
    silence.progress(115.0)
    assert silence.limit == 180.0
    silence.progress(125.0)
    assert silence.limit == 30.0
    for _ in range(20):
        silence.expired()
    assert silence.limit == LIMIT_MAX


@pytest.mark.parametrize("interval", [0.0, -1.0, float("inf"), float("nan")])
def test_no_interval(interval: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        WatchSilence(interval)
