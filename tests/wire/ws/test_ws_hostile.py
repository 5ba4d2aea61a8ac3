"""WebSocket clients and backends that break RFC 6455: the right close code, never a stuck connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.wire.wirekit import Setup, Site, covers, expect
from tests.wire.wirekit.events import GRIP, event, events, opened, over_http
from tests.wire.wirekit.frames import BINARY, CLOSE_FRAME, CONTINUATION, PING, PONG, TEXT, closing, frame
from tests.wire.wirekit.websocket import direct

SETUP = Setup(routes="* {backend},over_http\n*,path_beg=/direct {backend}\n")
SMALL = Setup(routes="* {backend}\n", config={"proxy.ws_message_max": 4_000})

BAD_FRAMES: dict[str, tuple[bytes, int]] = {
    "reserved bit 1": (frame(TEXT, b"x", reserved=4), 1002),
    "reserved bit 2": (frame(TEXT, b"x", reserved=2), 1002),
    "reserved bit 3": (frame(TEXT, b"x", reserved=1), 1002),
    "reserved bit of a ping": (frame(PING, b"x", reserved=4), 1002),
    "opcode 3": (frame(3, b"x"), 1002),
    "opcode 7": (frame(7, b""), 1002),
    "opcode 11": (frame(11, b"x"), 1002),
    "opcode 15": (frame(15, b""), 1002),
    "not masked": (frame(TEXT, b"x", mask=False), 1002),
    "not masked close": (frame(CLOSE_FRAME, b"", mask=False), 1002),
    "fragmented ping": (frame(PING, b"x", fin=False), 1002),
    "fragmented close": (frame(CLOSE_FRAME, closing(1000), fin=False), 1002),
    "ping of 126 bytes": (frame(PING, b"x" * 126), 1002),
    "pong of 70000 bytes": (frame(PONG, b"x" * 70_000), 1002),
    "close of 126 bytes": (frame(CLOSE_FRAME, closing(1000, "x" * 124)), 1002),
    "continuation of nothing": (frame(CONTINUATION, b"x"), 1002),
    "end of nothing": (frame(CONTINUATION, b"", fin=True), 1002),
    "text inside a message": (frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), 1002),
    "binary inside a message": (frame(TEXT, b"a", fin=False) + frame(BINARY, b"b", fin=False), 1002),
    "close of one byte": (frame(CLOSE_FRAME, b"\x03"), 1002),
    **{f"close code {code}": (frame(CLOSE_FRAME, closing(code)), 1002) for code in (0, 999, 1004, 1005, 1006)},
    **{f"close code {code}": (frame(CLOSE_FRAME, closing(code)), 1002) for code in (1015, 1016, 2999, 5000, 65535)},
    "close reason not utf-8": (frame(CLOSE_FRAME, closing(1000, b"\xff")), 1007),
    "text not utf-8": (frame(TEXT, b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited"), 1007),
    "text cut off": (frame(TEXT, b"\xe2\x82"), 1007),
    "utf-8 split and bad": (frame(TEXT, b"\xe2\x82", fin=False) + frame(CONTINUATION, b"x"), 1007),
    "utf-8 bad early": (frame(TEXT, b"\xff", fin=False), 1007),
    "utf-8 overlong": (frame(TEXT, b"\xc0\xaf"), 1007),
    "length of 64 bits": (frame(BINARY, b"x" * 10, length=2**63), 1002),
    "length of 63 bits": (frame(BINARY, b"x" * 10, length=2**63 - 1), 1009),
}


LENIENT = {"reserved bit 2", "reserved bit 3", "not masked", "length of 64 bits", "length of 63 bits"} | {
    name for name in BAD_FRAMES if name.startswith(("text", "utf-8"))
}
"""What Pushpin takes or waits on."""


def strict(kind: str, name: str) -> bool:
    """Tell whether a client's bad bytes must end its connection with the right code; else what happens is unknown."""
    return expect(
        pushpin=False,
        ours=True,
        pushpin_does="Drops a client that sends an invalid frame, or accepts the frame; which one depends on the "
        "violation.",
        ours_does="Closes a client's WebSocket with the code for its violation of RFC 6455 (1002, 1007, 1009); no "
        "invalid frame reaches the backend.",
        because="The client learns what it did wrong.",
    )


