"""Items of the hub, as the handler reads them."""

from __future__ import annotations

import json

import orjson
import pytest

from griphub.topics.event_text import Representation
from griphub.topics.items import hint_item, move_item, page_body, page_item, stream_item
from gripproxy.grip.item import Item, MessageFormat, ResponseFormat, StreamFormat
from gripproxy.grip.item_json import parse_json

CHANNEL = 'hub/7/sse/"é'

SSE, LINES, WS, POLL = Representation.SSE, Representation.LINES, Representation.WS, Representation.POLL


def read(item: bytes) -> Item:
    """Return an item as the handler reads it; all have the channel, and are one line."""
    assert b"\n" not in item
    found = parse_json(orjson.loads(item))
    assert found.channel.decode() == CHANNEL
    return found


@pytest.mark.parametrize("form", [SSE, LINES])
def test_an_event_for_streams(form: Representation) -> None:
    item = read(stream_item(CHANNEL, "e.5", "e.3", form, 'data: "é\U00010000"\n\n'.encode()))
    assert (item.id, item.prev_id) == (b"e.5", b"e.3")
    assert item.stream == StreamFormat("send", 'data: "é\U00010000"\n\n'.encode())
    assert item.response is None
    assert item.message is None


def test_an_event_for_websockets() -> None:
    item = read(stream_item(CHANNEL, "e.5", "0", WS, b'{"a":1}'))
    assert (item.id, item.prev_id) == (b"e.5", b"0")
    assert item.message == MessageFormat("send", "text", b'{"a":1}')
    assert item.response is None
    assert item.stream is None


def test_a_page_for_long_polls() -> None:
    item = read(page_item(CHANNEL, "e.5", "e.3", [b'{"id":"4"}', b'{"id":"5"}'], "?after=e.5"))
    assert (item.id, item.prev_id) == (b"e.5", b"e.3")
    assert item.response is not None
    assert item.response.body is not None
    assert item.response.code == 200
    assert json.loads(item.response.body) == {"events": [{"id": "4"}, {"id": "5"}], "cursor": "e.5", "more": False}
    assert (b"Link", b'<?after=e.5>; rel="next"') in item.response.headers
    assert (b"Content-Type", b"application/json") in item.response.headers


def test_a_page_with_a_loss() -> None:
    body = page_body([b"1", b"2"], "e.9", more=True, truncated=b'{"floor":"7"}')
    assert json.loads(body) == {"events": [1, 2], "cursor": "e.9", "more": True, "truncated": {"floor": "7"}}
    assert page_body(b"1,2", "e.9", more=True, truncated=b'{"floor":"7"}') == body
    assert json.loads(page_body([], "0", more=False)) == {"events": [], "cursor": "0", "more": False}


@pytest.mark.parametrize("form", Representation)
@pytest.mark.parametrize(("id", "previous"), [("e.5", "e.3"), ("", "")])
def test_a_hint_in_place_of_events_and_one_of_its_own(form: Representation, id: str, previous: str) -> None:
    item = read(hint_item(CHANNEL, form, id, previous))
    assert (item.id or b"", item.prev_id or b"") == (id.encode(), previous.encode())
    formats = {SSE: item.stream, LINES: item.stream, WS: item.message, POLL: item.response}
    hint = formats[form.frame]
    assert hint is not None
    assert hint.action == "hint"
    assert sum(each is not None for each in (item.stream, item.message, item.response)) == 1


def test_a_position_moves_without_an_event() -> None:
    block = read(move_item(CHANNEL, SSE, "e.5", "e.3"))
    assert (block.id, block.prev_id, block.stream) == (b"e.5", b"e.3", StreamFormat("send", b"id: e.5\n\n"))
    assert read(move_item(CHANNEL, LINES, "e.5", "e.3")).stream == StreamFormat("send", b"")


def test_a_websocket_gets_no_message_for_a_moved_position() -> None:
    item = read(move_item(CHANNEL, WS, "e.5", "e.3"))
    assert (item.id, item.prev_id, item.message) == (b"e.5", b"e.3", None)


def test_a_long_poll_asks_again_for_a_moved_position() -> None:
    item = read(move_item(CHANNEL, POLL, "e.5", "e.3"))
    assert (item.id, item.prev_id, item.response) == (b"e.5", b"e.3", ResponseFormat("hint"))
