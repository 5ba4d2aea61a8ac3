"""The answering side of a client's connection: whole responses, streams, and what is sent to a held client.

Which request is answered, and what becomes of the connection then, is ``gripproxy.edge.client``'s.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from gripproxy.edge.encoding import error_response, stream_head, whole
from gripproxy.edge.holding import request_uri
from gripproxy.edge.parser import Request, parse_packed
from gripproxy.grip.cors import cors_headers
from gripproxy.grip.response import Response
from gripproxy.sessions.fanout import chunk
from gripproxy.sessions.figures import Figures
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from gripproxy.tally import NOBODY

if TYPE_CHECKING:
    from gripproxy.edge.exchange import Exchange
    from gripproxy.edge.opening import Opening
    from gripproxy.routes import Route
    from gripproxy.worker import Worker

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

# Bits of what is to be known of the current request while it is held, and of the connection.
MINOR, KEEP, HEAD, CORS, SENT, BLOCKED, ADVANCING, CLOSING, DRAINING, PAUSED, REFUSED, HALF = (
    1 << n for n in range(12)
)
BETWEEN: Final = BLOCKED | ADVANCING | CLOSING | DRAINING | PAUSED | REFUSED | HALF
"""Flags kept when the next request begins. DRAINING: the connection closes behind what is in flight. REFUSED: a bad
request waits for its error behind others. HALF: the client has closed its sending side."""


class Answering(asyncio.Protocol):
    """Sending half of a client connection: most of ``gripproxy.sessions.outlet.Outlet``."""

    __slots__ = ("_exchange", "_flags", "_gone", "_hold", "_packed", "_worker", "deadline", "secure", "transport")

    def __init__(self, worker: Worker, secure: bool) -> None:
        self._worker = worker
        self.secure = secure
        """The client came by TLS."""
        self.transport: Any = None
        self._exchange: Exchange | Opening | None = None
        self._hold: ResponseHold | StreamHold | None = None
        self._packed = b""
        self._gone: tuple[Route, bytes, bytes, bool] | None = None
        self._flags = 0
        self.deadline = NEVER

    def finished(self, keep: bool) -> None:
        """A response has been sent completely. ``keep``: the connection may carry another request."""
        raise NotImplementedError

    def _unhold(self, over: bool = True) -> None:
        """The hold has ended; ``over``: so has the request."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """Send bytes that are framed already."""
        self.transport.write(data)

    def write_body(self, data: bytes, chunked: bool) -> None:
        """Send a piece of a body."""
        if data:
            self.transport.write(chunk(data) if chunked else data)

    def send_response(self, response: Response, request: Request) -> None:
        """Send a whole response to the request of the exchange, which ends."""
        # A final status below 200 would be taken for an interim one: nothing may follow it.
        keep = request.keep_alive and not self._flags & DRAINING and response.code >= 200
        data = whole(response, request.minor, keep, request.method == b"HEAD")
        if self._exchange is not None:
            self._count(self._exchange.figures, response, data)
        self.transport.write(data)
        self.finished(keep)

    def send_head(self, response: Response, request: Request) -> None:
        """Send the head of a stream as the whole answer to a HEAD request; the exchange ends."""
        head, _ = stream_head(response, request.minor, True)
        if self._exchange is not None:
            self._exchange.figures.client_header_bytes_sent += len(head)
        self.transport.write(head)
        self.finished(bool(request.minor) and request.keep_alive and response.code >= 200)

    def _count(self, figures: Figures, response: Response, data: bytes) -> None:
        """Count a response of which ``data`` is sent, with its body or without."""
        size = len(response.body) if data.endswith(response.body) else 0
        figures.client_content_bytes_sent += size
        figures.client_header_bytes_sent += len(data) - size

    def send_stream(self, opening: Response | None, ending: bytes, request: Request) -> None:
        """Send a stream that ends at once: its opening (None: sent already) and ``ending``, then its end."""
        chunked = self.begin_stream(opening) if opening is not None else bool(request.minor)
        self.write_body(ending, chunked)
        if chunked:
            self.transport.write(b"0\r\n\r\n")
        self.finished(chunked and request.keep_alive)

    def set_gone(self, route: Route, base: bytes, link: bytes, untrusted: bool) -> None:
        """Remember a ``rel=gone`` link for the life of the request (docs/grip.md §4.4)."""
        if self._gone is None:
            self._gone = (route, base, link, untrusted)

    def _tell_gone(self) -> None:
        gone, self._gone = self._gone, None
        if gone is not None:
            self._worker.tell_gone(*gone)

    def uri(self) -> bytes:
        packed = self._packed
        return request_uri(parse_packed(packed), self.secure) if packed else b""

    def begin_stream(self, response: Response) -> bool:
        request = self._exchange.request if self._exchange is not None else None
        minor = request.minor if request is not None else int(bool(self._flags & MINOR))
        head, chunked = stream_head(response, minor, False)
        body = response.body
        if self._exchange is not None:
            figures = self._exchange.figures
        else:
            figures = self._worker.tally.of(self._hold.rate_key if self._hold is not None else b"")
        figures.client_header_bytes_sent += len(head)
        figures.client_content_bytes_sent += len(body)
        figures.held[response.code // 100] += 1
        if body:
            head += chunk(body) if chunked else body
        self._flags |= SENT
        self.transport.write(head)
        return chunked

    def end_stream(self, chunked: bool) -> None:
        self._unhold()
        if chunked:
            self.transport.write(b"0\r\n\r\n")
        self._packed = b""
        self.finished(chunked and bool(self._flags & KEEP))

    def respond(self, response: Response, reason: str = "") -> None:
        figures = self._worker.tally.of(self._hold.rate_key) if self._hold is not None else NOBODY
        figures.held[response.code // 100] += 1
        if reason:
            self._worker.tally.responded(figures, response.code, reason, figures.held)
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
        keep = bool(flags & KEEP) and not flags & DRAINING and response.code >= 200 and not self._worker.retiring
        data = whole(response, 1 if flags & MINOR else 0, keep, bool(flags & HEAD))
        self._count(figures, response, data)
        self.transport.write(data)
        self.finished(keep)

    def fail(self, detail: str) -> None:
        hold = self._hold
        if self._flags & SENT:
            self.end_stream(isinstance(hold, StreamHold) and hold.chunked)
            return
        text = detail if hold is not None and hold.terms.debug else "Error while proxying to origin."
        self.respond(error_response(502, text), "filter")

    def unavailable(self) -> None:
        self._worker.log.error("a hold was not confirmed by the handler in time")
        if self._flags & SENT:
            self._unhold()
            self.abort()
            return
        self.respond(error_response(500, "Accept service unavailable."), "unconfirmed")

    def break_off(self) -> None:
        self._unhold()
        if self._flags & MINOR:
            # The last chunk is missing, so what is still to be sent may be, if the client takes it.
            self._flags |= CLOSING
            self.deadline = self._worker.clock() + self._worker.config.proxy.client_body_timeout
            self.transport.close()
        else:
            self.abort()

    def abort(self) -> None:
        """Drop the connection at once: what was sent of a response does not look complete."""
        self._flags |= CLOSING
        self.transport.abort()
