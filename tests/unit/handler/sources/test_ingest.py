"""docs/grip.md §5.6, §5.7: the forms an item comes in."""

import pytest

from gripproxy.grip import tnetstring
from gripproxy.grip.bounds import Bounds
from gripproxy.grip.item import ItemError
from handler.sources.ingest import BadJson, NoObject, items_of_args, items_of_json, parse_long_message, parse_message

TNET = tnetstring.dumps({b"channel": b"ch", b"formats": {b"http-stream": {b"content": b"x"}}})
JSON = b'{"channel":"ch","formats":{"http-stream":{"content":"x"}}}'


@pytest.mark.parametrize("data", [TNET, b"T" + TNET, b"J" + JSON])
def test_the_three_forms(data: bytes) -> None:
    item = parse_message(data)
    assert item.channel == b"ch"
    assert item.stream is not None
    assert item.stream.content == b"x"


@pytest.mark.parametrize("data", [TNET, b"T" + TNET, b"J" + JSON])
def test_the_topic_is_the_channel(data: bytes) -> None:
    assert parse_message(data, b"t\xc3\xb6pic").channel == "töpic".encode()
    assert parse_message(data, b"").channel == b""


def test_with_a_topic_the_channel_may_be_missing() -> None:
    assert parse_message(b'J{"http-stream":{"content":"x"}}', b"a").channel == b"a"


@pytest.mark.parametrize(
    "data", [b"", b"T", b"J", b"T3:ab", b"5:", TNET[:-1], b"J[]", b"J1", b"J{", b"Jnull", b"hello"]
)
@pytest.mark.parametrize("topic", [None, b"a"])
def test_anything_else_is_the_publishers_error(data: bytes, topic: bytes | None) -> None:
    with pytest.raises((ItemError, tnetstring.FrameError)):
        parse_message(data, topic)


def test_a_topic_that_is_not_utf8_is_an_error_for_json() -> None:
    with pytest.raises(ItemError, match="topic is not UTF-8"):
        parse_message(b"J" + JSON, b"\xff")


def test_lists_of_items() -> None:
    assert [item.channel for item in items_of_json(b'{"items":[%b,%b]}' % (JSON, JSON))] == [b"ch", b"ch"]
    assert items_of_json(b'{"items":[]}') == []
    assert items_of_args({b"items": [{b"channel": b"c", b"http-stream": {b"content": b"x"}}]})[0].channel == b"c"


@pytest.mark.parametrize("body", [b"", b"x", b"1", b'"a"', b"null", b"\xff{}", b"{} x", b"[" * 3000])
def test_bad_json(body: bytes) -> None:
    with pytest.raises(BadJson):
        items_of_json(body)


def test_no_object() -> None:
    with pytest.raises(NoObject):
        items_of_json(b"[]")


def test_items_missing_or_wrong() -> None:
    with pytest.raises(ItemError, match=r"^object does not contain 'items'$"):
        items_of_json(b"{}")
    with pytest.raises(ItemError, match=r"^object contains 'items' with wrong type$"):
        items_of_json(b'{"items":null}')
    with pytest.raises(ItemError, match=r"^object does not contain 'items'$"):
        items_of_args({})
    with pytest.raises(ItemError, match=r"^object contains 'items' with wrong type$"):
        items_of_args({b"items": b"x"})


SMALL = Bounds(channel=4, id=3, meta=10, item=100)


def test_a_list_with_one_item_over_a_bound_is_refused() -> None:
    good = b'{"channel":"ch","http-stream":{"content":"x"}}'
    bad = b'{"channel":"chann","http-stream":{"content":"x"}}'
    assert len(items_of_json(b'{"items":[%b,%b]}' % (good, good), SMALL)) == 2
    with pytest.raises(ItemError, match="'channel' of 5 bytes, at most 4"):
        items_of_json(b'{"items":[%b,%b]}' % (good, bad), SMALL)
    with pytest.raises(ItemError, match="'channel' of 5 bytes, at most 4"):
        items_of_args({b"items": [{b"channel": b"chann", b"http-stream": {b"content": b"x"}}]}, 60, SMALL)


def test_a_message_that_is_too_long_is_not_decoded() -> None:
    with pytest.raises(ItemError, match="publish item object has 101 bytes, at most 100 are allowed"):
        parse_long_message(b"x" * 101, None, SMALL)
    with pytest.raises(ItemError, match="publish item object has 102 bytes"):
        parse_long_message(b"x" * 100, b"ch", SMALL)
    assert parse_long_message(TNET, None, SMALL).channel == b"ch"
    assert parse_long_message(TNET, b"top", SMALL).channel == b"top"
    with pytest.raises(ItemError, match="'channel' of 5 bytes, at most 4"):
        parse_long_message(TNET, b"topic", SMALL)
