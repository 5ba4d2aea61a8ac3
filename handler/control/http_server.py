"""HTTP server of the control port and the metrics ports: connections, framing, limits and deadlines.

Publishers use this port most, an item per request, so it is as hot as a proxied request: a protocol and httptools, no
task per connection. Bodies require Content-Length, so the parser sees heads only.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol, cast

import httptools

from gripproxy.grip.errors import PublisherError
from gripproxy.grip.headers import Headers
from gripproxy.process.accept_queue import AcceptQueue
from gripproxy.process.log import log

from .http_message import ApiRequest, answer
from .key_refusals import KeyRefusals

__all__ = ["HttpServer", "HttpServerConnection", "Limits"]

MAX_CONNECTIONS: Final = 128
"""Greatest number of connections. For a further one the connection that was idle longest is closed, with 503 if it had
begun a request: idle connections and unfinished requests must not lock publishers out."""

LOG_INTERVAL: Final = 10.0
"""Seconds between two lines of the log about connections closed for MAX_CONNECTIONS."""

HEAD_TIME: Final = 15.0
"""Seconds for a request's head, from its first byte."""

IDLE_TIME: Final = 60.0
"""Seconds without a byte: in a body, or between two requests."""

TLS_TIME: Final = 10.0
"""Seconds for the TLS handshake."""

LINGER_TIME: Final = 2.0
"""Seconds in which a refused client may stop sending and read its answer."""

CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks of the deadlines of all connections."""

HEADS_MAX: Final = 256
"""Greatest number of cached heads: a publisher repeats its head but for the length of the body. A full cache is
cleared."""

HEAD_KEPT: Final = 1024
"""Greatest length of a cached head in bytes."""

BODILESS: Final = frozenset({b"GET", b"HEAD", b"DELETE", b"OPTIONS"})
"""Methods that do not require Content-Length."""

_BARE_LF = re.compile(rb"(?<!\r)\n")

_NO_LENGTH: Final = b"Request requires Content-Length.\n"
_BAD_LENGTH: Final = b"Bad Content-Length.\n"
_BAD_HEAD: Final = b"Failed to parse request header.\n"


class _Refused(PublisherError):
    """The request is refused before its body is read: the client's fault. The connection is closed after the answer."""

    def __init__(self, code: int, text: bytes, extra: bytes = b"") -> None:
        super().__init__(text.decode().strip())
        self.code = code
        self.text = text
        self.extra = extra


class Answers(Protocol):
    """The application behind a server."""

    open: bool
    """True if ``admits`` is true for all requests."""

    def admits(self, target: bytes, headers: Headers) -> bool:
        """Return whether a request with ``target`` and ``headers`` is authenticated; if not, it gets 401."""

    def forbids(self, headers: Headers) -> bytes:
        """Return the reason for 403 to a request with ``headers``; empty if there is none."""

    def respond(self, request: ApiRequest, body: bytes = b"") -> bytes:
        """Return the answer to an admitted request and its whole body."""


class Limits:
    """Bounds of requests.

    Args:
        head: ``push_in_http_max_headers_size`` in bytes.
        body: ``push_in_http_max_body_size`` in bytes.
    """

    __slots__ = ("body", "head")

    def __init__(self, head: int = 10_000, body: int = 1_000_000) -> None:
        self.head = head
        self.body = body


class _Head:
    """Callbacks of httptools for a request head, and their results."""

    __slots__ = ("connection", "expects", "headers", "length", "target", "transfer_encoding")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.length: bytes | None = None
        self.transfer_encoding = False
        self.expects = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))
        lower = name.lower()
        if lower == b"content-length":
            self.length = value
        elif lower == b"transfer-encoding":
            self.transfer_encoding = True
        elif lower == b"expect":
            self.expects = value.strip().lower() == b"100-continue"


