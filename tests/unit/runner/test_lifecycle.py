"""The decisions about one child: a clock that only moves when told, and no process."""

from __future__ import annotations

import pytest

from gripproxy.runner.lifecycle import Action, Lifecycle, State, Verdict

KILLED = -9
"""Exit status of a process that was killed."""


def serving(now: float = 0.0, beat_timeout: float = 10.0) -> Lifecycle:
    life = Lifecycle(beat_timeout, now)
    assert life.act(now) is Action.START
    life.started(now)
    life.heard(now, ready=True)
    return life


def restart(life: Lifecycle, now: float, status: int = 1) -> float:
    """End the child, take its restart when due, and return the back-off."""
    assert life.ended(now, status) is Verdict.RESTART
    assert life.act(now + life.delay - 0.01) is None
    assert life.act(now + life.delay) is Action.START
    life.started(now + life.delay)
    return life.delay


def test_a_new_child_is_started_at_once() -> None:
    life = Lifecycle(10.0, 100.0)
    assert life.act(100.0) is Action.START
    assert life.act(100.0) is None
    life.started(100.0)
    assert life.state is State.STARTING


def test_a_beat_moves_the_time_of_silence() -> None:
    life = serving(0.0)
    for second in range(1, 60):
        assert life.act(float(second)) is None
        life.heard(float(second), ready=False)
    assert life.act(68.9) is None
    assert life.overdue(69.0)
    assert life.act(69.0) is Action.KILL
    assert life.reason == "no sign of life for 10 s"
    assert life.act(100.0) is None  # once is enough


def test_a_late_sign_of_a_killed_child_means_nothing() -> None:
    life = serving(0.0)
    assert life.act(10.0) is Action.KILL
    life.heard(10.0, ready=False)
    assert life.due is None
    assert life.state is State.KILLED
    assert life.ended(10.1, KILLED) is Verdict.RESTART


def test_beats_before_ready_are_not_readiness() -> None:
    life = Lifecycle(10.0, 0.0)
    life.act(0.0)
    life.started(0.0)
    life.heard(29.0, ready=False)
    assert life.act(29.9) is None
    assert life.act(30.0) is Action.KILL
    assert life.reason == "not ready 30 s after its start"


def test_a_long_beat_timeout_is_the_time_to_start_too() -> None:
    life = Lifecycle(60.0, 0.0)
    life.act(0.0)
    life.started(0.0)
    assert life.act(59.9) is None
    assert life.act(60.0) is Action.KILL


def test_the_back_off_doubles_up_to_five_seconds() -> None:
    life = serving(0.0)
    now, delays = 1.0, []
    for _ in range(8):
        delays.append(restart(life, now, KILLED))
        now += delays[-1]
        life.heard(now, ready=True)
        now += 2.0  # it served, but not for long
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_ten_seconds_of_service_begin_the_back_off_anew() -> None:
    life = serving(0.0)
    assert restart(life, 1.0, KILLED) == 0.1
    life.heard(2.0, ready=True)
    assert restart(life, 11.9, KILLED) == 0.2
    life.heard(13.0, ready=True)
    assert restart(life, 23.0, KILLED) == 0.1


def test_five_failed_starts_in_thirty_seconds_end_it() -> None:
    life = Lifecycle(10.0, 0.0)
    life.act(0.0)
    life.started(0.0)
    for now in (1.0, 8.0, 16.0, 24.0):
        restart(life, now)
    assert life.ended(31.0, 1) is Verdict.GIVE_UP
    assert life.reason == "5 starts failed within 30 s"
    assert life.state is State.ENDED
    assert life.due is None


def test_five_failed_starts_in_more_than_thirty_seconds_do_not() -> None:
    life = Lifecycle(10.0, 0.0)
    life.act(0.0)
    life.started(0.0)
    for now in (1.0, 8.0, 16.0, 24.0, 31.1, 38.2, 46.3):
        restart(life, now)


def test_children_that_served_may_die_as_often_as_they_like() -> None:
    life = serving(0.0)
    now = 0.1
    for _ in range(20):
        now += restart(life, now, KILLED)
        life.heard(now, ready=True)


def test_an_error_right_after_ready_is_a_failed_start() -> None:
    life = serving(0.0)
    now = 0.5
    for _ in range(4):
        now += restart(life, now, 1)
        life.heard(now, ready=True)
        now += 0.5
    assert life.ended(now, 1) is Verdict.GIVE_UP


def test_a_config_error_at_the_first_start_ends_it_at_once() -> None:
    life = Lifecycle(10.0, 0.0)
    life.act(0.0)
    life.started(0.0)
    assert life.ended(0.3, 2) is Verdict.GIVE_UP
    assert "status 2" in life.reason


def test_status_two_of_a_child_that_served_before_is_tried_again() -> None:
    life = serving(0.0)
    restart(life, 5.0, KILLED)
    assert life.ended(6.0, 2) is Verdict.RESTART


