"""griphub.client.received: objects of the API in, events and reports out."""

from __future__ import annotations

from typing import Any

import pytest

from griphub.client.errors import BadAnswer
from griphub.client.received import ReceivedEvent, Truncated, document_of, gone_of

EVENT = {
    "type": "event",
    "id": "5",
    "cursor": "e.5",
    "prev_id": "3",
    "version": "6",
    "version_cursor": "e.6",
    "time": "2026-11-23T19:00:00.123456Z",
    "content_type": "application/json",
    "data": {"a": 1},
}


def test_an_event_without_key() -> None:
    event = ReceivedEvent.of(EVENT)
    assert (event.id, event.cursor, event.prev_id, event.version_cursor) == ("5", "e.5", "3", "e.6")
    assert (event.key, event.op, event.attributes, event.data) == (None, None, {}, {"a": 1})
    assert event.document is EVENT


@pytest.mark.parametrize(
    ("members", "data"),
    [
        ({"data": "text", "content_type": "text/plain"}, "text"),
        ({"data_base64": "/w=="}, b"\xff"),
        ({"key": "k", "op": "delete"}, None),
    ],
)
def test_data(members: dict[str, Any], data: object) -> None:
    bare = {name: value for name, value in EVENT.items() if name != "data"}
    event = ReceivedEvent.of({**bare, **members, "attributes": {"n": "v"}})
    assert event.data == data
    assert event.attributes == {"n": "v"}


@pytest.mark.parametrize("member", ["id", "cursor", "prev_id", "version_cursor", "time", "content_type"])
def test_members_that_every_event_has(member: str) -> None:
    with pytest.raises(BadAnswer, match="no event"):
        ReceivedEvent.of({name: value for name, value in EVENT.items() if name != member})
    with pytest.raises(BadAnswer, match="no event"):
        ReceivedEvent.of({**EVENT, member: 5})


def test_data_that_is_no_base64() -> None:
    with pytest.raises(BadAnswer, match="no event"):
        ReceivedEvent.of({**EVENT, "data_base64": "é!"})


@pytest.mark.parametrize("text", ["", "[]", "5", "{", "[" * 100_000, b"\xff"])
def test_texts_that_are_no_object(text: str | bytes) -> None:
    with pytest.raises(BadAnswer, match="no JSON"):
        document_of(text)


def test_reports() -> None:
    report = {"type": "truncated", "floor_cursor": "e.9", "oldest_time": None}
    assert Truncated.of(report) == Truncated("e.9", None)
    assert Truncated.of({**report, "oldest_time": "T"}) == Truncated("e.9", "T")
    gone = gone_of({"type": "resync", "reason": "not retained", "floor_cursor": "e.9", "snapshot": "snapshot"})
    assert str(gone) == "not retained (410 gone)"
    assert gone.floor_cursor == "e.9"
    assert dict(gone.problem.members) == {"floor_cursor": "e.9", "snapshot": "snapshot"}
    assert "not retained" in str(gone_of({}))