def parse_head(data: bytes, limits: Limits) -> tuple[ApiRequest, int, bool]:
    """Parse the head of a request.

    Stricter than Pushpin: a line end without CR, a header line without colon and a method unknown to HTTP are errors.

    Args:
        data: the head with its empty line.
        limits: bounds of the request.

    Returns:
        The request, the length of its body in bytes, and whether the client waits for ``100 Continue``.

    Raises:
        _Refused: the head is malformed, or the body is too long.
    """
    head = _Head()
    parser = httptools.HttpRequestParser(head)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        # CONNECT, or an unknown Upgrade, which is ignored (RFC 9110 §7.8).
        pass
    except httptools.HttpParserError as error:
        reason = str(error)
        if "Transfer-Encoding" in reason:
            raise _Refused(411, _NO_LENGTH) from error
        raise _Refused(400, _BAD_LENGTH if "Content-Length" in reason else _BAD_HEAD) from error
    version = parser.get_http_version()
    if version not in ("1.0", "1.1"):
        raise _Refused(400, _BAD_HEAD)
    method = parser.get_method()
    http_1_1 = version == "1.1"
    request = ApiRequest(method, head.target, http_1_1, http_1_1 and parser.should_keep_alive(), head.headers)
    if head.transfer_encoding or (head.length is None and method not in BODILESS):
        raise _Refused(411, _NO_LENGTH)
    length = 0 if head.length is None else int(head.length)
    if length > limits.body:
        raise _Refused(400, b"Request body too large.\n")
    return request, length, head.expects