@covers("bad input ws frames", "bad input ws utf-8", "bad input ws close codes")
@pytest.mark.parametrize("name", BAD_FRAMES)
def test_bad_frames_over_http(site: Site, case: str, name: str) -> None:
    data, code = BAD_FRAMES[name]
    with over_http(site, f"/{case}") as talk:
        talk.client.raw(data)
        if strict("http", name):
            assert talk.client.ending()[0] == code
            talk.client.wire.until_close()
            assert talk.offer()[0][0] in ("CLOSE", "DISCONNECT")
        elif name not in LENIENT:
            assert talk.client.ending()[0] in (1002, 1006)


@covers("bad input ws frames", "bad input ws utf-8", "bad input ws close codes")
@pytest.mark.parametrize("name", BAD_FRAMES)
def test_bad_frames_to_a_direct_backend(site: Site, case: str, name: str) -> None:
    data, code = BAD_FRAMES[name]
    with direct(site, f"/direct/{case}") as (client, backend):
        client.raw(data)
        if strict("direct", name):
            assert client.ending()[0] == code
            client.wire.until_close()
            assert backend.ending()[0] in (code, 1001, 1006, 1011)
        elif name not in LENIENT and not name.startswith("close") and "close" not in name:
            assert client.ending()[0] in (1002, 1006)


@covers("bad input ws frames")
def test_what_came_before_a_bad_frame_arrives(site: Site, case: str) -> None:
    with over_http(site, f"/{case}") as talk:
        talk.client.raw(frame(TEXT, b"good") + frame(3, b"bad"))
        if strict("http", "opcode 3"):
            assert talk.offer()[0] == ("TEXT", b"good")
        talk.client.ending()


@covers("bad input ws frames", "bad input ws utf-8", "bad input ws close codes")
@pytest.mark.parametrize(
    "data",
    [
        frame(TEXT, b"x", mask=False, reserved=4),
        frame(3, b"x", mask=False),
        frame(TEXT, b"x", mask=True),
        frame(PING, b"x", mask=False, fin=False),
        frame(CONTINUATION, b"x", mask=False),
        frame(TEXT, b"a", mask=False, fin=False) + frame(TEXT, b"b", mask=False),
        frame(TEXT, b"\xff", mask=False),
        frame(CLOSE_FRAME, b"\x03", mask=False),
        frame(CLOSE_FRAME, closing(1005), mask=False),
        frame(BINARY, b"x", mask=False, length=2**63),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["bit", "opcode", "mask", "ping", "continuation", "inside", "utf-8", "close", "code", "length", "http"],
)
def test_bad_frames_of_a_backend(site: Site, case: str, data: bytes) -> None:
    with direct(site, f"/direct/{case}") as (client, backend):
        backend.raw(data)
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="Need not end the connection when a backend sends invalid frames.",
            ours_does="Drops the backend's connection when it sends invalid frames, and the client's without a close "
            "frame.",
            because="A close code would blame the client.",
        ):
            # No close frame: its code would say that the client broke the protocol.
            assert client.ending()[0] == 1006
            backend.ending()


@covers("bad input ws events")
@pytest.mark.parametrize(
    "part",
    [event("TEXT", b"\xff\xfe"), event("TEXT", "\u20ac".encode()[:2]), event("PING", b"x" * 126)],
    ids=["text", "text cut off", "long ping"],
)
def test_events_that_no_frame_can_carry(site: Site, case: str, part: bytes) -> None:
    with over_http(site, f"/{case}", opened(), events(part)) as talk:
        talk.client.text("x")
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="Need not drop a client when an event of its backend fits in no frame (text that is not "
            "UTF-8, a ping of 126 bytes).",
            ours_does="Drops the client when an event of its backend fits in no frame (text that is not UTF-8, a ping "
            "of 126 bytes).",
            because="No frame that violates RFC 6455 reaches a client.",
        ):
            assert talk.client.ending() == (1006, b"")


