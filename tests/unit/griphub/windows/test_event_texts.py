"""Texts of events of soft topics."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from griphub.windows.event_texts import event_text, position_of, reference_text
from griphub.windows.soft_event import SoftEvent


def event(data: bytes, content_type: str = "application/json", op: Any = "put", **attributes: str) -> SoftEvent:
    return SoftEvent(17, 5, "k", op, data, content_type, attributes)


def test_an_event_has_a_cursor_and_the_version_of_its_source() -> None:
    document = orjson.loads(event_text(event(b'{"n":1}', tenant="x"), "ab"))
    assert document == {
        "type": "event",
        "cursor": "ab.17.5",
        "version": "17",
        "key": "k",
        "op": "put",
        "content_type": "application/json",
        "attributes": {"tenant": "x"},
        "data": {"n": 1},
    }
    assert str(position_of(event(b"1"), "ab")) == "ab.17.5"


@pytest.mark.parametrize(
    ("given", "member"),
    [
        (event(b"[1,\r\n2]"), {"data": [1, 2]}),
        (event(b""), {}),
        (event(b"", "application/octet-stream", "delete"), {}),
        (event(b"", "application/octet-stream"), {"data_base64": ""}),
        (event(b"caf\xc3\xa9", "text/plain"), {"data": "café"}),
        (event(b"caf\xe9", "text/plain"), {"data_base64": "Y2Fm6Q=="}),
        (event(b"\0\1", "image/png"), {"data_base64": "AAE="}),
    ],
)
def test_its_data_are_embedded_by_their_media_type(given: SoftEvent, member: dict[str, Any]) -> None:
    text = event_text(given, "ab")
    assert b"\n" not in text
    document = orjson.loads(text)
    assert {name: value for name, value in document.items() if name.startswith("data")} == member


def test_a_reference_has_the_size_in_place_of_the_data() -> None:
    document = orjson.loads(reference_text(event(b'"long"'), "ab", 700_000))
    assert "data" not in document
    assert (document["key"], document["size"]) == ("k", 700_000)