class HttpServerConnection(asyncio.Protocol):
    """A connection to the port of a HttpServer.

    Args:
        server: the server that made it.
    """

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        # Unread bytes: a head, a body, and those of one read beyond them, at most.
        self._buffer = b""
        self._request: ApiRequest | None = None
        self._length = 0
        self._parts: list[bytes] = []
        self._closing = False
        self._paused = False
        self.deadline = 0.0
        """Time of ``time_out``, in seconds of the loop's clock."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Add the connection of ``transport``, and make room for it if there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        server = self._server
        self.deadline = server.now() + IDLE_TIME
        server.make_room()
        server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the server; ``exc`` is ignored."""
        self._server.connections.discard(self)
        self._server.leaving.discard(self)
        self._closing = True
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Answer ``data`` directly if it is a whole request with a cached head; else buffer and parse it."""
        if self._closing:
            return
        if self._buffer:
            data = self._buffer + data
        elif self._request is None:
            server = self._server
            end = data.find(b"\r\n\r\n") + 4
            known = server.heads.get(data[:end])
            if known is not None and len(data) == end + known[1] and not self._paused and not server.retiring:
                # A whole request with a cached head: nearly all of them.
                request, api = known[0], server.api
                if api.open or api.admits(request.target, request.headers):
                    answered = api.respond(request, data[end:])
                    if request.keep_alive and self._transport is not None:
                        self._transport.write(answered)
                        self.deadline = server.now() + IDLE_TIME
                    else:
                        self._answer(answered, request.keep_alive)
                    return
            self.deadline = server.now() + HEAD_TIME
        self._buffer = data
        self._advance()

    def eof_received(self) -> bool:
        """Return False after closing the connection; its written bytes are sent."""
        # A client may close its sending side and still read (nc does); an unfinished request ends with it.
        self.close()
        return False

    def close(self) -> None:
        """Close the connection after the written bytes are sent."""
        self._closing = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def pause_writing(self) -> None:
        """Stop reading while the client does not read."""
        # A client that sends requests and reads no answers must not fill the memory.
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue to read, and to answer buffered requests."""
        self._paused = False
        if self._transport is not None:
            self._transport.resume_reading()
        self._advance()

    @property
    def quiet_since(self) -> float:
        """Time since which the client is idle, in seconds of the loop's clock; minus infinity for a closing connection.

        For an unfinished head it is the time of its first byte: sending byte by byte does not keep a connection.
        """
        if self._closing:
            return float("-inf")
        return self.deadline - (HEAD_TIME if self._buffer and self._request is None else IDLE_TIME)

    def give_way(self) -> None:
        """Close the connection in favour of another one; an unfinished request gets 503."""
        transport, begun, over = self._transport, self._request is not None or self._buffer, self._closing
        self._closing = True
        self._request, self._parts, self._buffer = None, [], b""
        if transport is None:
            return
        if over or self._paused:
            transport.abort()
            return
        if begun:
            transport.write(answer(503, b"Too many connections.\n"))
        # Written bytes are sent if the client reads them within LINGER_TIME.
        self.deadline = self._server.now() + LINGER_TIME
        transport.close()

    def time_out(self) -> None:
        """Close the connection because its deadline has passed; an unfinished request gets 408."""
        if self._closing:
            # The answer was not read until the deadline either.
            if self._transport is not None:
                self._transport.abort()
        elif self._request is not None or self._buffer:
            self._refuse(_Refused(408, b"Request timed out.\n"))
        else:
            self.close()

    def _advance(self) -> None:
        try:
            while not self._closing and not self._paused:
                if self._request is None and not self._read_head():
                    return
                if not self._read_body():
                    return
        except _Refused as refused:
            self._refuse(refused)

    def _read_head(self) -> bool:
        limits = self._server.limits
        if self._buffer[:2] == b"\r\n":
            # RFC 9112 §2.2: old clients end a body with a line end that is not part of it.
            self._buffer = self._buffer.lstrip(b"\r\n")
        buffer = self._buffer
        if not buffer:
            self.deadline = self._server.now() + IDLE_TIME
            return False
        end = buffer.find(b"\r\n\r\n") + 4
        if end > limits.head or (end < 4 and len(buffer) > limits.head):
            raise _Refused(400, b"Request header too large.\n")
        # httptools would wait for more bytes after most of these faults, until the client times out.
        if end < 4:
            if _BARE_LF.search(buffer):
                raise _Refused(400, _BAD_HEAD)
            return False
        request, length, expects = self._server.head(buffer[:end])
        self._request = request
        if not self._server.api.admits(request.target, request.headers):
            raise _Refused(401, b"Unauthorized\n", b"WWW-Authenticate: Bearer\r\n")
        self._length = length
        self._buffer = buffer[end:]
        self.deadline = self._server.now() + IDLE_TIME
        if expects and request.http_1_1 and len(self._buffer) < length and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _read_body(self) -> bool:
        request = self._request
        assert request is not None
        buffer, length = self._buffer, self._length
        if len(buffer) < length:
            # Long bodies arrive in many parts; joining them once at the end is linear.
            if buffer:
                self._parts.append(buffer)
                self._length = length - len(buffer)
                self._buffer = b""
                self.deadline = self._server.now() + IDLE_TIME
            return False
        body, rest = buffer[:length], buffer[length:]
        if self._parts:
            body = b"".join([*self._parts, body])
            self._parts = []
        # The bytes after a body must be a further request, whose method begins with an upper-case letter. Otherwise the
        # client's Content-Length is wrong, and the request is refused.
        if rest and (request.method == b"POST" or length) and not _may_follow(rest, request.keep_alive):
            raise _Refused(400, b"Request body exceeded Content-Length.\n")
        self._request = None
        self._buffer = rest
        if self._server.retiring and not rest:
            request = replace(request, keep_alive=False, plan=None)
        self._answer(self._server.api.respond(request, body), request.keep_alive)
        return True

    def _answer(self, data: bytes, keep_alive: bool) -> None:
        transport = self._transport
        if transport is None:
            return
        transport.write(data)
        self.deadline = self._server.now() + IDLE_TIME
        if not keep_alive:
            self._closing = True
            self._buffer = b""
            transport.close()

    def _refuse(self, refused: _Refused) -> None:
        request = self._request
        http_1_1 = request.http_1_1 if request is not None else b" HTTP/1.0\r\n" not in self._buffer[:200]
        peer, server = self._peer(), self._server
        warned = (
            refused.code == 401
            and request is not None
            and server.key_refusals.note(request.method, request.target, peer, server.now())
        )
        if not warned:
            log.info("control request refused", client=peer, status=refused.code, reason=refused)
        self._request, self._parts = None, []
        transport = self._transport
        if transport is None:
            return
        transport.write(answer(refused.code, refused.text, extra=refused.extra, http_1_1=http_1_1))
        self._closing = True
        self._buffer = b""
        if transport.can_write_eof():
            # The client may still be sending: closing now would reset the connection and could destroy the answer
            # (RFC 9112 §9.6). Further bytes are discarded.
            transport.write_eof()
            self.deadline = self._server.now() + LINGER_TIME
        else:
            transport.close()

    def _peer(self) -> str:
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else "unknown"


