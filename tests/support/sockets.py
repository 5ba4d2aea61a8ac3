"""Open WebSockets for the tests of the edge, on the connections of memory in ``doubles``."""

from __future__ import annotations

from typing import Any

from gripproxy.client.websocket_connection import WebSocketConnection
from gripproxy.grip.frames import BINARY, FrameParser, serialise
from gripproxy.grip.item import Item, MessageFormat
from gripproxy.grip.websocket_handshake import accept_key
from tests.support.doubles import Backend, Browser, House, Transport

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE = (
    b"GET /path HTTP/1.1\r\nHost: example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % KEY
)
EVENTS = b"Content-Type: application/websocket-events\r\n"
GRIP = b"Sec-WebSocket-Extensions: grip\r\n"


def switching(request: bytes, headers: bytes = b"") -> bytes:
    """A backend's 101 to the handshake in ``request``."""
    [key] = [line[19:] for line in request.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key: ")]
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n%b\r\n" % (accept_key(key), headers)
    )


class Talk:
    """An open WebSocket between a client and a backend that speaks WebSocket, or (``over_http``) HTTP."""

    def __init__(self, over_http: bool = False, **changes: Any) -> None:
        self.house = House("* one:80,over_http" if over_http else "* one:80", **changes)
        browser = self.house.browser().says(HANDSHAKE)
        self.backend: Backend = self.house.pool.connect()
        request = self.backend.take()
        if over_http:
            self.answers(b"OPEN\r\n", GRIP)
        else:
            self.backend.says(switching(request, GRIP))
        self.client: Transport = browser.transport
        assert isinstance(self.client.protocol, WebSocketConnection)
        assert self.client.take().startswith(b"HTTP/1.1 101 ")

    def says(self, opcode: int, payload: bytes, fin: bool = True) -> None:
        """The client sends a frame."""
        assert self.client.reading, "the proxy does not read"
        self.client.protocol.data_received(serialise(opcode, payload, fin=fin, mask=True))

    def heard(self) -> list[tuple[int, bytes]]:
        """Frames for the client since the last time."""
        return [(frame.opcode, frame.payload) for frame in FrameParser(False, 10**6).feed(self.client.take())]

    def backend_says(self, data: bytes) -> None:
        assert self.backend.transport.reading, "the proxy does not read"
        self.backend.transport.protocol.data_received(data)

    def backend_blocks(self, blocked: bool = True) -> None:
        protocol = self.backend.transport.protocol
        if blocked:
            protocol.pause_writing()
        else:
            protocol.resume_writing()

    def backend_heard(self) -> list[tuple[int, bytes]]:
        return [(frame.opcode, frame.payload) for frame in FrameParser(True, 10**6).feed(self.backend.take())]

    def answers(self, events: bytes, headers: bytes = b"") -> None:
        """A backend over HTTP answers."""
        head = b"HTTP/1.1 200 OK\r\n%b%bContent-Length: %d\r\n\r\n" % (EVENTS, headers, len(events))
        self.backend.says(head + events)

    def fill(self) -> None:
        """The client sends so much, over HTTP, that it is read no more."""
        self.says(BINARY, b"first")
        self.says(BINARY, b"." * 200_000)
        assert not self.client.reading
        self.backend.take()

    def publish_close(self) -> None:
        self.house.confirm()
        self.house.publish(Item(b"ch", message=MessageFormat("close", code=4000)))


def head_of(request: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """First line and headers of a request, names in lower case."""
    line, *lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
    pairs = [header.split(b": ", 1) for header in lines]
    return line, {name.lower(): value for name, value in pairs}


def frames(data: bytes) -> list[tuple[int, bytes]]:
    return [(frame.opcode, frame.payload) for frame in FrameParser(False, 10**6).feed(data)]


def events_of(body: bytes, *headers: bytes, code: bytes = b"200 OK") -> bytes:
    """An answer of a backend over HTTP."""
    lines = b"".join(headers)
    return b"HTTP/1.1 %b\r\n%b%bContent-Length: %d\r\n\r\n%b" % (code, EVENTS, lines, len(body), body)


def asked(house: House, *more: bytes) -> tuple[Browser, Backend, bytes]:
    """A client's handshake, with more headers; the backend's connection, and what it was asked."""
    browser = house.browser().says(HANDSHAKE[:-2] + b"".join(more) + b"\r\n")
    backend = house.pool.connect()
    return browser, backend, backend.take()
