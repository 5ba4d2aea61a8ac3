"""The response side of a client's connection: whole responses, streams, and the outlet of a hold.

The request side, and the life of the connection, are in ``gripproxy.client.http_connection``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Final

from gripproxy.client.context import ClientContext
from gripproxy.client.exchange import Exchange
from gripproxy.client.websocket_handshake import WebSocketHandshake
from gripproxy.grip.cors import cors_headers
from gripproxy.grip.response import Response, chunk
from gripproxy.http1.request_parser import Request, parse_packed
from gripproxy.http1.serializer import error_response, stream_head, whole
from gripproxy.process.log import log
from gripproxy.routing.route import Route
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from gripproxy.stats.counters import UNCOUNTED, RouteCounters

__all__ = [
    "ADVANCING",
    "BETWEEN",
    "BLOCKED",
    "CLOSING",
    "CORS",
    "DRAINING",
    "HALF",
    "HEAD",
    "KEEP",
    "MINOR",
    "NEVER",
    "PAUSED",
    "REFUSED",
    "SENT",
    "Answering",
]

NEVER: Final = float("inf")

# Flags of the connection and, while it is held, of its request.
MINOR, KEEP, HEAD, CORS, SENT, BLOCKED, ADVANCING, CLOSING, DRAINING, PAUSED, REFUSED, HALF = (
    1 << n for n in range(12)
)
BETWEEN: Final = BLOCKED | ADVANCING | CLOSING | DRAINING | PAUSED | REFUSED | HALF
"""Flags kept when the next request begins. DRAINING: the connection closes behind the request in flight. REFUSED: a bad
request waits for its error behind others. HALF: the client has closed its sending side."""


class Answering(asyncio.Protocol, ABC):
    """Sending half of a client connection: most of ``gripproxy.sessions.interfaces.Outlet``.

    Args:
        context: The client context.
        secure: The connection has TLS.
    """

    __slots__ = ("_context", "_exchange", "_flags", "_gone", "_hold", "_packed", "deadline", "secure", "transport")

    def __init__(self, context: ClientContext, secure: bool) -> None:
        self._context = context
        self.secure = secure
        """The connection has TLS."""
        self.transport: Any = None
        self._exchange: Exchange | WebSocketHandshake | None = None
        self._hold: ResponseHold | StreamHold | None = None
        self._packed = b""
        self._gone: tuple[Route, bytes, bytes, bool] | None = None
        self._flags = 0
        self.deadline = NEVER

    @abstractmethod
    def finished(self, keep: bool) -> None:
        """End the exchange, whose response is sent; ``keep``: the connection may carry another request."""

    @abstractmethod
    def _unhold(self, over: bool = True) -> None:
        """End the hold; ``over``: its request is over too."""

    def write(self, data: bytes) -> None:
        """Send ``data``, which is framed already."""
        self.transport.write(data)

    def write_body(self, data: bytes, chunked: bool) -> None:
        """Send ``data``, a piece of a body; ``chunked``: as a chunk."""
        if data:
            self.transport.write(chunk(data) if chunked else data)

    def send_response(self, response: Response, request: Request) -> None:
        """Send a whole ``response`` to ``request``; the exchange ends."""
        # A final status below 200 would be taken for an interim one: nothing may follow it.
        keep = request.keep_alive and not self._flags & DRAINING and response.code >= 200
        data = whole(response, request.minor, keep, request.method == b"HEAD")
        if self._exchange is not None:
            self._count(self._exchange.figures, response, data)
        self.transport.write(data)
        self.finished(keep)

    def send_head(self, response: Response, request: Request) -> None:
        """Send the head of ``response``, a stream, to a HEAD ``request``; the exchange ends."""
        head, _ = stream_head(response, request.minor, True)
        if self._exchange is not None:
            self._exchange.figures.client_header_bytes_sent += len(head)
        self.transport.write(head)
        self.finished(bool(request.minor) and request.keep_alive and response.code >= 200)

    def _count(self, figures: RouteCounters, response: Response, data: bytes) -> None:
        """Count a response of which ``data`` is sent, with its body or without."""
        size = len(response.body) if data.endswith(response.body) else 0
        figures.client_content_bytes_sent += size
        figures.client_header_bytes_sent += len(data) - size

    def send_stream(self, opening: Response | None, ending: bytes, request: Request) -> None:
        """Send a stream that ends; the exchange ends.

        Args:
            opening: Head and first bytes; None if they were sent already.
            ending: Last bytes.
            request: The client's request.
        """
        chunked = self.begin_stream(opening) if opening is not None else bool(request.minor)
        self.write_body(ending, chunked)
        if chunked:
            self.transport.write(b"0\r\n\r\n")
        self.finished(chunked and request.keep_alive)

    def set_gone(self, route: Route, base: bytes, link: bytes, untrusted: bool) -> None:
        """Keep a ``rel=gone`` link for the life of the request (docs/grip.md §4.4).

        Args:
            route: The route of the request.
            base: Absolute URI of the request.
            link: The link, relative to it or absolute.
            untrusted: The link comes from an untrusted target.
        """
        if self._gone is None:
            self._gone = (route, base, link, untrusted)

    def _tell_gone(self) -> None:
        gone, self._gone = self._gone, None
        if gone is not None:
            self._context.gone.send(*gone)

    def uri(self) -> bytes:
        """Return the URI of a long-poll's request, without ``secret_query``; empty for a stream."""
        packed = self._packed
        uri = parse_packed(packed).uri(self.secure) if packed else b""
        route = self._hold.terms.route if self._hold is not None else None
        return route.public(uri) if isinstance(route, Route) else uri

    def begin_stream(self, response: Response) -> bool:
        """Send head and first bytes of a body without end.

        Args:
            response: Head and first bytes.

        Returns:
            True if further pieces are chunks (HTTP/1.1); False if the body ends with the connection (HTTP/1.0).
        """
        request = self._exchange.request if self._exchange is not None else None
        minor = request.minor if request is not None else int(bool(self._flags & MINOR))
        head, chunked = stream_head(response, minor, False)
        body = response.body
        if self._exchange is not None:
            figures = self._exchange.figures
        else:
            figures = self._context.stats.of(self._hold.rate_key if self._hold is not None else b"")
        figures.client_header_bytes_sent += len(head)
        figures.client_content_bytes_sent += len(body)
        figures.held[response.code // 100] += 1
        if body:
            head += chunk(body) if chunked else body
        self._flags |= SENT
        self.transport.write(head)
        return chunked

    def close_stream(self, chunked: bool) -> None:
        """End the body of a held stream, and the hold; ``chunked``: by the last chunk."""
        self._unhold()
        if chunked:
            self.transport.write(b"0\r\n\r\n")
        self._packed = b""
        self.finished(chunked and bool(self._flags & KEEP))

    def respond(self, response: Response, reason: str = "") -> None:
        """Send a whole response to a held request, and end the hold.

        Args:
            response: The response.
            reason: One of gripproxy.grip.stats_format.ANSWERS if the response follows from no instruct.
        """
        figures = self._context.stats.of(self._hold.rate_key) if self._hold is not None else UNCOUNTED
        figures.held[response.code // 100] += 1
        if reason:
            self._context.stats.responded(figures, response.code, reason, figures.held)
        self._unhold()
        flags = self._flags
        if flags & CORS:
            request = parse_packed(self._packed)
            response = Response(
                response.code,
                response.reason,
                response.headers + cors_headers(request.headers, response.headers),
                response.body,
            )
        self._packed = b""
        keep = (
            bool(flags & KEEP) and not flags & DRAINING and response.code >= 200 and not self._context.registry.retiring
        )
        data = whole(response, 1 if flags & MINOR else 0, keep, bool(flags & HEAD))
        self._count(figures, response, data)
        self.transport.write(data)
        self.finished(keep)

    def fail(self, detail: str) -> None:
        """End the hold as an error: 502, or the end of a body that was begun; ``detail``: shown in debug mode."""
        hold = self._hold
        if self._flags & SENT:
            self.close_stream(isinstance(hold, StreamHold) and hold.chunked)
            return
        text = detail if hold is not None and hold.terms.debug else "Error while proxying to origin."
        self.respond(error_response(502, text), "filter")

    def unavailable(self) -> None:
        """End the hold: the handler did not confirm its channels in time."""
        log.error("hold not confirmed", "the handler did not answer in time: see hold_confirm_timeout")
        if self._flags & SENT:
            self._unhold()
            self.abort()
            return
        self.respond(error_response(500, "Accept service unavailable."), "unconfirmed")

    def truncate(self) -> None:
        """End the hold and the connection, so that the body cannot be taken for complete."""
        self._unhold()
        if self._flags & MINOR:
            # The last chunk is missing, so bytes that wait may still be sent, if the client takes them.
            self._flags |= CLOSING
            self.deadline = self._context.clock() + self._context.proxy.client_body_timeout
            self.transport.close()
        else:
            self.abort()

    def abort(self) -> None:
        """Drop the connection: a response begun does not look complete."""
        self._flags |= CLOSING
        self.transport.abort()
