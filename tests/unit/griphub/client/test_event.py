"""griphub.client.event: the two forms of an event in a request, and receipts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from griphub.client.errors import BadAnswer
from griphub.client.event import NewEvent, Receipt, receipts_of


@pytest.mark.parametrize(
    ("event", "member"),
    [
        (NewEvent({"a": [1, None]}), {"data": {"a": [1, None]}}),
        (NewEvent(None), {"data": None}),
        (NewEvent("é"), {"data": "é"}),
        (NewEvent("<p>", content_type="text/html"), {"data": "<p>", "content_type": "text/html"}),
        (NewEvent("<a/>", content_type="image/svg"), {"data_base64": "PGEvPg==", "content_type": "image/svg"}),
        (NewEvent("s", content_type="application/x+json"), {"data": "s", "content_type": "application/x+json"}),
        (NewEvent(b"\xff"), {"data_base64": "/w=="}),
        (NewEvent(b"{}", content_type="application/json"), {"data_base64": "e30=", "content_type": "application/json"}),
        (NewEvent(1, "k", "put", {"n": "v"}), {"data": 1, "key": "k", "op": "put", "attributes": {"n": "v"}}),
        (NewEvent(key="k", op="delete"), {"key": "k", "op": "delete"}),
        (NewEvent("why", key="k", op="delete"), {"data": "why", "key": "k", "op": "delete"}),
    ],
)  # fmt: skip
def test_member_of_a_batch(event: NewEvent, member: dict[str, Any]) -> None:
    assert json.loads(event.member()) == member


def test_a_request_with_one_event() -> None:
    event = NewEvent({"é": 1}, key="ä/b", op="put", attributes={"n": "ü"})
    assert event.content() == '{"é":1}'.encode()
    assert event.headers() == [
        ("Content-Type", "application/json"),
        ("Event-Key", "%C3%A4%2Fb"),
        ("Event-Op", "put"),
        ("Event-Attributes", '{"n": "\\u00fc"}'),
    ]


@pytest.mark.parametrize(
    ("event", "content", "content_type"),
    [
        (NewEvent(b"\x00"), b"\x00", "application/octet-stream"),
        (NewEvent("x"), b'"x"', "application/json"),
        (NewEvent("é", content_type="text/plain"), "é".encode(), "text/plain"),
        (NewEvent(key="k", op="delete"), b"", "application/json"),
    ],
)
def test_content_by_itself(event: NewEvent, content: bytes, content_type: str) -> None:
    assert event.content() == content
    assert event.headers()[0] == ("Content-Type", content_type)


@pytest.mark.parametrize("data", [float("nan"), object(), "\ud800", {1, 2}])
def test_data_that_is_no_json_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        NewEvent(data).member()


def test_data_that_is_nested_too_deep_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="no JSON"):
        NewEvent(deep).content()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"op": "upsert", "key": "k"}, "'put' or 'delete', not 'upsert'"),
        ({"op": "delete"}, "needs a key"),
        ({"data": 5, "content_type": "text/plain"}, "int is written as JSON"),
    ],
)
def test_events_without_meaning(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        NewEvent(**fields)


def test_receipts() -> None:
    events = '{"id":"5","cursor":"e.5","time":"T"},{"id":"6","cursor":"e.6","time":"U"}'
    body = f'{{"events":[{events}],"version":"6","version_cursor":"e.6"}}'.encode()
    assert receipts_of(body, 2, repeated=True) == [
        Receipt("5", "e.5", "T", "e.6", True),
        Receipt("6", "e.6", "U", "e.6", True),
    ]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"<html>", b'{"events":[]}', b'{"events":[1],"version_cursor":"e.1"}', b"\xff"]
)
def test_answers_that_no_hub_gives(body: bytes) -> None:
    with pytest.raises(BadAnswer, match="is the URL that of a hub"):
        receipts_of(body, 1)


def test_receipts_of_another_number_of_events() -> None:
    with pytest.raises(BadAnswer, match="names 0 events, 1 were"):
        receipts_of(b'{"events":[],"version_cursor":"e.6"}', 1)
