"""CloudEvents 1.0: events of the official library are taken in every mode, and it reads them back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from cloudevents.core.bindings.http import (
    HTTPMessage,
    from_binary_event,
    from_structured_event,
    to_binary_event,
    to_structured_event,
)
from cloudevents.core.v1.event import CloudEvent

from griphub.api.cloudevents import BATCHED_TYPE, STRUCTURED_TYPE, binary_draft, decoded_base64, structured_draft
from griphub.api.problem import Problem
from griphub.api.publish_body import drafts_of
from griphub.api.query import PublishQuery
from griphub.store.event import Draft

ATTRIBUTES: dict[str, Any] = {
    "id": "A-1",
    "source": "/sensors/tn-1/a%20b",
    "type": "com.example.read",
    "specversion": "1.0",
    "time": datetime(2026, 11, 23, 19, 0, 0, 123456, UTC),
    "subject": 'Euro € 😀 "quoted" 100%',
    "dataschema": "https://example.com/schema?x=1",
    "partitionkey": "käy/1",
}

CONTENTS: list[tuple[str | None, Any]] = [
    ("application/json", {"a": [1, 2.5, None, "é"]}),
    ("application/geo+json; charset=utf-8", {"a": {}}),
    ("text/plain", "é\n"),
    ("application/xml", "<much wow='xml'/>"),
    ("application/octet-stream", b"\x00\xff"),
    (None, {"a": 1}),
    (None, None),
]


def made(content_type: str | None, data: Any) -> CloudEvent:
    attributes = ATTRIBUTES if content_type is None else {**ATTRIBUTES, "datacontenttype": content_type}
    return CloudEvent(dict(attributes), data)


def lines(message: HTTPMessage) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in message.headers.items()]


def read_back(draft: Draft) -> Any:
    """Return the event that the library makes of a stored one, in binary mode."""
    headers = {name: value.replace("%", "%25").replace(" ", "%20") for name, value in draft.attributes.items()}
    return from_binary_event(HTTPMessage({**headers, "content-type": draft.content_type}, draft.data))


@pytest.mark.parametrize(("content_type", "data"), CONTENTS)
@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_an_event_of_the_library_is_stored_and_read_back(mode: str, content_type: str | None, data: Any) -> None:
    event = made(content_type, data)
    message = to_structured_event(event) if mode == "structured" else to_binary_event(event)
    (draft,) = drafts_of(lines(message), PublishQuery(key_attribute="partitionkey"), message.body)
    assert draft.key == "käy/1"
    assert draft.op == "put"
    assert draft.attributes["ce-subject"] == ATTRIBUTES["subject"]
    again = read_back(draft)
    if content_type is not None:
        assert draft.content_type == content_type
        assert again.get_data() == data
    else:
        # Without datacontenttype binary mode has bytes, and the JSON format JSON.
        assert draft.content_type == ("application/json" if mode == "structured" else "application/octet-stream")
        assert draft.data == (
            b"" if data is None else orjson.dumps(data) if mode == "structured" else json.dumps(data).encode()
        )
    assert (again.get_id(), again.get_source(), again.get_type()) == ("A-1", ATTRIBUTES["source"], "com.example.read")
    assert (again.get_time(), again.get_subject()) == (ATTRIBUTES["time"], ATTRIBUTES["subject"])
    assert again.get_extension("partitionkey") == "käy/1"


def test_a_batch_of_the_library_is_stored_in_order() -> None:
    events = [made(content_type, data) for content_type, data in CONTENTS]
    body = b"[%b]" % b",".join(to_structured_event(event).body for event in events)
    drafts = drafts_of([(b"content-type", b"application/cloudevents-batch+json; charset=utf-8")], PublishQuery(), body)
    assert [draft.data for draft in drafts] == [
        b'{"a":[1,2.5,null,"\xc3\xa9"]}',
        b'{"a":{}}',
        "é\n".encode(),
        b"<much wow='xml'/>",
        b"\x00\xff",
        b'{"a":1}',
        b"",
    ]
    assert [draft.key for draft in drafts] == [None] * 7
    assert [draft.content_type for draft in drafts[5:]] == ["application/json"] * 2


def test_a_stored_event_is_a_structured_one_again() -> None:
    message = to_structured_event(made("application/json", {"a": 1}))
    (draft,) = drafts_of(lines(message), PublishQuery(), message.body)
    document = {name.removeprefix("ce-"): value for name, value in draft.attributes.items()}
    body = json.dumps({**document, "datacontenttype": draft.content_type, "data": json.loads(draft.data)}).encode()
    again = from_structured_event(HTTPMessage({"content-type": STRUCTURED_TYPE}, body))
    assert again.get_attributes() == made("application/json", {"a": 1}).get_attributes()
    assert again.get_data() == {"a": 1}


LEAST: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def refusal(members: object, key: str | None = None) -> str:
    with pytest.raises(Problem) as caught:
        structured_draft(members, "the body", key)
    assert caught.value.status == 400
    assert len(caught.value.detail) < 600
    return caught.value.detail


def test_attributes_of_other_types_become_their_canonical_text() -> None:
    draft = structured_draft({**LEAST, "sampled": True, "off": False, "n": -(2**31), "none": None}, "x", None)
    assert {name: value for name, value in draft.attributes.items() if name[3:] not in LEAST} == {
        "ce-sampled": "true",
        "ce-off": "false",
        "ce-n": "-2147483648",
    }


@pytest.mark.parametrize(
    ("members", "content", "content_type"),
    [
        ({"data": "text"}, b'"text"', "application/json"),
        ({"data": None}, b"null", "application/json"),
        ({"data": "x", "datacontenttype": "text/plain"}, b"x", "text/plain"),
        ({"data": None, "datacontenttype": "text/plain"}, b"", "text/plain"),
        ({"data": "x", "datacontenttype": "application/json"}, b'"x"', "application/json"),
        ({"data_base64": "AP8="}, b"\x00\xff", "application/octet-stream"),
        ({"data_base64": "e30=", "datacontenttype": "application/json"}, b"{}", "application/json"),
        ({"data_base64": None, "data": 1}, b"1", "application/json"),
        ({}, b"", "application/json"),
    ],
)
def test_contents_are_json_text_or_bytes(members: dict[str, object], content: bytes, content_type: str) -> None:
    draft = structured_draft({**LEAST, **members}, "x", None)
    assert (draft.data, draft.content_type) == (content, content_type)


@pytest.mark.parametrize(
    ("members", "cure"),
    [
        ({"id": None}, "attribute id is missing"),
        ({"id": ""}, "attribute id is empty"),
        ({"id": 5}, "'id' is a number: expected a string"),
        ({"source": ""}, "attribute source is empty"),
        ({"source": "a b"}, "is no URI reference"),
        ({"source": "é"}, "is no URI reference"),
        ({"source": "/%zz"}, "is no URI reference"),
        ({"type": True}, "'type' is a boolean"),
        ({"specversion": "0.3"}, "specversion='0.3' is not supported: expected '1.0'"),
        ({"specversion": "1.0.2"}, "expected '1.0'"),
        ({"specversion": 1.0}, "'specversion' is a number"),
        ({"subject": ""}, "subject='' is empty"),
        ({"dataschema": "/relative"}, "is no absolute URI"),
        ({"dataschema": ""}, "is no absolute URI"),
        ({"datacontenttype": "json"}, "expected TYPE/SUBTYPE"),
        ({"datacontenttype": "x" * 10**5, "data": 1}, "expected TYPE/SUBTYPE"),
        ({"datacontenttype": 5}, "'datacontenttype' is a number"),
        ({"time": "2026-11-23T19:00:00"}, "has no zone"),
        ({"time": "0000-01-01T00:00:00Z"}, "year 0001"),
        ({"time": 1}, "'time' is a number: expected a string"),
        ({"Key": "x"}, "lower-case letters and digits only"),
        ({"a-b": "x"}, "lower-case letters and digits only"),
        ({"": "x"}, "lower-case letters and digits only"),
        ({"a" * 10**5: "x"}, "expected 1 to 256"),
        ({"x": "a\nb"}, "character U+000A"),
        ({"x": "\x7f"}, "character U+007F"),
        ({"x": "\uffff"}, "character U+FFFF"),
        ({"x": "v" * 4097}, "at most 4096"),
        ({"x": 2**31}, "an integer of 32 bits"),
        ({"x": 1.5}, "an integer of 32 bits"),
        ({"x": []}, "'x' is an array"),
        ({"x": {}}, "'x' is an object"),
        ({"data": 1, "data_base64": "AA=="}, "only one of them"),
        ({"data": {}, "datacontenttype": "text/plain"}, "expected a string, or data_base64"),
        ({"data": 1, "datacontenttype": "application/xml"}, "expected a string, or data_base64"),
        ({"data_base64": "AA"}, "is no base64"),
        ({"data_base64": "A A="}, "is no base64"),
        ({"data_base64": "_-8="}, "is no base64"),
        ({"data_base64": "é"}, "is no base64"),
        ({"data_base64": 5}, "is a number: expected a string"),
        ({"data_base64": "AA==", "datacontenttype": "application/json"}, "data_base64 is no JSON"),
        ({str(n): "x" for n in range(97)}, "at most 100"),
    ],
)
def test_events_that_break_the_specification_are_refused(members: dict[str, object], cure: str) -> None:
    assert cure in refusal({**LEAST, **members})


@pytest.mark.parametrize("value", [None, [], "x", 1, True])
def test_an_event_is_an_object(value: object) -> None:
    assert "expected a CloudEvent" in refusal(value)


def test_the_key_is_an_attribute_only_if_it_is_named() -> None:
    event = {**LEAST, "partitionkey": "k"}
    assert structured_draft(event, "x", None).key is None
    assert structured_draft(event, "x", "partitionkey").key == "k"
    assert structured_draft(event, "x", "other").key is None
    assert structured_draft(event, "x", "type").key == "t"
    assert "key '' has 0 bytes" in refusal({**LEAST, "partitionkey": ""}, "partitionkey")


BINARY = [(b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"/s"), (b"ce-type", b"t")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        ("é".encode(), "é"),
        (b'"a b"', "a b"),
        (b'"a \\"b\\" \\\\"', 'a "b" \\'),
        (b'"%20%25"', " %"),
        (b"a%2525", "a%25"),
        (b"", ""),
    ],
)
def test_headers_are_unquoted_and_percent_decoded(value: bytes, text: str) -> None:
    draft = binary_draft([*BINARY, (b"ce-x", value)], "text/plain", b"", None)
    assert draft.attributes["ce-x"] == text


@pytest.mark.parametrize(
    ("headers", "body", "cure"),
    [
        (BINARY[1:], b"", "attribute specversion is missing"),
        (BINARY[:3], b"", "attribute type is missing"),
        ([*BINARY, (b"ce-id", b"2")], b"", "ce-id is given several times"),
        ([*BINARY, (b"ce-data", b"2")], b"", "ce-data is not allowed"),
        ([*BINARY, (b"ce-datacontenttype", b"a/b")], b"", "ce-datacontenttype is not allowed"),
        ([*BINARY, (b"ce-x", b"%")], b"", "without two hexadecimal digits"),
        ([*BINARY, (b"ce-x", b"%4")], b"", "without two hexadecimal digits"),
        ([*BINARY, (b"ce-x", b"%ff")], b"", "is no UTF-8"),
        ([*BINARY, (b"ce-x", b"\xff")], b"", "is no UTF-8"),
        ([*BINARY, (b"ce-x", b"%00")], b"", "character U+0000"),
        ([*BINARY, (b"ce-x_y", b"1")], b"", "lower-case letters and digits only"),
        ([*BINARY, (b"ce-", b"1")], b"", "lower-case letters and digits only"),
        ([*BINARY, (b"ce-time", b"now")], b"", "time='now' is no time"),
        ([*BINARY], b"{", "the body is no JSON"),
    ],
)
def test_other_headers_are_refused(headers: list[tuple[bytes, bytes]], body: bytes, cure: str) -> None:
    with pytest.raises(Problem) as caught:
        binary_draft(headers, "application/json", body, None)
    assert cure in caught.value.detail


def test_base64_is_the_usual_one_with_padding() -> None:
    assert decoded_base64("", "x") == b""
    assert decoded_base64("+/8=", "x") == b"\xfb\xff"


def test_formats_have_media_types() -> None:
    assert to_structured_event(made(None, None)).headers["content-type"].startswith(STRUCTURED_TYPE)
    assert BATCHED_TYPE == "application/cloudevents-batch+json"
