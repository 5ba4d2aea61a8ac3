"""Positions are written after some events, or after some time."""

from __future__ import annotations

from griphub.sender.position import Position


def test_after_some_events() -> None:
    position = Position(10, events_max=3, save_after=5.0)
    assert not position.save_due(1e9)
    position.move(11, 1, 100.0)
    position.move(12, 1, 100.1)
    assert not position.save_due(100.1)
    position.move(13, 1, 100.2)
    assert position.save_due(100.2)
    assert (position.saving(), position.unsaved) == (13, 0)
    assert not position.save_due(1e9)


def test_after_some_time_since_the_first_change() -> None:
    position = Position(10, events_max=100, save_after=5.0)
    position.move(11, 1, 100.0)
    position.move(12, 1, 104.0)
    assert not position.save_due(104.9)
    assert position.save_due(105.0)


def test_a_move_without_events_is_written_too() -> None:
    position = Position(10, events_max=100, save_after=5.0)
    position.move(50, 0, 100.0)
    assert (position.unsaved, position.save_due(105.0), position.saving()) == (0, True, 50)


def test_a_failed_write_is_due_again_later() -> None:
    position = Position(10, events_max=1, save_after=5.0)
    position.move(11, 1, 100.0)
    position.saving()
    position.not_saved(100.5)
    assert not position.save_due(105.4)
    assert position.save_due(105.5)
    assert position.saving() == 11


def test_never_back() -> None:
    position = Position(10, events_max=1, save_after=5.0)
    position.move(10, 1, 100.0)
    position.move(9, 1, 100.0)
    assert (position.id, position.unsaved, position.save_due(1e9)) == (10, 0, False)
