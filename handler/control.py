"""The HTTP control port: connections, framing, limits and times. What is answered is decided in ``api``.

Publishers use this port most, one item per request, so it is as hot as a proxied request: a protocol and httptools, no
task per connection. Bodies need a Content-Length here, so the parser sees heads only and bodies are counted.
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

from gripproxy.grip.headers import Headers
from gripproxy.log import log

from .api import ApiRequest, answer

__all__ = ["ControlConnection", "ControlServer", "Limits"]

MAX_CONNECTIONS: Final = 128
"""Connections at once. For one more the one goes that was idle longest, with 503 if it had begun a request: whoever
only holds connections, or half requests, must not lock publishers out."""

TOLD: Final = 10.0
"""Seconds between two lines of the log about that."""

HEAD_TIME: Final = 15.0
"""Seconds for a request's head, from its first byte."""

IDLE_TIME: Final = 60.0
"""Seconds without a byte: in a body, or between two requests."""

TLS_TIME: Final = 10.0
"""Seconds for the TLS handshake."""

LINGER_TIME: Final = 2.0
"""Seconds a refused client has to stop sending and read its answer."""

LOOK: Final = 1.0
"""Seconds between two looks at all connections for time that is over."""

HEADS_MAX: Final = 256
HEAD_KEPT: Final = 1024
"""Parsed heads that are kept, and how long in bytes such a one may be. A publisher sends the same head again and again,
but for the length of the body. With one more than that all are forgotten."""

BODILESS: Final = frozenset({b"GET", b"HEAD", b"DELETE", b"OPTIONS"})
"""Methods that need no Content-Length."""

_BARE_LF = re.compile(rb"(?<!\r)\n")

_NO_LENGTH: Final = b"Request requires Content-Length.\n"
_BAD_LENGTH: Final = b"Bad Content-Length.\n"
_BAD_HEAD: Final = b"Failed to parse request header.\n"


class _Refused(Exception):
    """The request is refused before or without its body: the client's fault. The connection ends after the answer."""

    def __init__(self, code: int, text: bytes, extra: bytes = b"") -> None:
        super().__init__(text.decode().strip())
        self.code = code
        self.text = text
        self.extra = extra


class Answers(Protocol):
    """Who answers, with the body there or not yet."""

    open: bool
    """Whether all requests are admitted."""

    def admits(self, target: bytes, headers: Headers) -> bool:
        """Return whether a request may be read any further; if not, it gets 401 whatever its body is."""

    def forbids(self, headers: Headers) -> bytes:
        """Return why a request with these headers gets 403 whatever else is in it; empty if it does not."""

    def respond(self, request: ApiRequest) -> bytes:
        """Return the answer to a request that was admitted."""


class Limits:
    """Sizes in bytes, ``push_in_http_max_headers_size`` and ``push_in_http_max_body_size``."""

    __slots__ = ("body", "head")

    def __init__(self, head: int = 10_000, body: int = 1_000_000) -> None:
        self.head = head
        self.body = body


class _Head:
    """What httptools finds in a request's head."""

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
    """Return the request in ``data``, a head with its empty line, with the length of its body and whether the client
    waits for ``100 Continue``. Raises _Refused.

    Not all that Pushpin takes is taken: a line end without CR, a header line without colon and a method unknown to
    HTTP are errors.
    """
    head = _Head()
    parser = httptools.HttpRequestParser(head)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        # CONNECT, or an Upgrade we do not know: an ordinary request to us (RFC 9110 §7.8).
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
    request = ApiRequest(method, head.target, version == "1.1", False, head.headers)
    request.keep_alive = request.http_1_1 and parser.should_keep_alive()
    if head.transfer_encoding or (head.length is None and method not in BODILESS):
        raise _Refused(411, _NO_LENGTH)
    length = 0 if head.length is None else int(head.length)
    if length > limits.body:
        raise _Refused(400, b"Request body too large.\n")
    return request, length, head.expects