def test_an_unasked_end_with_status_zero_is_a_restart_too() -> None:
    assert serving(0.0).ended(20.0, 0) is Verdict.RESTART


def test_stopping_gives_the_time_asked_for_and_then_kills() -> None:
    life = serving(0.0)
    assert life.stop(5.0, 6.0)
    life.heard(10.0, ready=False)
    assert life.act(10.9) is None
    assert life.act(11.0) is Action.KILL
    assert life.ended(11.1, KILLED) is Verdict.EXPECTED
    assert life.state is State.ENDED


def test_stopping_a_child_that_waits_for_its_restart_starts_nothing() -> None:
    life = serving(0.0)
    life.ended(1.0, KILLED)
    assert not life.stop(1.01, 5.0)
    assert life.act(100.0) is None


def test_a_second_stop_can_be_shorter() -> None:
    life = serving(0.0)
    assert life.stop(1.0, 60.0)
    assert life.stop(2.0, 0.0)
    assert life.act(2.0) is Action.KILL


def test_the_end_of_a_child_that_has_ended_is_an_error() -> None:
    life = serving(0.0)
    life.stop(1.0, 1.0)
    life.ended(1.1, 0)
    with pytest.raises(AssertionError):
        life.ended(1.2, 0)


def trial(now: float = 0.0) -> Lifecycle:
    life = Lifecycle(10.0, now, trial=True)
    life.act(now)
    life.started(now)
    return life


def test_a_successor_has_three_tries() -> None:
    life = trial()
    restart(life, 1.0)
    restart(life, 40.0, KILLED)
    assert life.ended(80.0, 1) is Verdict.ABANDON
    assert life.reason == "3 starts failed"
    assert life.state is State.ENDED
    assert life.due is None


def test_a_successor_with_a_config_error_has_one() -> None:
    life = trial()
    assert life.ended(0.3, 2) is Verdict.ABANDON
    assert life.reason == "it ended with status 2, its line in the log says why"


def test_a_successor_that_has_served_is_a_child_like_any_other() -> None:
    life = trial()
    restart(life, 1.0)
    life.heard(2.0, ready=True)
    now = 3.0
    for _ in range(4):
        restart(life, now)
        now += 1.0
    assert life.ended(now, 1) is Verdict.GIVE_UP


def test_a_proven_childs_successor_may_fail_with_a_config_error() -> None:
    life = Lifecycle(10.0, 0.0, proven=True)
    life.act(0.0)
    life.started(0.0)
    restart(life, 0.3, 2)


def test_a_retired_child_is_not_started_again() -> None:
    life = serving(0.0)
    assert life.retire(5.0, 100.0)
    states = [life.state]
    assert life.ended(6.0, KILLED) is Verdict.EXPECTED
    states.append(life.state)
    assert states == [State.RETIRING, State.ENDED]
    assert life.act(1000.0) is None


def test_a_retiring_child_has_to_beat() -> None:
    life = serving(0.0)
    life.retire(5.0, 100.0)
    life.heard(14.0, ready=False)
    assert life.act(23.9) is None
    assert life.overdue(24.0)
    assert life.act(24.0) is Action.KILL
    assert life.reason == "no sign of life for 10 s"
    life.heard(24.1, ready=False)  # a late one
    assert life.due is None
    assert life.ended(24.2, KILLED) is Verdict.EXPECTED


def test_a_retiring_child_has_its_time() -> None:
    life = serving(0.0)
    life.retire(5.0, 20.0)
    for second in range(6, 25):
        life.heard(float(second), ready=False)
        assert life.act(float(second)) is None
    assert life.act(25.0) is Action.KILL
    assert life.reason == "still there at the end of its time"


def test_a_child_that_is_not_there_need_not_retire() -> None:
    life = serving(0.0)
    life.ended(1.0, KILLED)
    assert not life.retire(1.01, 60.0)
    assert life.act(100.0) is None
    assert life.state is State.ENDED


def test_a_child_that_starts_may_take_its_time_before_it_retires() -> None:
    life = Lifecycle(10.0, 0.0)
    life.act(0.0)
    life.started(0.0)
    assert life.retire(1.0, 100.0)
    assert life.act(30.9) is None
    life.heard(31.0, ready=True)
    assert life.act(40.9) is None
    assert life.state is State.RETIRING


def test_a_child_that_is_being_killed_is_not_told() -> None:
    life = serving(0.0)
    assert life.act(10.0) is Action.KILL
    assert not life.retire(10.1, 60.0)
    assert life.ended(10.2, KILLED) is Verdict.EXPECTED


def test_a_retiring_child_can_be_stopped() -> None:
    life = serving(0.0)
    life.retire(5.0, 100.0)
    assert life.stop(6.0, 2.0)
    assert life.act(8.0) is Action.KILL
    assert life.reason == "still there at the end of shutdown_timeout"
