"""griphub.client.subscription_standing: the hub's word on a subscription, and the loss that it proves."""

from __future__ import annotations

from typing import Any

import pytest

from griphub.client.errors import BadAnswer
from griphub.client.received import ReceivedEvent
from griphub.client.subscription_standing import CERTAIN, NEVER, PUSHES_MAX, RecentPushes, Standing


def event(id: int) -> ReceivedEvent:
    """An event that was stored at the second of its id."""
    cursor, time = f"e.{id}", f"1970-01-01T00:00:{id:02}.000000Z"
    return ReceivedEvent(str(id), cursor, str(id - 1), cursor, time, None, None, "text/plain", {}, None, {})


@pytest.mark.parametrize(
    ("document", "time"),
    [
        # Answered with success, and the push is not here: lost.
        ({"state": "live", "position": "e.8", "lag": 0}, CERTAIN),
        ({"state": "sending", "position": "e.7", "lag": 0.1}, CERTAIN),
        # Under way, or its turn has not arrived.
        ({"state": "live", "position": "e.6", "lag": 0}, NEVER),
        ({"state": "sending", "position": "e.6", "lag": 5}, NEVER),
        ({"state": "replaying", "position": "e.6", "lag": 5}, NEVER),
        ({"state": "challenging", "position": "e.6", "lag": 0}, NEVER),
        # It failed: the hub's clock decides.
        ({"state": "pausing", "position": "e.6", "lag": 5.5}, 7 + 5.5),
        # No request is made any more.
        ({"state": "resting", "position": "e.6", "lag": 0}, CERTAIN),
        # Of another epoch: no measure.
        ({"state": "live", "position": "f.9", "lag": 0}, NEVER),
        # No meaning.
        ({"state": "pausing", "position": "e.6", "lag": "x"}, 7),
        ({"state": "pausing", "position": "e.6", "lag": float("nan")}, 7),
        ({"state": "live"}, NEVER),
        ({}, NEVER),
    ],
)
def test_the_hub_knows_whether_a_push_is_lost(document: dict[str, Any], time: float) -> None:
    assert Standing.of(document).time([event(7), event(8)]) == time


def test_a_subscription_that_is_not_there_is_lost() -> None:
    assert Standing.missing().time([event(7)]) == CERTAIN


def test_without_missing_events_nothing_is_proven() -> None:
    assert Standing.missing().time([]) == NEVER


def test_a_position_that_is_none() -> None:
    with pytest.raises(BadAnswer):
        Standing.of({"position": "?"})


def test_received_pushes_are_not_missing() -> None:
    recent = RecentPushes()
    recent.add("e.8")
    assert [each.id for each in recent.missing([event(6), event(7), event(8), event(9)], "e.6")] == ["7", "9"]
    assert recent.missing([event(8)], "0") == []


def test_pushes_are_remembered_up_to_a_bound() -> None:
    recent = RecentPushes()
    for number in range(PUSHES_MAX + 1):
        recent.add(f"f.{number}")
    recent.add("e.7")
    assert [each.id for each in recent.missing([event(7), event(8)], "0")] == ["8"]
