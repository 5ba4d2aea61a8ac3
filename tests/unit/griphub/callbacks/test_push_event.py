"""Push events: rows of the store, with their text."""

from __future__ import annotations

import json

from griphub.callbacks.push_event import OVERHEAD, push_event
from griphub.store.cursor import EpochInterval
from griphub.topics.event_text import Epochs

EPOCHS = Epochs([EpochInterval("a", 1, 9), EpochInterval("b", 10, None)])


def test_a_row_becomes_the_text_that_all_followers_get() -> None:
    event = push_event(
        (12, 7, 13, 1_700_000_000_000_001, b'{"n": 1}', "application/json", "k", 1, '{"x":"y"}', 9), EPOCHS
    )
    assert (event.id, event.prev_id, event.time) == (12, 7, 1_700_000_000_000_001)
    assert event.size == len(event.text) + OVERHEAD
    assert json.loads(event.text) == {
        "type": "event",
        "id": "12",
        "cursor": "b.12",
        "prev_id": "7",
        "version": "13",
        "version_cursor": "b.13",
        "time": "2023-11-14T22:13:20.000001Z",
        "key": "k",
        "op": "delete",
        "content_type": "application/json",
        "attributes": {"x": "y"},
        "data": {"n": 1},
    }


def test_an_event_without_key_and_attributes() -> None:
    event = push_event((3, 0, 3, 0, b"\xff", "application/octet-stream", None, 0, None, 1), EPOCHS)
    document = json.loads(event.text)
    assert document["cursor"] == "a.3"
    assert document["data_base64"] == "/w=="
    assert "key" not in document
