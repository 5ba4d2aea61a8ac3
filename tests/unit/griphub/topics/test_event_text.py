"""Texts of events: one JSON object in one line, in the frame of each representation."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.store.cursor import EpochInterval, is_known, parse_cursor
from griphub.store.event import NO_ATTRIBUTES, Event, Operation
from griphub.topics.event_text import (
    ContentKind,
    Epochs,
    Representation,
    content_kind,
    control_text,
    empty_text,
    event_json,
    event_json_of,
    progress_text,
    render,
    render_events,
    render_text,
)

INTERVALS = (EpochInterval("old", 1, 10), EpochInterval("new", 1000, None))
EPOCHS = Epochs(INTERVALS)
TIME = 1_795_460_400_123_456


def event(
    data: bytes = b'{"a":1}',
    content_type: str = "application/json",
    *,
    id: int = 1005,
    version: int = 1006,
    key: str | None = None,
    op: Operation = "put",
    attributes: Mapping[str, str] = NO_ATTRIBUTES,
) -> Event:
    return Event(id, 1003, version, TIME, data, content_type, key, op, attributes)


def test_members_stand_in_their_order() -> None:
    whole = event(key="k", attributes=MappingProxyType({"a": "b"}))
    assert event_json(whole, 1003, EPOCHS) == (
        b'{"type":"event","id":"1005","cursor":"new.1005","prev_id":"1003","version":"1006",'
        b'"version_cursor":"new.1006","time":"2026-11-23T19:00:00.123456Z","key":"k","op":"put",'
        b'"content_type":"application/json","attributes":{"a":"b"},"data":{"a":1}}'
    )


def test_key_op_and_attributes_are_left_out_if_there_are_none() -> None:
    assert event_json(event(), 0, EPOCHS) == (
        b'{"type":"event","id":"1005","cursor":"new.1005","prev_id":"0","version":"1006","version_cursor":"new.1006",'
        b'"time":"2026-11-23T19:00:00.123456Z","content_type":"application/json","data":{"a":1}}'
    )


def test_plain_values_make_the_text_of_the_event() -> None:
    values = (1005, 1003, 1006, TIME, b"x", "text/plain", "k", "delete", '{"a":"b"}')
    whole = event(b"x", "text/plain", key="k", op="delete", attributes=MappingProxyType({"a": "b"}))
    assert event_json_of(*values, EPOCHS) == event_json(whole, 1003, EPOCHS)  # type: ignore[arg-type]


def test_an_event_of_an_older_epoch_has_its_cursors() -> None:
    found = json.loads(event_json(event(id=5, version=6), 3, EPOCHS))
    assert (found["cursor"], found["version_cursor"], found["prev_id"]) == ("old.5", "old.6", "3")


@pytest.mark.parametrize(
    ("data", "content_type", "members"),
    [
        (b'{"a":\r\n[1,\n2]}', "application/json", {"data": {"a": [1, 2]}}),
        (b"[]", "application/geo+json; charset=utf-8", {"data": []}),
        (b"null", "APPLICATION/JSON", {"data": None}),
        ('é\n"\0\u2028'.encode(), "text/plain", {"data": 'é\n"\0\u2028'}),
        (b"", "text/plain", {"data": ""}),
        (b"x", "text/html; charset=UTF-8", {"data": "x"}),
        (b"\xff\xfe", "text/plain", {"data_base64": "//4="}),
        (b"x", "text/plain; charset=iso-8859-1", {"data_base64": "eA=="}),
        (b"x", "application/octet-stream", {"data_base64": "eA=="}),
        (b"", "application/octet-stream", {"data_base64": ""}),
        (b"", "application/json", {}),
    ],
)
def test_a_content_is_json_text_or_base64(data: bytes, content_type: str, members: dict[str, object]) -> None:
    text = event_json(event(data, content_type), 0, EPOCHS)
    assert b"\n" not in text
    assert b"\r" not in text
    found = json.loads(text)
    assert {name: found[name] for name in found if name.startswith("data")} == members
    assert found["content_type"] == content_type


@pytest.mark.parametrize(("data", "members"), [(b"", {}), (b"7", {"data": 7})])
def test_a_deletion_has_data_only_if_there_is_some(data: bytes, members: dict[str, object]) -> None:
    found = json.loads(event_json(event(data, key="k", op="delete"), 0, EPOCHS))
    assert found["op"] == "delete"
    assert {name: found[name] for name in found if name.startswith("data")} == members


@given(
    data=st.binary(max_size=40),
    content_type=st.sampled_from(["text/plain", "image/png", 'text/x; a="\\"']),
    key=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    names=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.just('"\n\u2028'), max_size=3
    ),
)
def test_any_event_is_one_line_of_json(data: bytes, content_type: str, key: str | None, names: dict[str, str]) -> None:
    text = event_json(event(data, content_type, key=key, attributes=MappingProxyType(names)), 0, EPOCHS)
    found = json.loads(text)
    assert b"\n" not in text
    assert found.get("key") == key
    assert found.get("attributes", {}) == names
    assert (found["data"].encode() if "data" in found else base64.b64decode(found["data_base64"])) == data


def test_each_representation_has_its_frame() -> None:
    text = event_json(event(), 1003, EPOCHS)
    frames = {
        Representation.SSE: b"id: new.1005\ndata: %b\n\n" % text,
        Representation.LINES: text + b"\n",
        Representation.WS: text,
        Representation.POLL: text,
    }
    for representation, expected in frames.items():
        assert render(event(), 1003, EPOCHS, representation) == expected
        assert render_text(text, "new.1005", representation) == expected


def test_the_chain_of_a_range_runs_through_its_events() -> None:
    events = [event(id=1005, version=1005), event(id=1009, version=1009)]
    joined = render_events(events, 7, EPOCHS, Representation.POLL)
    assert [each["prev_id"] for each in json.loads(b"[%b]" % joined)] == ["7", "1005"]
    joined = render_events(iter(events), 0, EPOCHS, Representation.POLL)
    assert [each["prev_id"] for each in json.loads(b"[%b]" % joined)] == ["0", "1005"]
    joined = render_events(events, None, EPOCHS, Representation.POLL)
    assert [each["prev_id"] for each in json.loads(b"[%b]" % joined)] == ["1003", "1003"]


def test_events_are_joined_as_the_representation_has_them() -> None:
    events = [event(id=1005), event(id=1006)]
    for representation in (Representation.SSE, Representation.LINES):
        parts = [render(events[0], 1, EPOCHS, representation), render(events[1], 1005, EPOCHS, representation)]
        assert render_events(events, 1, EPOCHS, representation) == b"".join(parts)
    assert len(render_events(events, 1, EPOCHS, Representation.WS).split(b"\n")) == 2
    assert render_events([], 1, EPOCHS, Representation.POLL) == b""


@pytest.mark.parametrize(
    ("kind", "representation", "expected"),
    [
        ("resync", Representation.SSE, b'event: resync\nid: resync\ndata: {"a":1}\n\n'),
        ("truncated", Representation.SSE, b'event: truncated\ndata: {"a":1}\n\n'),
        ("expired", Representation.SSE, b'event: expired\ndata: {"a":1}\n\n'),
        ("resync", Representation.LINES, b'{"a":1}\n'),
        ("resync", Representation.WS, b'{"a":1}'),
        ("truncated", Representation.POLL, b'{"a":1}'),
    ],
)
def test_a_report_is_no_event(kind: str, representation: Representation, expected: bytes) -> None:
    assert control_text(kind, b'{"a":1}', representation) == expected


def test_only_event_streams_have_a_content_without_an_event() -> None:
    found = {representation: empty_text("new.7", representation) for representation in Representation}
    assert found.pop(Representation.SSE) == found.pop(Representation.WATCH_SSE) == b"id: new.7\n\n"
    assert set(found.values()) == {b""}


@pytest.mark.parametrize("id", [0, 1, 5, 10, 999, 1000, 10**15])
def test_the_cursor_of_an_id_that_was_issued_is_known(id: int) -> None:
    assert is_known(parse_cursor(EPOCHS.cursor(id)), INTERVALS, 10**15)


def test_the_cursor_of_an_id_that_was_never_issued_is_gone() -> None:
    assert not is_known(parse_cursor(EPOCHS.cursor(500)), INTERVALS, 10**15)


def test_an_epoch_without_a_gap_leaves_ids_with_the_one_before() -> None:
    epochs = Epochs((EpochInterval("a", 1, 10), EpochInterval("b", 11, None)))
    assert [epochs.cursor(id) for id in (9, 10, 11)] == ["a.9", "a.10", "b.11"]
    assert Epochs((EpochInterval("a", 5, None),)).cursor(2) == "a.2"


def test_media_types_have_kinds() -> None:
    assert content_kind("application/problem+JSON ; a=b") is ContentKind.JSON
    assert content_kind("application/jsonl") is ContentKind.BINARY
    assert content_kind("text/json") is ContentKind.TEXT
    assert content_kind('text/plain; charset="utf-8"') is ContentKind.TEXT


@pytest.mark.parametrize(
    ("representation", "before", "behind"),
    [
        (Representation.WATCH_SSE, b"event: progress\nid: new.7.99\ndata: ", b"\n\n"),
        (Representation.WATCH_LINES, b"", b"\n"),
        (Representation.WATCH_WS, b"", b""),
    ],
)
def test_progress_is_one_object_with_a_cursor(representation: Representation, before: bytes, behind: bytes) -> None:
    text = progress_text(7, "new.7.99", "a", None, representation)
    assert text.startswith(before)
    members = text.removeprefix(before).removesuffix(behind)
    assert json.loads(members) == {
        "type": "progress",
        "low": "a",
        "high": None,
        "version": "7",
        "cursor": "new.7.99",
    }
    assert text == before + members + behind
    assert progress_text(7, "new.7.99", "a", None, representation.frame) == text


def test_each_form_of_watching_has_the_contents_of_one_of_following() -> None:
    watching = [form for form in Representation if form.watches]
    assert [form.frame for form in watching] == [Representation.SSE, Representation.LINES, Representation.WS]
    assert [form.frame.watching for form in watching] == [form.watching for form in watching] == watching
    assert all(form.frame is form for form in Representation if not form.watches)
