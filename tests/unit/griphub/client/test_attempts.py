"""Attempts: pauses that grow, and one report of a failure that lasts."""

from __future__ import annotations

from griphub.client.attempts import Attempts, Phase


def test_pauses_grow_until_there_is_progress() -> None:
    attempts = Attempts(lambda: 1.0, 10.0)
    pauses = []
    now = 0.0
    for _ in range(3):
        attempts.begin(now)
        attempts.fail(now, None)
        assert not attempts.ready(now)
        retry = attempts.deadline
        assert retry is not None
        pauses.append(round(retry - now, 3))
        now = retry
        assert attempts.ready(now)
    assert pauses == [0.1, 0.2, 0.4]
    attempts.answered()
    attempts.progressed()
    attempts.pause(now, asked=3.0)
    assert attempts.deadline == now + 3.0


def test_a_failure_is_reported_once_and_again_after_a_success() -> None:
    attempts = Attempts(lambda: 0.0, 10.0)
    attempts.begin(0.0)
    attempts.fail(1.0, 60.0)
    assert attempts.deadline == 10.0
    assert not attempts.report(9.9)
    assert attempts.report(10.0)
    assert not attempts.report(11.0)
    assert attempts.deadline == 61.0
    attempts.answered()
    attempts.begin(20.0)
    attempts.fail(21.0, None)
    assert not attempts.report(29.9)
    assert attempts.report(30.0)


def test_a_blocked_request_waits_for_no_time() -> None:
    attempts = Attempts(lambda: 0.0, 10.0)
    attempts.free(blocked=True)
    assert (attempts.phase, attempts.ready(1e9), attempts.deadline) == (Phase.BLOCKED, False, None)
    attempts.free()
    assert attempts.ready(0.0)