@covers("bad input ws events", "8.3 close")
@pytest.mark.parametrize(
    "content",
    [b"\x03", closing(1005), closing(0), closing(65535, "x")],
    ids=["one byte", "1005", "0", "65535"],
)
def test_close_events_with_a_bad_code(site: Site, case: str, content: bytes) -> None:
    with over_http(site, f"/{case}", opened(), events(event("CLOSE", content))) as talk:
        talk.client.text("x")
        talk.request()
        if expect(
            pushpin=False,
            ours=True,
            pushpin_does="Need not remove an invalid close code of a CLOSE event (0, 1005, 65535).",
            ours_does="Sends a close frame without a code for a CLOSE event whose code is invalid (0, 1005, 65535).",
            because="RFC 6455 §7.4 forbids such codes on the wire.",
        ):
            assert talk.client.closed() == (None, b"")


@covers("bad input ws events")
@pytest.mark.parametrize(
    "content",
    [b"[" * 200_000, b"\xff\xfe", b"{" * 1_000, b'{"type":"subscribe","channel":"' + b"x" * 100_000],
    ids=["deep", "not utf-8", "open", "cut off"],
)
def test_hostile_control_messages(site: Site, case: str, content: bytes) -> None:
    with direct(site, f"/direct/{case}", answer=(GRIP,)) as (client, backend):
        if expect(
            pushpin=len(content) < 2_000,
            ours=True,
            pushpin_does="Need not survive control messages of 100,000 bytes and more.",
            ours_does="Parses or ignores control messages of any size and shape; the WebSocket goes on.",
            because="A malformed control message must not end the session.",
        ):
            backend.text(b"c:" + content)
            if not content.startswith(b"\xff"):
                backend.text("m:alive")
                assert client.says("alive")


@covers("bad input ws size")
def test_message_over_the_limit(start: Callable[[Setup], Site], case: str) -> None:
    site = start(SMALL)
    for fragments in (1, 4):
        with direct(site, f"/direct/{case}{fragments}") as (client, backend):
            client.binary(b"x" * 4_000)
            assert backend.message() == (BINARY, b"x" * 4_000)
            part = b"x" * (4_004 // fragments)
            for n in range(fragments):
                client.raw(frame(BINARY if n == 0 else CONTINUATION, part, fin=False))
            if expect(
                pushpin=False,
                ours=True,
                pushpin_does="Has no `ws_message_max`.",
                ours_does="Closes a WebSocket with 1009 when a message exceeds `ws_message_max`, also while it is "
                "incomplete.",
                because="Memory per connection stays bounded.",
            ):
                assert client.ending()[0] == 1009
                client.wire.until_close()
                assert backend.ending()[0] in (1009, 1006, 1001)


@covers("bad input ws frames")
def test_frames_byte_by_byte(site: Site, case: str) -> None:
    with over_http(site, f"/{case}") as talk:
        data = frame(TEXT, "\u20ac".encode(), fin=False) + frame(CONTINUATION, b"x" * 130)
        for n in range(len(data)):
            talk.client.raw(data[n : n + 1])
        assert talk.offer() == [("TEXT", "\u20ac".encode() + b"x" * 130)]


@covers("bad input ws utf-8")
def test_utf_8_split_across_fragments(site: Site, case: str) -> None:
    content = "\u20ac\U0001f600".encode()
    with over_http(site, f"/{case}") as talk:
        for n in range(len(content)):
            talk.client.frame(TEXT if n == 0 else CONTINUATION, content[n : n + 1], fin=n == len(content) - 1)
        assert talk.offer() == [("TEXT", content)]
