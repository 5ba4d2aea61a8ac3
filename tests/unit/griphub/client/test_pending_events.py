"""griphub.client.pending_events: a bounded queue, and the place that the application has reached."""

from __future__ import annotations

import pytest

from griphub.client.pending_events import PendingEvents
from griphub.client.received import ReceivedEvent


def event(number: int) -> ReceivedEvent:
    cursor = f"e.{number}"
    return ReceivedEvent(str(number), cursor, "0", cursor, "T", None, None, "text/plain", {}, None, {})


def test_full_at_the_bound_and_until_half_was_taken() -> None:
    pending = PendingEvents(4, 1000, "0")
    for number in range(1, 5):
        assert not pending.full
        pending.add(event(number), 1)
    assert pending.full
    assert [pending.take().id, pending.full] == ["1", True]
    assert [pending.take().id, pending.full] == ["2", False]
    assert len(pending) == 2


def test_full_by_bytes() -> None:
    pending = PendingEvents(1000, 100, "0")
    pending.add(event(1), 60)
    assert not pending.full
    pending.add(event(2), 60)
    assert pending.full
    pending.take()
    assert pending.full, "60 bytes are more than half"
    pending.take()
    assert not pending.full


def test_one_large_event_enters() -> None:
    pending = PendingEvents(1, 1, "0")
    pending.add(event(1), 10_000_000)
    assert pending.full
    pending.take()
    assert not pending.full


def test_an_event_is_processed_when_the_next_is_asked_for() -> None:
    pending = PendingEvents(10, 1000, "e.0")
    assert pending.cursor("e.5") == "e.5"
    pending.add(event(6), 1)
    pending.add(event(7), 1)
    assert pending.cursor("e.7") == "e.0"
    assert not pending.processed()
    pending.take()
    assert pending.cursor("e.7") == "e.0"
    assert pending.processed()
    assert not pending.processed()
    assert pending.cursor("e.7") == "e.6"
    pending.take()
    assert pending.cursor("e.9") == "e.6"
    pending.processed()
    assert pending.cursor("e.9") == "e.9", "what was reported as lost behind it is passed too"


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0), (-1, 5)])
def test_bounds_that_are_none(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PendingEvents(*bounds, "0")
