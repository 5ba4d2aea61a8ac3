"""Commands (docs/grip.md §5.8)."""

from __future__ import annotations

from typing import Any

import pytest
import tnetstring
import zmq

from tests.wire.wirekit import Publisher, Setup, Site, covers, expect, hold, response
from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.holding import long_poll, stream
from tests.wire.wirekit.publisher import tnet

SETUP = Setup()


def failure(condition: bytes, detail: str | None = None) -> dict[bytes, Any]:
    """Return the reply map of a failed command with the id "1"."""
    reply: dict[bytes, Any] = {b"id": b"1", b"success": False, b"condition": condition}
    if detail is not None:
        reply[b"value"] = detail.encode()
    return reply


DONE = {b"id": b"1", b"success": True, b"value": None}


@covers("5.8 get-zmq-uris", "5.8 transport")
def test_get_zmq_uris(publisher: Publisher) -> None:
    uris = {
        b"command": publisher.rep.encode(),
        b"publish-pull": publisher.pull.encode(),
        b"publish-sub": publisher.sub.encode(),
    }
    assert publisher.command("get-zmq-uris") == {b"success": True, b"value": uris}
    assert publisher.command("get-zmq-uris", id="x") == {b"success": True, b"value": uris, b"id": b"x"}


@covers("5.8 transport", "15 18 rep value")
def test_the_id_is_echoed_unless_empty(publisher: Publisher) -> None:
    assert publisher.command("recover", id="any id") == {b"success": True, b"value": None, b"id": b"any id"}
    assert publisher.command("recover", id="") == {b"success": True, b"value": None}
    reply = publisher.request(tnet({"id": "1", "from": "me", "method": "recover"}))
    assert reply is not None
    assert tnetstring.loads(reply) == DONE


@covers("5.8 transport")
def test_dealers_send_an_empty_delimiter(publisher: Publisher) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
        dealer.connect(publisher.rep)
        for number in range(5):
            dealer.send_multipart([b"", tnet({"id": str(number), "method": "recover"})])
        for number in range(5):
            delimiter, reply = dealer.recv_multipart()
            assert delimiter == b""
            assert tnetstring.loads(reply)[b"id"] == str(number).encode()


@covers("5.8 publish", "15 18 rep value")
def test_publish(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", hold("stream", case))
    with stream(site, f"/{case}") as client:
        items = [{"channel": case, "formats": {"http-stream": {"content": text}}} for text in ("one ", "two\n")]
        assert site.publisher.command("publish", {"items": items}, id="1") == DONE
        assert client.data_until(b"\n") == b"one two\n"
        assert site.publisher.command("publish", {"items": []}, id="1") == DONE


@covers("5.8 publish")
@pytest.mark.parametrize(
    ("args", "detail"),
    [
        (None, "object does not contain 'items'"),
        ({}, "object does not contain 'items'"),
        ({"items": 1}, "object contains 'items' with wrong type"),
        ({"items": [{}]}, "publish item object does not contain 'channel'"),
        ({"items": [{"channel": "a"}]}, "no formats specified"),
        ({"items": [{"channel": "a", "size": -1, "http-stream": {"content": ""}}]}, None),
        ({"items": [{"channel": "a", "http-response": {}}]}, "'http-response' does not contain 'body' or 'body-patch'"),
        ({"items": [{"channel": "a", "http-stream": {}}]}, "'http-stream' does not contain 'content'"),
        ({"items": [{"channel": "a", "ws-message": {}}]}, "'ws-message' does not contain 'content' or 'content-bin'"),
    ],
    ids=str,
)
def test_publish_errors(publisher: Publisher, args: dict[str, Any] | None, detail: str | None) -> None:
    detail = detail or "publish item object contains 'size' with invalid value"
    assert publisher.command("publish", args, id="1") == failure(b"bad-request", f"Invalid format: {detail}")


@covers("5.8 recover")
def test_recover_asks_for_long_polls_again(site: Site, case: str) -> None:
    site.backend.on(f"/{case}", [hold("response", case), response("200 OK", body="again\n")])
    with long_poll(site, f"/{case}", case) as client:
        assert site.publisher.command("recover", id="1") == DONE
        assert client.response().body == b"again\n"
    assert site.backend.count(f"/{case}") == 2


@covers("5.8 refresh")
def test_refresh(publisher: Publisher) -> None:
    assert publisher.command("refresh", {"channel": "any"}, id="1") == DONE
    assert publisher.command("refresh", {"cid": "unknown"}, id="1") == failure(b"item-not-found")
    for args in (None, {}, {"cid": 1}, {"channel": 1}):
        assert publisher.command("refresh", args, id="1") == failure(b"bad-request"), args


@covers("5.8 conncheck")
def test_conncheck(publisher: Publisher) -> None:
    assert publisher.command("conncheck", {"ids": ["unknown", "other"]}, id="1") == {**DONE, b"value": []}
    assert publisher.command("conncheck", {"ids": []}, id="1") == {**DONE, b"value": []}
    for args in (None, {}, {"ids": 1}, {"ids": [1]}):
        assert publisher.command("conncheck", args, id="1") == failure(b"bad-request"), args


@covers("5.8 unknown")
def test_unknown_method(publisher: Publisher) -> None:
    assert publisher.command("zzz", id="1") == failure(b"method-not-found")


@covers("5.8 malformed")
@pytest.mark.parametrize(
    "payload",
    [
        b"garbage",
        b"",
        tnet([]),
        tnet({"id": "1"}),
        tnet({"id": "1", "method": 1}),
        tnet({"id": "1", "method": "recover", "args": 1}),
        b"T" + tnet({"id": "1", "method": "recover"}),
    ],
    ids=repr,
)
def test_no_reply_to_what_is_malformed(publisher: Publisher, payload: bytes) -> None:
    assert publisher.request(payload, timeout=0.15) is None
    assert publisher.command("recover", id="1") == DONE


@covers("5.8 malformed", "15 21 truncated")
@pytest.mark.parametrize("payload", [b"5:", tnet({"id": "1", "method": "recover"})[:-1]], ids=repr)
def test_a_truncated_request(publisher: Publisher, payload: bytes) -> None:
    survives = expect(
        pushpin=False,
        ours=True,
        pushpin_does="Crashes on a truncated tnetstring sent to the command socket.",
        ours_does="Leaves a truncated tnetstring on the command socket without a reply and answers the next request.",
        because="One malformed request must not end the service.",
    )
    if survives:
        assert publisher.request(payload, timeout=0.15) is None
        assert publisher.command("recover", id="1") == DONE
