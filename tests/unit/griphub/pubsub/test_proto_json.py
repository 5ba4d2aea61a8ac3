"""JSON of messages (scenarios 5, 6, 7, 9)."""

from __future__ import annotations

from typing import Any

import pytest

from griphub.pubsub.proto_json import Field, Kind, MessageType, camel_case, read_message, snake_case, write_message
from griphub.pubsub.status import ApiError

INNER = MessageType("Inner", (Field("someText", Kind.STRING), Field("flag", Kind.BOOL)))
OUTER = MessageType(
    "Outer",
    (
        Field("name", Kind.STRING),
        Field("maxMessages", Kind.INT32),
        Field("data", Kind.BYTES),
        Field("ackIds", Kind.STRING, repeated=True),
        Field("labels", Kind.STRINGS),
        Field("waitFor", Kind.DURATION),
        Field("atTime", Kind.TIMESTAMP),
        Field("state", Kind.ENUM, names=("STATE_UNSPECIFIED", "ACTIVE")),
        Field("one", Kind.MESSAGE, INNER, oneof="target"),
        Field("other", Kind.STRING, oneof="target"),
        Field("inner", Kind.MESSAGE, INNER),
        Field("schemaSettings", Kind.OUTPUT, reason="schemas are not served"),
        Field("satisfiesPzs", Kind.OUTPUT),
        Field("tags", Kind.STRINGS, reason="tags are not served"),
    ),
)


def read(**value: Any) -> dict[str, Any]:
    return read_message(OUTER, value)


def refusal(value: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read_message(OUTER, value)
    return caught.value


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("name", "x", "x"),
        ("maxMessages", 5, 5),
        ("max_messages", "5", 5),
        ("maxMessages", 5.0, 5),
        ("maxMessages", "5.0", 5),
        ("maxMessages", -(2**31), -(2**31)),
        ("data", "aGk=", b"hi"),
        ("data", "aGk", b"hi"),
        ("data", "-_8=", b"\xfb\xff"),
        ("data", "+/8", b"\xfb\xff"),
        ("data", "", b""),
        ("ack_ids", ["a", "b"], ["a", "b"]),
        ("labels", {"a": "b"}, {"a": "b"}),
        ("waitFor", "1.5s", 1_500_000_000),
        ("at_time", "1970-01-01T00:00:01Z", 10**9),
        ("state", "ACTIVE", "ACTIVE"),
        ("state", 1, "ACTIVE"),
        ("inner", {"some_text": "x", "flag": False}, {"someText": "x", "flag": False}),
        ("inner", {}, {}),
    ],
)
def test_values(name: str, value: Any, expected: Any) -> None:
    assert read(**{name: value}) == {camel_case(snake_case(name)): expected}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", 5),
        ("maxMessages", "x"),
        ("maxMessages", 5.5),
        ("maxMessages", "5.5"),
        ("maxMessages", 2**31),
        ("maxMessages", True),
        ("maxMessages", 1e300),
        ("maxMessages", float("inf")),
        ("data", "%%%"),
        ("data", "a"),
        ("data", "aGk=="),
        ("data", "aGk=aGk="),
        ("data", "aGk\n"),
        ("data", 5),
        ("ackIds", "a"),
        ("ackIds", [5]),
        ("ackIds", [None]),
        ("labels", {"a": 5}),
        ("labels", []),
        ("waitFor", 600),
        ("waitFor", "600"),
        ("atTime", "yesterday"),
        ("state", "OTHER"),
        ("state", 7),
        ("state", -1),
        ("inner", []),
        ("inner", {"flag": "true"}),
        ("inner", {"flag": 1}),
    ],
)
def test_other_values_are_refused(name: str, value: Any) -> None:
    error = refusal({name: value})
    assert error.code == "INVALID_ARGUMENT"
    assert f"Invalid value at '{snake_case(name)}" in str(error)


def test_null_is_absent() -> None:
    assert read(**{field.name: None for field in OUTER.fields}) == {}


def test_an_unknown_field_is_named() -> None:
    error = refusal({"nme": 1, "inner": {}})
    assert str(error) == 'Invalid JSON payload received. Unknown name "nme": Cannot find field.'
    [details] = error.details
    assert details["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert details["fieldViolations"] == [{"description": str(error)}]
    assert "Unknown name \"x\" at 'inner': Cannot find field." in str(refusal({"inner": {"x": None}}))


def test_both_spellings_of_a_field_are_refused() -> None:
    assert "'max_messages' is there in two spellings" in str(refusal({"maxMessages": 1, "max_messages": 1}))


def test_one_of_a_group() -> None:
    assert read(one={}) == {"one": {}}
    assert read(one={}, other=None) == {"one": {}}
    text = "Invalid value (oneof), oneof field 'target' is already set. Cannot set 'other'"
    assert str(refusal({"one": {}, "other": "x"})) == text


def test_no_object() -> None:
    assert refusal([]).code == refusal("x").code == refusal(None).code == "INVALID_ARGUMENT"


def test_fields_that_only_the_service_sets_are_ignored() -> None:
    assert read(satisfiesPzs=True) == {}


def test_what_is_not_served_is_refused_unless_it_is_empty() -> None:
    assert read(tags={}) == {}
    error = refusal({"tags": {"a": "b"}})
    assert (error.code, error.status, str(error)) == ("UNIMPLEMENTED", 501, "tags: tags are not served")


def test_writing() -> None:
    values = read(
        inner={}, data="aGk", state=1, wait_for="600.5s", at_time="2024-01-01T00:00:00+01:00", ackIds=["a"], labels={}
    )
    assert write_message(OUTER, values) == {
        "data": "aGk=",
        "ackIds": ["a"],
        "labels": {},
        "waitFor": "600.500s",
        "atTime": "2023-12-31T23:00:00Z",
        "state": "ACTIVE",
        "inner": {},
    }
    assert write_message(OUTER, values, numbers=True)["state"] == 1
