"""Lines of a watch: in any parts, torn, of other types, and none of a hub's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.client.errors import BadAnswer
from griphub.client.key_range import WHOLE, KeyRange
from griphub.client.watch_lines import EventLine, Expired, ProgressLine, WatchLine, WatchLines, checked_event
from griphub.client.watch_messages import Resync, Version

EVENT = {
    "type": "event", "id": "5", "cursor": "e.5", "prev_id": "3", "version": "6", "version_cursor": "e.6",
    "time": "2026-11-23T19:00:00.123456Z", "key": "k", "op": "put", "content_type": "application/json", "data": 1,
}  # fmt: skip
PROGRESS = {"type": "progress", "low": "a", "high": None, "version": "7", "cursor": "e.7.1700000000000000"}
RESYNC = {"type": "resync", "reason": "not retained", "floor_cursor": "e.3", "snapshot": "snapshot"}


def text(*documents: Any) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def lines(data: bytes, size: int = 1000) -> list[WatchLine]:
    parser = WatchLines()
    fed = [line for at in range(0, len(data), size) for line in parser.feed(data[at : at + size])]
    return [line for line in fed if line is not None]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_may_arrive_in_any_parts(size: int) -> None:
    event, progress, resync, expired = lines(text(EVENT, PROGRESS, RESYNC, {"type": "expired"}), size)
    assert isinstance(event, EventLine)
    assert (event.event.key, event.version, event.last) == ("k", Version("e", 6), False)
    assert event.size == len(text(EVENT)) - 1
    assert progress == ProgressLine(KeyRange("a"), Version("e", 7), "e.7.1700000000000000")
    assert resync == Resync("not retained", "e.3", "snapshot")
    assert expired == Expired()


def test_a_torn_line_has_no_effect_and_other_types_are_passed_over() -> None:
    assert lines(text(EVENT)[:-1]) == []
    assert lines(b"\n  \n" + text({"type": "hello"}, {})) == []
    assert lines(text({"type": "resync"})) == [Resync("the events that follow are not retained")]


def test_an_event_whose_cursor_is_that_of_its_version_is_the_last_of_its_transaction() -> None:
    (line,) = lines(text({**EVENT, "cursor": "e.6", "id": "6"}))
    assert isinstance(line, EventLine)
    assert line.last


def test_an_event_of_a_soft_topic_may_have_a_place_only() -> None:
    document = {"type": "event", "key": "k", "op": "put", "cursor": "e.6.1700000000000000", "data": 1}
    (line,) = lines(text(document))
    assert isinstance(line, EventLine)
    assert (line.event.data, line.event.id, line.last) == (1, "", False)
    assert line.event.document == document
    assert line.event.version_cursor == "e.6.9223372036854775807", "behind all events that share the version"
    with pytest.raises(BadAnswer, match="no cursor"):
        lines(text({"type": "event", "key": "k", "op": "put", "data": 1}))


def test_progress_without_bounds_is_of_all_keys() -> None:
    (line,) = lines(text({"type": "progress", "version": "7", "cursor": "e.7"}))
    assert isinstance(line, ProgressLine)
    assert line.range == WHOLE


@pytest.mark.parametrize(
    "document",
    [
        {**EVENT, "key": 7},
        {**EVENT, "key": ""},
        {**EVENT, "key": "\ud800"},
        {**EVENT, "op": "change"},
        {**EVENT, "op": None},
        {**EVENT, "key": None},
        {**EVENT, "version_cursor": "6"},
        {**EVENT, "version_cursor": None},
        {**EVENT, "data_base64": "!"},
        {**PROGRESS, "cursor": 7},
        {**PROGRESS, "cursor": "7"},
        {**PROGRESS, "low": 7},
        {**PROGRESS, "high": "a"},
        {**PROGRESS, "low": "\udfff"},
        [],
        7,
    ],
)
def test_lines_of_no_hub_are_refused(document: Any) -> None:
    with pytest.raises(BadAnswer):
        lines(text(document))


@given(st.lists(st.sampled_from([EVENT, PROGRESS, RESYNC, {}, 7, "x"]) | st.binary(max_size=8), max_size=5), st.data())
def test_any_bytes_have_one_meaning_or_are_refused(parts: list[Any], data: st.DataObject) -> None:
    stream = b"".join(part if isinstance(part, bytes) else text(part) for part in parts)
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(stream)))
        stream = stream[:at] + data.draw(st.binary(max_size=3)) + stream[at:]

    def meaning(size: int) -> list[str]:
        parser, found = WatchLines(), list[str]()
        try:
            for at in range(0, len(stream), size):
                for line in parser.feed(stream[at : at + size]):
                    found.append(repr(line))
        except BadAnswer as error:
            found.append(type(error).__name__)
        return found

    assert meaning(1) == meaning(1000)


def test_a_line_is_bounded() -> None:
    parser = WatchLines(limit=100)
    assert list(parser.feed(b"x" * 100)) == []
    with pytest.raises(BadAnswer, match="more than 100 bytes"):
        list(parser.feed(b"x"))


def test_an_event_without_key() -> None:
    document = {name: value for name, value in EVENT.items() if name not in ("key", "op")}
    assert checked_event(document).key is None


def test_a_line_that_is_torn_anywhere_has_no_effect_and_comes_again() -> None:
    """Also within a character: the next stream gives the whole event, once."""
    event = {**EVENT, "data": "caf\u00e9 \U0001f600"}
    whole = json.dumps(event, ensure_ascii=False).encode() + b"\n"
    for cut in range(len(whole)):
        assert lines(whole[:cut]) == []
        torn, again = WatchLines(), WatchLines()
        found = [*torn.feed(whole[:cut]), *again.feed(whole)]
        [line] = found
        assert isinstance(line, EventLine)
        assert line.event.data == "caf\u00e9 \U0001f600"