def _may_follow(rest: bytes, keep_alive: bool) -> bool:
    rest = rest.lstrip(b"\r\n")
    return not rest or (keep_alive and rest[:1].isupper())


class HttpServer:
    """HTTP server on one socket: its connections, their number and their deadlines.

    Args:
        api: the application.
        limits: bounds of requests.
        max_connections: greatest number of connections.
    """

    def __init__(self, api: Answers, limits: Limits, max_connections: int = MAX_CONNECTIONS) -> None:
        self.api = api
        self.limits = limits
        self.max_connections = max_connections
        self.connections: set[HttpServerConnection] = set()
        self.leaving: set[HttpServerConnection] = set()
        """Connections closed in favour of others that still have bytes to send, for LINGER_TIME at most."""
        self.key_refusals = KeyRefusals()
        self._gave_way = 0
        self._logged_at = float("-inf")
        self.heads: dict[bytes, tuple[ApiRequest, int, bool]] = {}
        """Cached results of ``parse_head`` by head, shared by all requests with it."""
        self.retiring = False
        """True while no connections are accepted, and each request is the last one of its connection."""
        self._loop = asyncio.get_running_loop()
        self.now: Callable[[], float] = self._loop.time
        self._server: asyncio.Server | None = None
        self._queue: AcceptQueue | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a bound socket.

        Args:
            sock: the socket.
            tls: certificate of the server; None for plain HTTP.
        """
        create: Any = self._loop.create_unix_server if sock.family == socket.AF_UNIX else self._loop.create_server
        self._queue = AcceptQueue(self._loop, sock, lambda: HttpServerConnection(self), tls, TLS_TIME)
        self._server = await create(
            self._queue.first,
            sock=sock,
            backlog=1024,
            ssl=tls,
            ssl_handshake_timeout=TLS_TIME if tls is not None else None,
        )
        self._timer = self._loop.call_later(CHECK_INTERVAL, self._check)

    def head(self, data: bytes) -> tuple[ApiRequest, int, bool]:
        """Return the cached result of ``parse_head``.

        Args:
            data: the head with its empty line.

        Raises:
            _Refused: as ``parse_head``, and for a head that the application forbids, which is not cached.
        """
        known = self.heads.get(data)
        if known is None:
            known = parse_head(data, self.limits)
            if reason := self.api.forbids(known[0].headers):
                raise _Refused(403, reason)
            if len(data) <= HEAD_KEPT:
                if len(self.heads) >= HEADS_MAX:
                    self.heads.clear()
                self.heads[data] = known
        return known

    def make_room(self) -> None:
        """Close the connection that was idle longest if there are ``max_connections``."""
        connections = self.connections
        if len(connections) < self.max_connections:
            return
        first = min(connections, key=lambda each: each.quiet_since)
        connections.discard(first)
        self.leaving.add(first)
        first.give_way()
        self._gave_way += 1
        now = self.now()
        if now >= self._logged_at + LOG_INTERVAL:
            self._logged_at = now
            log.warning(
                "control connections full",
                "the one idle longest is closed",
                max=self.max_connections,
                closed=self._gave_way,
            )

    def retire(self) -> None:
        """Stop listening, and close each connection after its next request."""
        self.retiring = True
        self._stop_listening()

    def close(self) -> None:
        """Stop listening and close all connections after their written bytes are sent."""
        self._stop_listening()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in [*self.connections, *self.leaving]:
            connection.close()

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_INTERVAL, self._check)
        self.check(self.now())

    def check(self, now: float) -> None:
        """Close the connections whose deadline has passed; called every CHECK_INTERVAL seconds.

        Args:
            now: time in seconds.
        """
        for connection in [each for each in (*self.connections, *self.leaving) if each.deadline <= now]:
            connection.time_out()
