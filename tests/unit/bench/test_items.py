"""Templates: what is in the places of a message may change, its length may not."""

from __future__ import annotations

import json

import pytest
import tnetstring

from bench import items

FILLED = {
    b"@0000000000000000;": b"@0123456789abcdef;",
    b"c#####": b"c00042",
    b"i###############": b"i000000000000007",
    b"p###############": b"i000000000000006",
}


def filled(template: bytes) -> bytes:
    """As native/publisher.c does it."""
    for place, value in FILLED.items():
        assert len(place) == len(value)
        template = template.replace(place, value)
    return template


@pytest.mark.parametrize("ids", [False, True])
def test_a_zmq_message_is_a_frame_with_an_item(ids: bool) -> None:
    frame = filled(items.zmq_frame("stream", ids=ids))
    body = frame[2:] if frame[0] == 0 else frame[9:]
    assert len(body) == (frame[1] if frame[0] == 0 else int.from_bytes(frame[1:9], "big"))
    item = tnetstring.loads(body[1:])
    assert item[b"channel"] == b"c00042"
    assert item[b"formats"][b"http-stream"][b"content"].startswith(b"@0123456789abcdef;x")
    assert (item.get(b"id"), item.get(b"prev-id")) == (
        (b"i000000000000007", b"i000000000000006") if ids else (None, None)
    )


@pytest.mark.parametrize(("kind", "name"), [("stream", "http-stream"), ("ws", "ws-message")])
def test_a_request_for_the_control_port_is_whole(kind: str, name: str) -> None:
    head, _, body = filled(items.grip_request(kind)).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    (item,) = json.loads(body)["items"]
    assert item["channel"] == "c00042"
    assert item["formats"][name]["content"].startswith("@0123456789abcdef;")


def test_the_message_of_nchan_has_its_channel_in_the_path() -> None:
    head, _, body = filled(items.nchan_request("ws")).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /publish?c=c00042 HTTP/1.1\r\n")
    assert len(body) == items.SIZE


def test_the_loop_gets_lines() -> None:
    assert filled(items.line("stream", one=True)).startswith(b"c00042 @0123456789abcdef;")
    assert filled(items.line("stream", one=False)).startswith(b"@0123456789abcdef;")
    assert items.line("ws", one=False).count(b"\n") == 1


def test_an_item_may_be_as_long_as_something_else() -> None:
    body = items.grip_request("stream", size=340).partition(b"\r\n\r\n")[2]
    (item,) = json.loads(body)["items"]
    assert len(item["formats"]["http-stream"]["content"]) == 341
