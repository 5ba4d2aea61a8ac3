"""gripproxy.runner.rollout: nobody uses new routes before everybody can."""

from __future__ import annotations

from gripproxy.runner.rollout import PREPARE_TIME, Rollout


def test_it_is_complete_when_the_last_worker_has_answered() -> None:
    rollout = Rollout(2, ["one", "two", "three"], 100.0)
    for worker in ("two", "one", "two"):
        rollout.answered(worker)
        assert not rollout.complete(100.1)
    assert rollout.late() == {"three"}
    rollout.answered("three")
    assert rollout.complete(100.1)


def test_it_does_not_wait_for_ever() -> None:
    rollout = Rollout(2, ["one"], 100.0)
    assert not rollout.complete(100.0 + PREPARE_TIME - 0.01)
    assert rollout.due == 100.0 + PREPARE_TIME
    assert rollout.complete(rollout.due)
    assert rollout.late() == {"one"}


def test_without_workers_it_is_complete_at_once() -> None:
    assert Rollout(2, [], 0.0).complete(0.0)


def test_an_answer_of_a_worker_that_was_not_offered_anything_changes_nothing() -> None:
    rollout = Rollout(2, ["one"], 0.0)
    rollout.answered("two")
    assert rollout.late() == {"one"}
