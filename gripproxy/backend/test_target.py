"""Test target: a backend inside the worker that answers like a small GRIP backend (docs/grip.md §1.4).

Its pool hands out ordinary backend connections. Their transport is the backend itself: bytes written to it are parsed
as HTTP or WebSocket, and its responses arrive in a later turn of the loop.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from gripproxy.backend.connection import BackendConnection
from gripproxy.backend.outages import Outage
from gripproxy.grip.event_headers import grip_extension
from gripproxy.grip.frames import CLOSE, PING, PONG, TEXT, FrameParser, ProtocolError, serialise
from gripproxy.grip.headers import first
from gripproxy.grip.response import Response, phrase
from gripproxy.grip.websocket_handshake import accept_key
from gripproxy.http1.request_parser import BadRequest, Request, RequestParser
from gripproxy.routing.route import Target

if TYPE_CHECKING:
    from gripproxy.backend.connection import Sink

__all__ = ["BODY_MAX", "TestPool", "respond"]

BODY_MAX: Final = 100_000
"""Bytes of a request's body that the test target takes; a longer one is answered with 413."""

HEAD_MAX: Final = 16 * 1024 * 1024
"""Bytes of a request's head: above any that ``client_buffer_size`` lets through."""

_TEXT: Final = (b"Content-Type", b"text/plain")


def _answer(code: int, body: bytes, *headers: tuple[bytes, bytes]) -> Response:
    return Response(code, phrase(code), [_TEXT, *headers, (b"Content-Length", b"%d" % len(body))], body)


def _channels(query: bytes) -> list[bytes]:
    return parse_qs(query).get(b"channel") or [b"test"]


def respond(path: bytes, query: bytes, body_size: int) -> Response:
    """Return the response to a plain request.

    Args:
        path: The path without the route's ``path_beg``.
        query: The query, without its question mark.
        body_size: Bytes of the request's body.
    """
    if body_size > BODY_MAX:
        return _answer(413, b"request body too large\n")
    if path == b"/":
        return _answer(200, b"Hello from the gripproxy test handler!\n")
    # A channel name with a comma, quote or line break would become something else in a header.
    named = b", ".join(c for c in _channels(query) if not set(c) & set(b'",;\r\n')) or b"test"
    if path == b"/response":
        return _answer(200, b"nothing for now\n", (b"Grip-Hold", b"response"), (b"Grip-Channel", named))
    if path == b"/stream":
        return _answer(200, b"[stream opened]\n", (b"Grip-Hold", b"stream"), (b"Grip-Channel", named))
    return _answer(404, b"no such test resource\n")


class TestPool:
    """Pool of connections to the test target: each request gets a new one, without delay.

    Args:
        target: The test target.
        loop: The event loop.
    """

    __slots__ = ("_loop", "outage", "target")
    __test__ = False  # its name looks like that of a test

    def __init__(self, target: Target, loop: asyncio.AbstractEventLoop) -> None:
        self.target = target
        self._loop = loop
        self.outage: Outage | None = None

    def acquire(self, sink: Sink, fresh: bool = False) -> None:
        """Call ``sink.on_connected`` with a new connection."""
        connection = BackendConnection(self)
        connection.connection_made(_Server(self._loop, connection, self.target.prefix))
        connection.sink = sink
        sink.on_connected(connection)

    def forget(self, sink: Sink) -> None:
        """Do nothing: no request waits for a connection."""

    def put(self, connection: BackendConnection) -> None:
        """Close a connection whose response is complete."""
        connection.abort()

    def discard(self, connection: BackendConnection) -> None:
        """Do nothing: no connection is kept."""


class _Server(asyncio.Transport):
    """One connection of the test target, as the transport of its peer. Implements ``RequestOwner``.

    Args:
        loop: The event loop.
        protocol: The peer: a backend connection, later the leg of a WebSocket.
        prefix: The route's ``path_beg`` without its trailing slash.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, prefix: bytes) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._prefix = prefix
        self._parser = RequestParser(self, HEAD_MAX)
        self._frames: FrameParser | None = None
        self._size = 0
        self._answered = False
        self._out = b""
        self._closing = False
        self._reading = True

    # RequestOwner

    def request_begun(self, request: Request) -> None:
        self._size = 0
        if request.length > BODY_MAX:
            self._respond(request)

    def request_body(self, request: Request, data: bytes) -> None:
        self._size += len(data)
        if self._size > BODY_MAX:
            self._respond(request)

    def request_complete(self, request: Request) -> None:
        self._respond(request)

    def _respond(self, request: Request) -> None:
        """Answer a request once: when its body is complete, or too large."""
        if self._answered:
            return
        self._answered = True
        path, _, query = request.target.partition(b"?")
        if self._prefix and path.startswith(self._prefix):
            path = path[len(self._prefix) :]
        if request.upgrade is not None and path == b"/ws":
            self._switch(request, _channels(query))
            return
        response = respond(path, query, max(self._size, request.length))
        lines = b"".join([b"%b: %b\r\n" % header for header in response.headers])
        body = response.body if request.method != b"HEAD" else b""
        self._send(b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (response.code, response.reason, lines, body))

    def _switch(self, request: Request, channels: list[bytes]) -> None:
        """Accept a WebSocket and, if the proxy offers GRIP, subscribe it; it sends nothing else by itself."""
        self._frames = FrameParser(True, 2**62, piece=1)
        grip = grip_extension(request.headers) is not None
        self._send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n%b\r\n"
            % (
                accept_key(first(request.headers, b"sec-websocket-key") or b""),
                b"Sec-WebSocket-Extensions: grip\r\n" if grip else b"",
            )
        )
        for name in channels if grip else ():
            control = json.dumps({"type": "subscribe", "channel": name.decode("utf-8", "replace")})
            self._send(serialise(TEXT, b"c:" + control.encode()))

    def _frames_received(self, frames: FrameParser, data: bytes) -> None:
        """Answer pings and the close; drop messages."""
        for frame in frames.feed(data):
            if frame.opcode == PING:
                self._send(serialise(PONG, frame.payload))
            elif frame.opcode == CLOSE:
                self._send(serialise(CLOSE, frame.payload))

    # The direction to the peer

    def _send(self, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._deliver)
        self._out += data

    def _deliver(self) -> None:
        if self._reading and not self._closing and self._out:
            data, self._out = self._out, b""
            self._protocol.data_received(data)

    # asyncio.Transport

    def write(self, data: Any) -> None:
        """Take bytes from the peer."""
        if self._closing:
            return
        try:
            if self._frames is not None:
                self._frames_received(self._frames, data)
            else:
                self._parser.feed(data)
        except (BadRequest, ProtocolError):
            self.abort()

    def close(self) -> None:
        """End the connection; the peer's ``connection_lost`` follows."""
        if not self._closing:
            self._closing = True
            self._parser.close()
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        """End the connection; the peer's ``connection_lost`` follows."""
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._out:
            self._loop.call_soon(self._deliver)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: all bytes are taken."""

    def get_write_buffer_size(self) -> int:
        return 0
