"""WebSocket-over-HTTP: batches, large messages, windows (docs/grip.md §8.3)."""

from __future__ import annotations

import threading

import pytest

from tests.wire.wirekit import Client, Script, Setup, Site, covers, expect
from tests.wire.wirekit.events import Event, event, events, offered, opened, over_http
from tests.wire.wirekit.frames import BINARY, CONTINUATION, TEXT, closing, frame
from tests.wire.wirekit.websocket import Socket, handshake

SETUP = Setup(routes="* {backend},over_http\n*,path_beg=/one {backend},over_http,one_event\n")


def pattern(size: int) -> bytes:
    """Return so many bytes, in which a missing or doubled part shows."""
    return b"".join(b"%07d," % n for n in range(size // 8 + 1))[:size]


@covers("8.3 batching", "10 woh")
def test_a_request_takes_messages_until_200000_bytes(site: Site, case: str) -> None:
    go = threading.Event()
    with over_http(site, f"/{case}", opened(), Script(go, events())) as talk:
        talk.client.text("first")
        assert talk.offer() == [("TEXT", b"first")]
        parts = [pattern(45_000 + n) for n in range(8)]
        for part in parts[:4]:
            talk.client.text(part)
        go.set()
        got = talk.offer()
        while len(got) < 4:
            got += talk.offer()
        assert got == [("TEXT", part) for part in parts[:4]]


@covers("8.3 batching", "10 woh")
def test_a_large_batch(site: Site, case: str) -> None:
    if not expect(
        pushpin=False,
        ours=True,
        pushpin_does="May stop sending requests to the backend when many messages of a client are waiting.",
        ours_does="Sends messages of a client that are waiting in batches of up to 200,000 bytes.",
        because="A client may send faster than the backend answers.",
    ):
        return
    go = threading.Event()
    with over_http(site, f"/{case}", opened(), Script(go, events())) as talk:
        talk.client.text("first")
        assert talk.offer() == [("TEXT", b"first")]

        def send() -> None:
            for n in range(12):
                talk.client.text(b"%03d" % n * 20_000)

        sender = threading.Thread(target=send)
        sender.start()
        talk.client.wire.sock.settimeout(8)
        go.set()
        got: list[Event] = []
        while len(got) < 12:
            batch = talk.offer()
            assert sum(len(content or b"") for _, content in batch[:-1]) < 200_000
            got += batch
        sender.join()
        assert got == [("TEXT", b"%03d" % n * 20_000) for n in range(12)]


@covers("8.3 one_event", "1.4 one_event")
def test_one_event(site: Site, case: str) -> None:
    go = threading.Event()
    with over_http(site, f"/one{case}", opened(), Script(go, events())) as talk:
        talk.client.text("first")
        assert talk.offer() == [("TEXT", b"first")]
        for n in range(4):
            talk.client.text(str(n))
        talk.client.ping(b"p")
        talk.client.close(1000)
        go.set()
        for n in range(4):
            assert talk.offer() == [("TEXT", str(n).encode())]
        assert talk.offer() == [("PING", b"p")]
        assert talk.offer() == [("CLOSE", closing(1000))]


@covers("8.3 reassembled")
def test_fragments_of_the_client_become_one_event(site: Site, case: str) -> None:
    with over_http(site, f"/{case}") as talk:
        talk.client.frame(TEXT, "one ", fin=False)
        talk.client.frame(CONTINUATION, "", fin=False)
        assert talk.no_more()
        talk.client.frame(CONTINUATION, "two")
        assert talk.offer() == [("TEXT", b"one two")]
        talk.client.raw(b"".join(frame(BINARY if n == 0 else 0, b"%d" % n, fin=n == 9) for n in range(10)))
        assert talk.offer() == [("BINARY", b"0123456789")]


@covers("8.3 reassembled")
def test_ping_between_fragments_of_the_client(site: Site, case: str) -> None:
    with over_http(site, f"/{case}") as talk:
        talk.client.frame(TEXT, "one ", fin=False)
        talk.client.ping(b"p")
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="Drops a client that sends a ping between the fragments of a message, and sends DISCONNECT.",
            ours_does="Sends a PING to the backend when a client sends a ping between the fragments of a message.",
            because="RFC 6455 §5.4 allows it.",
        ):
            assert talk.offer() == [("PING", b"p")]
            talk.client.frame(CONTINUATION, "two")
            assert talk.offer() == [("TEXT", b"one two")]
        else:
            assert talk.client.dropped()
            assert talk.offer() == [("DISCONNECT", None)]


@covers("8.3 client message size", "10 woh", "15 14 woh")
@pytest.mark.parametrize("size", [65_536, 190_000])
def test_large_message_of_the_client(site: Site, case: str, size: int) -> None:
    with over_http(site, f"/{case}") as talk:
        talk.client.binary(pattern(size))
        assert talk.offer() == [("BINARY", pattern(size))]


@covers("8.3 client message size", "10 woh", "15 14 woh")
@pytest.mark.parametrize("fragments", [1, 4])
def test_too_large_message_of_the_client(site: Site, case: str, fragments: int) -> None:
    with over_http(site, f"/{case}") as talk:
        part = pattern(300_000 // fragments)
        for n in range(fragments):
            talk.client.raw(frame(BINARY if n == 0 else 0, part, fin=n == fragments - 1))
        code = expect(
            pushpin=1006,
            ours=1009,
            pushpin_does="Drops a client whose message is too large (300,000 bytes), without a close frame.",
            ours_does="Closes a WebSocket with 1009 when a message exceeds `ws_over_http_message_max` (200,000 bytes "
            "by default), and sends CLOSE with 1009 to the backend.",
            because="Client and backend learn the reason.",
        )
        assert talk.client.ending()[0] == code
        if code == 1009:
            ((kind, content),) = talk.offer()
            assert kind == "CLOSE"
            assert content is not None
            assert content[:2] == closing(1009)


@covers("8.3 client message size", "15 14 woh")
def test_who_still_sends_is_told_before_the_connection_ends(site: Site, case: str) -> None:
    """A browser that meets a reset while it sends never reads the close frame: it would say 1006."""
    if not expect(
        pushpin=False,
        ours=True,
        pushpin_does="May reset the connection of a client that still sends when it is closed, so that the close frame "
        "is lost.",
        ours_does="Reads and discards what a client still sends when it is closed, so that it receives the close "
        "frame.",
        because="A browser would report 1006 instead of 1009.",
    ):
        return
    with over_http(site, f"/{case}") as talk:
        talk.client.raw(frame(BINARY, pattern(100_000), length=2_000_000))
        assert talk.client.closed()[0] == 1009
        for _ in range(19):
            talk.client.raw(pattern(100_000))
        assert talk.client.dropped()


@covers("8.3 backend message size")
@pytest.mark.parametrize("size", [8_000, 16_384, 16_385, 900_000])
def test_large_message_of_the_backend(site: Site, case: str, size: int) -> None:
    largest = expect(
        pushpin=8_000,
        ours=900_000,
        pushpin_does="Delivers a backend's message of 8,000 bytes; messages of 16,384 bytes and more may not arrive.",
        ours_does="Delivers a backend's message of any size up to that of a response (1,000,000 bytes).",
        because="RFC 6455 sets no smaller limit.",
    )
    answer = opened(event("TEXT", pattern(min(size, largest))))
    with over_http(site, f"/{case}", answer, events(event("BINARY", pattern(size)), event("TEXT", "end"))) as talk:
        assert talk.client.message() == (TEXT, pattern(min(size, largest)))
        talk.client.text("x")
        if size <= largest:
            assert talk.client.message() == (BINARY, pattern(size))
            assert talk.client.says("end")


@covers("8.3 window")
def test_no_request_while_the_client_does_not_read(site: Site, case: str) -> None:
    path, rounds = f"/one{case}", 30
    answer = events(*(event("BINARY", pattern(1_000)) for _ in range(400)))
    site.backend.on(path, [opened(), answer])
    with Client.connect(site.port, receive_buffer=65536) as wire:
        wire.request("GET", path, *handshake())
        assert wire.head().status == 101
        client = Socket(wire, mask=True)
        for n in range(rounds):
            client.text(str(n))
        number = -1
        while site.backend.count(path) != number:
            number = site.backend.count(path)
            threading.Event().wait(0.3)
        assert number < rounds
        if not expect(
            pushpin=False,
            ours=True,
            pushpin_does="May stall a WebSocket for good after its client has not read for a while.",
            ours_does="Sends no request while the client does not read, and continues when it reads again.",
            because="Back-pressure must end when its cause does.",
        ):
            return
        for _ in range(rounds * 400):
            assert client.message() == (BINARY, pattern(1_000))
        assert offered(site.backend.request(path, rounds)) == [("TEXT", str(rounds - 1).encode())]
