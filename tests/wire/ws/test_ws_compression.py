"""permessage-deflate with ``allow_compression`` (docs/grip.md §1.8, §8.1), and the test target's WebSocket (§1.4)."""

from __future__ import annotations

import zlib

from tests.wire.wirekit import Setup, Site, covers, expect
from tests.wire.wirekit.events import GRIP, event, events, opened, over_http, subscribe
from tests.wire.wirekit.frames import BINARY, TEXT
from tests.wire.wirekit.websocket import direct, websocket

SETUP = Setup(
    routes="* {backend},over_http\n*,path_beg=/direct {backend}\ntest.example test\n",
    config={"runner.allow_compression": True},
)
OFFER = "Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover; server_no_context_takeover"


def deflated(content: bytes) -> bytes:
    """Return a message as a frame with RSV1 carries it (RFC 7692 §7.2.1)."""
    packer = zlib.compressobj(wbits=-15)
    return (packer.compress(content) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


def inflated(payload: bytes) -> bytes:
    """Return what a frame with RSV1 carried."""
    return zlib.decompressobj(wbits=-15).decompress(payload + b"\0\0\xff\xff")


def compresses(extensions: str | None) -> bool:
    """Check the extension that the client was told, and tell whether there is one."""
    expected = expect(
        pushpin=False,
        ours=True,
        pushpin_does="Does not negotiate permessage-deflate; `allow_compression` is unknown.",
        ours_does="Negotiates permessage-deflate with clients that offer it when `allow_compression` is set.",
        because="`allow_compression` exists since Pushpin 1.37.",
    )
    assert (extensions or "").startswith("permessage-deflate") == expected, extensions
    return expected


@covers("1.8 allow_compression", "8.1 no compression")
def test_compressed_messages(site: Site, case: str) -> None:
    answer = events(event("TEXT", "pong " * 100), event("BINARY", b"\0" * 100))
    with over_http(site, f"/{case}", opened(), answer, headers=(OFFER,)) as talk:
        assert talk.client.response is not None
        if not compresses(talk.client.response["Sec-WebSocket-Extensions"]):
            return
        talk.client.frame(TEXT, deflated(b"ping " * 100), reserved=4)
        assert talk.offer() == [("TEXT", b"ping " * 100)]
        for opcode, content in ((TEXT, b"pong " * 100), (BINARY, b"\0" * 100)):
            got = talk.client.next()
            assert (got.opcode, got.fin, got.reserved) == (opcode, True, 4)
            assert inflated(got.payload) == content
        talk.client.frame(TEXT, b"not compressed")
        assert talk.offer() == [("TEXT", b"not compressed")]


@covers("1.8 allow_compression")
def test_compressed_publish(site: Site, case: str) -> None:
    answer = opened(subscribe(case), headers=(GRIP,))
    with site.publisher.feed() as feed, over_http(site, f"/{case}", answer, headers=(OFFER,)) as talk:
        feed.wait_for(b"\x01" + case.encode())
        site.publisher.publish({"channel": case, "ws-message": {"content": "published " * 50}})
        got = talk.client.next()
        assert talk.client.response is not None
        if compresses(talk.client.response["Sec-WebSocket-Extensions"]):
            assert got.reserved == 4
            assert inflated(got.payload) == b"published " * 50
        else:
            assert got.payload == b"published " * 50


@covers("1.8 allow_compression")
def test_not_offered_is_not_used(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", opened(event("TEXT", "x" * 500))) as talk:
        assert talk.client.response is not None
        assert talk.client.response["Sec-WebSocket-Extensions"] is None
        assert talk.client.says("x" * 500)


@covers("1.8 allow_compression", "bad input ws size")
def test_compressed_bomb(site: Site, case: str) -> None:
    with over_http(site, f"/{case}", headers=(OFFER,)) as talk:
        assert talk.client.response is not None
        if compresses(talk.client.response["Sec-WebSocket-Extensions"]):
            talk.client.frame(TEXT, deflated(b"\0" * 50_000_000), reserved=4)
            assert talk.client.ending()[0] == 1009


@covers("1.8 allow_compression", "8.2 forwarded handshake")
def test_direct_backend_is_not_offered_compression(site: Site, case: str) -> None:
    with direct(site, f"/direct/{case}", OFFER) as (client, backend):
        assert backend.request["Sec-WebSocket-Extensions"] == "grip"
        backend.text("x" * 500)
        got = client.next()
        assert client.response is not None
        if compresses(client.response["Sec-WebSocket-Extensions"]):
            assert inflated(got.payload) == b"x" * 500
            client.frame(TEXT, deflated(b"y" * 500), reserved=4)
            assert backend.says("y" * 500)


@covers("1.4 test ws")
def test_test_target(site: Site, case: str) -> None:
    uri = f"/ws?channel={case}&channel={case}-two"
    with site.publisher.feed() as feed, websocket(site, uri, "Host: test.example") as client:
        feed.wait_for(f"\x01{case}-two".encode())
        client.text("hello")
        if expect(
            pushpin=True,
            ours=False,
            pushpin_does="The built-in test target returns to a WebSocket what its client sends.",
            ours_does="The built-in test target sends nothing on a WebSocket but what is published to its channels.",
            because="A test then shows what was published and nothing else.",
        ):
            assert client.says("hello")
        for channel in (case, f"{case}-two"):
            site.publisher.publish({"channel": channel, "ws-message": {"content": f"to {channel}"}})
            assert client.says(f"to {channel}")


@covers("1.4 test ws")
def test_test_target_without_channels(site: Site) -> None:
    with site.publisher.feed() as feed, websocket(site, "/ws", "Host: test.example") as client:
        feed.wait_for(b"\x01test")
        site.publisher.publish({"channel": "test", "ws-message": {"content": "x"}})
        assert client.says("x")