class ControlConnection(asyncio.Protocol):
    """One connection to the control port. Made by ControlServer."""

    def __init__(self, server: ControlServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        # Bytes not used yet: at most a head, a body, and what one read brings beyond (then reading is paused).
        self._buffer = b""
        self._request: ApiRequest | None = None
        self._length = 0
        self._parts: list[bytes] = []
        self._closing = False
        self._paused = False
        self.deadline = 0.0
        """When to give up waiting, on the loop's clock."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        server = self._server
        self.deadline = server.now() + IDLE_TIME
        server.make_room()
        server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.leaving.discard(self)
        self._closing = True
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._buffer:
            data = self._buffer + data
        elif self._request is None:
            server = self._server
            end = data.find(b"\r\n\r\n") + 4
            known = server.heads.get(data[:end])
            if known is not None and len(data) == end + known[1] and not self._paused and not server.retiring:
                # A whole request with a head that has come before: nearly all of them.
                request, api = known[0], server.api
                if api.open or api.admits(request.target, request.headers):
                    request.body = data[end:]
                    answered = api.respond(request)
                    request.body = b""
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
        # A client may close its sending side and still read (nc does); an unfinished request ends with it.
        self.close()
        return False

    def close(self) -> None:
        """Close the connection once what was written has left."""
        self._closing = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def pause_writing(self) -> None:
        # A client that sends requests and reads no answers must not fill our memory.
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if self._transport is not None:
            self._transport.resume_reading()
        self._advance()

    @property
    def quiet_since(self) -> float:
        """Since when nothing came, on the loop's clock: of a head its first byte counts, so that one byte after the
        other does not help. One that is closing is of no use any more."""
        if self._closing:
            return float("-inf")
        return self.deadline - (HEAD_TIME if self._buffer and self._request is None else IDLE_TIME)

    def give_way(self) -> None:
        """End the connection for another one. An unfinished request gets 503."""
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
        # What was written still leaves, if the client reads it soon.
        self.deadline = self._server.now() + LINGER_TIME
        transport.close()

    def time_out(self) -> None:
        """End the connection because nothing came for too long. An unfinished request gets 408."""
        if self._closing:
            # The answer was not read for so long either.
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
        # httptools would wait for more after most of these; to wait is worse than to say so.
        if end < 4:
            if _BARE_LF.search(buffer):
                raise _Refused(400, _BAD_HEAD)
            return False
        request, length, expects = self._server.head(buffer[:end])
        if not self._server.api.admits(request.target, request.headers):
            log.warning("control: %s %s from %s without a valid key", request.method, request.target, self._peer())
            raise _Refused(401, b"Unauthorized\n", b"WWW-Authenticate: Bearer\r\n")
        self._request = request
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
            # Long bodies come in many pieces; joining them once at the end is linear.
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
        # What follows must be a further request: a method is upper-case letters. Anything else means that the client
        # miscounted, and then nothing is done.
        if rest and (request.method == b"POST" or length) and not _may_follow(rest, request.keep_alive):
            raise _Refused(400, b"Request body exceeded Content-Length.\n")
        self._request = None
        self._buffer = rest
        if self._server.retiring and not rest:
            request = replace(request, keep_alive=False, plan=None)
        request.body = body
        self._answer(self._server.api.respond(request), request.keep_alive)
        request.body = b""
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
        log.info("control: request from %s refused: code=%d %s", self._peer(), refused.code, refused)
        self._request, self._parts = None, []
        transport = self._transport
        if transport is None:
            return
        transport.write(answer(refused.code, refused.text, extra=refused.extra, http_1_1=http_1_1))
        self._closing = True
        self._buffer = b""
        if transport.can_write_eof():
            # The client may still be sending: closing now would reset the connection and could destroy the answer
            # (RFC 9112 §9.6). What still comes is thrown away.
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


class ControlServer:
    """The listening side: its connections, their number and their times.

    Arguments: ``api`` answers; ``limits`` are sizes; ``max_connections`` see MAX_CONNECTIONS.
    """

    def __init__(self, api: Answers, limits: Limits, max_connections: int = MAX_CONNECTIONS) -> None:
        self.api = api
        self.limits = limits
        self.max_connections = max_connections
        self.connections: set[ControlConnection] = set()
        self.leaving: set[ControlConnection] = set()
        """Connections that had to give way and have still something to write, for LINGER_TIME at most."""
        self._gave_way = 0
        self._told_at = float("-inf")
        self.heads: dict[bytes, tuple[ApiRequest, int, bool]] = {}
        """Requests without their bodies by head, as from ``parse_head``; each is shared by all who send that head."""
        self.retiring = False
        """No new connections come, and each request is the last one of its connection."""
        self._loop = asyncio.get_running_loop()
        self.now: Callable[[], float] = self._loop.time
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Listen on ``sock``, which is bound."""
        create: Any = self._loop.create_unix_server if sock.family == socket.AF_UNIX else self._loop.create_server
        self._server = await create(
            lambda: ControlConnection(self),
            sock=sock,
            backlog=1024,
            ssl=tls,
            ssl_handshake_timeout=TLS_TIME if tls is not None else None,
        )
        self._timer = self._loop.call_later(LOOK, self._look)

    def head(self, data: bytes) -> tuple[ApiRequest, int, bool]:
        """Return what ``parse_head`` does, once for all heads that are the same. Raises _Refused, also for one that
        ``api`` forbids: of what is kept here nothing is forbidden."""
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
        """Let the connection that can best be done without go, if there are as many as may be."""
        connections = self.connections
        if len(connections) < self.max_connections:
            return
        first = min(connections, key=lambda each: each.quiet_since)
        connections.discard(first)
        self.leaving.add(first)
        first.give_way()
        self._gave_way += 1
        now = self.now()
        if now >= self._told_at + TOLD:
            self._told_at = now
            log.warning(
                "control: connections full, the one idle longest closed: max=%d closed=%d",
                self.max_connections,
                self._gave_way,
            )

    def retire(self) -> None:
        """Stop listening, and have the clients that are connected go after their next request."""
        self.retiring = True
        if self._server is not None:
            self._server.close()
            self._server = None

    def close(self) -> None:
        """Stop listening and close all connections; answers already given still leave."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in [*self.connections, *self.leaving]:
            connection.close()

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK, self._look)
        self.look(self.now())

    def look(self, now: float) -> None:
        """End the connections whose time is over; called every LOOK seconds."""
        for connection in [each for each in (*self.connections, *self.leaving) if each.deadline <= now]:
            connection.time_out()
