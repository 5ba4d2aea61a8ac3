"""A client's connection: requests in, in order; responses out; and the outlet of what is held on it.

While nothing is in flight the connection waits in the worker's sweep for its deadline; while it is held it is in no
list, and keeps neither parser nor request objects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from gripproxy.edge.encoding import bad_request, error_response, stream_head, whole
from gripproxy.edge.exchange import Exchange
from gripproxy.edge.holding import request_uri
from gripproxy.edge.opening import Opening
from gripproxy.edge.parser import BadRequest, Request, RequestParser, parse_packed
from gripproxy.edge.peer import GONE, descriptor
from gripproxy.edge.repeating import Repeat
from gripproxy.edge.routing import is_secure
from gripproxy.grip.cors import cors_headers
from gripproxy.grip.response import Response
from gripproxy.sessions.fanout import chunk
from gripproxy.sessions.figures import Figures
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from gripproxy.tally import NOBODY, address

if TYPE_CHECKING:
    from gripproxy.routes import Route
    from gripproxy.worker import Worker

__all__ = ["ClientConnection"]

NEVER: Final = float("inf")

# Bits of what is to be known of the current request while it is held, and of the connection.
MINOR, KEEP, HEAD, CORS, SENT, BLOCKED, ADVANCING, CLOSING, DRAINING, PAUSED = (1 << n for n in range(10))
_BETWEEN: Final = BLOCKED | ADVANCING | CLOSING | DRAINING | PAUSED
"""What outlasts a request."""


class ClientConnection(asyncio.Protocol):
    """One client. Implements ``gripproxy.edge.parser.RequestOwner`` and ``gripproxy.sessions.outlet.Outlet``."""

    __slots__ = (
        "_ahead", "_exchange", "_flags", "_gone", "_hold", "_packed", "_parser", "_queue", "_worker",
        "deadline", "secure", "transport",
    )  # fmt: skip

    def __init__(self, worker: Worker, secure: bool) -> None:
        self._worker = worker
        self.secure = secure
        """The client came by TLS."""
        self.transport: Any = None
        self._parser: RequestParser | None = None
        self._exchange: Exchange | Opening | None = None
        self._hold: ResponseHold | StreamHold | None = None
        self._queue: deque[Request] | None = None
        self._packed = b""
        self._gone: tuple[Route, bytes, bytes, bool] | None = None
        self._ahead = 0
        self._flags = 0
        self.deadline = NEVER

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        worker = self._worker
        self.transport = transport
        worker.connections += 1
        worker.accepted += 1
        worker.active[self] = None
        self.deadline = worker.clock() + worker.config.proxy.client_head_timeout
        if worker.connections > worker.max_connections or worker.draining:
            why = "the process is stopping" if worker.draining else f"{worker.max_connections} connections are open"
            worker.refused(self, why, "client_maxconn")
            self._close_with(error_response(503, "Service unavailable."))

    def data_received(self, data: bytes) -> None:
        if self._flags & CLOSING:
            return
        exchange = self._exchange
        if self._hold is not None or (exchange is not None and exchange.request.complete):
            # Reading goes on, else nobody would notice that the client has gone; what may pile up is bounded.
            self._ahead += len(data)
            if self._ahead > self._worker.config.runner.client_buffer_size:
                self._worker.bad_client(self, f"{self._ahead} bytes sent while a response is awaited")
                self.abort()
                return
        parser = self._parser
        first = parser is None
        if parser is None:
            parser = self._parser = RequestParser(self, self._worker.config.runner.client_buffer_size)
        idle = exchange is None and self._hold is None
        if idle and not self._queue:
            request = parser.known(data)
            if request is not None:
                self._begin(request)
                return
        begins = idle and not first and parser.between
        try:
            parser.feed(data)
        except BadRequest as error:
            self._bad(error)
            return
        if self._exchange is None:
            if begins and parser.in_head:
                self.deadline = self._worker.clock() + self._worker.config.proxy.client_head_timeout
            queue = self._queue
            if queue and self._hold is None:
                if len(queue) == 1:
                    self._ahead = 0
                    self._begin(queue.popleft())
                else:
                    self._ahead = sum(waiting.size for waiting in queue)
                    self._advance()
        elif not self._exchange.request.complete and not self._flags & PAUSED:
            self.deadline = self._worker.clock() + self._worker.config.proxy.client_body_timeout

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        worker = self._worker
        worker.connections -= 1
        worker.active.pop(self, None)
        worker.buffers.forget(self)
        self._flags |= CLOSING
        exchange = self._take_exchange()
        if exchange is not None:
            exchange.abort()
            worker.tally.ended(exchange)
        hold, self._hold = self._hold, None
        if hold is not None:
            worker.held_ended(hold)
            worker.tally.left(hold)
            hold.leave()
            worker.log_left(self, hold)
        self._tell_gone()
        self._queue = None
        if self._parser is not None:
            self._parser.close()
            self._parser = None

    def pause_writing(self) -> None:
        self._flags |= BLOCKED
        if self._exchange is not None:
            self._exchange.client_blocked(True)
        elif isinstance(self._hold, StreamHold):
            self._hold.on_blocked()
        self._worker.buffers.watch(self)

    def resume_writing(self) -> None:
        self._flags &= ~BLOCKED
        if self._exchange is not None:
            self._exchange.client_blocked(False)
        elif isinstance(self._hold, StreamHold):
            self._hold.on_writable()

    # --- requests

    def request_begun(self, request: Request) -> None:
        if self._queue is None:
            self._queue = deque((request,))
        else:
            self._queue.append(request)

    def request_body(self, request: Request, data: bytes) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.request is request:
            exchange.request_body(data)
        else:
            request.body.append(data)

    def request_complete(self, request: Request) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.request is request:
            exchange.request_complete()
            self.deadline = NEVER
            if self._flags & PAUSED:
                # Nothing more is to be held back, and only a reader sees the client leave.
                self._flags &= ~PAUSED
                self.transport.resume_reading()

    def _take_exchange(self) -> Exchange | Opening | None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._worker.in_flight -= 1
        return exchange

    def _advance(self) -> None:
        """Begin the next request, if nothing is in flight."""
        if self._flags & ADVANCING:
            return
        self._flags |= ADVANCING
        while self._queue and self._exchange is None and self._hold is None and not self._flags & CLOSING:
            request = self._queue.popleft()
            self._ahead = max(0, self._ahead - request.size)
            self._begin(request)
        self._flags &= ~ADVANCING

    def _begin(self, request: Request) -> None:
        """Begin a request: nothing is in flight."""
        self._flags &= _BETWEEN
        worker = self._worker
        worker.requests += 1
        if worker.retiring:
            request.keep_alive = False
        kind = Opening if request.upgrade is not None else Exchange
        exchange = self._exchange = kind(self, worker, request, worker.next_serial())
        self.deadline = NEVER
        worker.in_flight += 1
        if worker.in_flight > worker.max_requests:
            worker.refused(self, f"{worker.max_requests} requests are being proxied", "max_open_requests")
            worker.tally.responded(worker.tally.others, 503, "limit")
            request.keep_alive = False
            self.send_response(error_response(503, "Service unavailable."), request)
            return
        if not request.complete:
            self.deadline = worker.clock() + worker.config.proxy.client_body_timeout
            if request.expect and request.minor and not request.body:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        exchange.start()

    def _bad(self, error: BadRequest) -> None:
        """The client sent what is no request: say so once, then close."""
        self._worker.bad_client(self, str(error))
        if self._exchange is not None or self._hold is not None or self._flags & SENT:
            # An answer now would be taken for the one in flight.
            self.abort()
            return
        self._close_with(bad_request(error.status, str(error)))

    def _close_with(self, response: Response) -> None:
        tally = self._worker.tally
        tally.responded(tally.others, response.code, "limit" if response.code == 503 else "client")
        self._flags |= CLOSING
        self.transport.write(whole(response, 1, False, False))
        # Unread input would turn the close into a reset that may overtake the answer (RFC 9112 §9.6).
        self.transport.pause_reading()
        sock = self.transport.get_extra_info("socket")
        if sock is not None and self.transport.get_extra_info("sslcontext") is None and self.transport.can_write_eof():
            self.transport.write_eof()
            self.transport.resume_reading()
            self.deadline = self._worker.clock() + 1.0
        else:
            self.transport.close()

    def expire(self) -> None:
        """The deadline has passed: the client was silent for too long."""
        exchange = self._exchange
        worker = self._worker
        if exchange is not None:
            worker.bad_client(self, "no more of the request body in time")
            self._take_exchange()
            exchange.abort()
            worker.tally.ended(exchange)
            self.abort()
            return
        parser = self._parser
        if not self._flags & CLOSING and parser is not None and parser.in_head:
            worker.bad_client(self, "request head not complete in time")
            self._close_with(error_response(408, "Request head not complete in time."))
            return
        self.transport.abort() if self._flags & CLOSING else self.transport.close()

    def sweep(self, now: float) -> None:
        """Called about once a second while not held: ends what has taken too long; ``now`` in loop seconds."""
        exchange = self._exchange
        if exchange is not None and exchange.deadline < now:
            exchange.expire()
        elif self.deadline < now:
            self.deadline = NEVER
            self.expire()

    def drain(self) -> None:
        """The process ends: finish what is in flight, end what is held, take nothing new."""
        self._flags |= DRAINING
        hold = self._hold
        if hold is not None:
            hold.drain()
        elif self._exchange is None:
            self.transport.close()

    # --- Peer

    def buffered(self) -> int:
        size: int = self.transport.get_write_buffer_size()
        if self._exchange is not None:
            return size + self._exchange.buffered()
        return size + self._hold.queued if isinstance(self._hold, StreamHold) else size

    def unread(self) -> int:
        return descriptor(self.transport) if self._flags & PAUSED else -1

    def attend(self, now: float, closed: int) -> None:
        # Half a close is none: a client may end what it sends and wait for its answer.
        if closed & GONE:
            self.abort()

    def overfull(self, size: int, total: int) -> None:
        self._worker.overfull(self, size, total)
        self.abort()

    # --- for the exchange

    @property
    def exchange(self) -> Exchange | Opening | None:
        """The request in flight, or handshake."""
        return self._exchange

    @property
    def blocked(self) -> bool:
        """The client does not read as fast as is written."""
        return bool(self._flags & BLOCKED)

    def peer(self) -> bytes:
        """Return the client's address, empty for a unix socket."""
        return address(self.transport)

    def logical(self) -> tuple[bytes, bool]:
        """Return what a held client is known by in the statistics: its address, and whether it came by TLS."""
        packed = self._packed
        if not isinstance(self._hold, ResponseHold):
            return (packed[1:], packed[:1] == b"s") if packed else (self.peer(), self.secure)
        request = parse_packed(packed)
        worker = self._worker
        # A client that is trusted to be a GRIP proxy is never held.
        return worker.tally.peer(request, self.peer()), is_secure(request, self.secure, worker.forward_settings)

    def pause(self) -> None:
        """Read no more of the request body for now."""
        self.deadline = NEVER
        if not self._flags & PAUSED:
            self._flags |= PAUSED
            self.transport.pause_reading()
            self._worker.buffers.watch(self)

    def resume(self) -> None:
        """Undo ``pause``."""
        if self._flags & PAUSED and not self.transport.is_closing():
            self._flags &= ~PAUSED
            self.transport.resume_reading()
            self.deadline = self._worker.clock() + self._worker.config.proxy.client_body_timeout

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

    def finished(self, keep: bool) -> None:
        """A response has been sent completely. ``keep``: the connection may carry another request."""
        worker = self._worker
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            worker.in_flight -= 1
            worker.tally.ended(exchange)
        if self._gone is not None:
            self._tell_gone()
        transport = self.transport
        if not keep or self._flags & (DRAINING | CLOSING):
            self._flags |= CLOSING
            transport.close()
            return
        self._flags &= ~SENT
        parser = self._parser
        times = worker.config.proxy
        in_head = parser is not None and parser.in_head
        self.deadline = worker.clock() + (times.client_head_timeout if in_head else times.client_idle_timeout)
        if self._flags & PAUSED:
            self._flags &= ~PAUSED
            transport.resume_reading()
        if self._queue:
            self._advance()
        else:
            self._ahead = 0

    # --- holding

    def hold(self, hold: ResponseHold | StreamHold, request: Request, body: bytes, cors: bool) -> None:
        """From now on ``hold`` owns the client; ``body`` is kept with the request if it may be repeated."""
        flags = self._flags & (_BETWEEN | SENT)
        if request.minor:
            flags |= MINOR
        if request.keep_alive:
            flags |= KEEP
        if request.method == b"HEAD":
            flags |= HEAD
        if cors:
            flags |= CORS
        self._flags = flags
        exchange = self._take_exchange()
        self._hold = hold
        self.deadline = NEVER
        if isinstance(hold, ResponseHold):
            self._packed = request.pack(body)
        elif exchange is not None:
            known = self._worker.tally.peer(request, b"")
            if known or exchange.secure != self.secure:
                self._packed = (b"s" if exchange.secure else b"-") + (known or self.peer())
        parser = self._parser
        if parser is not None and parser.between and not self._queue and not parser.closing:
            parser.close()
            self._parser = None
            self._queue = None
        self._worker.active.pop(self, None)
        self._worker.held_began(hold, self)
        self._worker.tally.handed(hold.serial)
        if flags & DRAINING:
            hold.drain()

    def give_away(self) -> tuple[Any, bytes]:
        """The client speaks another protocol from now on: give its transport away, with what it has sent already.

        This connection is over.
        """
        worker, parser = self._worker, self._parser
        worker.buffers.forget(self)
        worker.connections -= 1
        worker.active.pop(self, None)
        self._flags |= CLOSING
        self._take_exchange()
        self._queue = None
        self._parser = None
        rest = b""
        if parser is not None:
            rest = parser.rest
            parser.close()
        return self.transport, rest

    def set_gone(self, route: Route, base: bytes, link: bytes, untrusted: bool) -> None:
        """Remember a ``rel=gone`` link for the life of the request (docs/grip.md §4.4)."""
        if self._gone is None:
            self._gone = (route, base, link, untrusted)

    def _tell_gone(self) -> None:
        gone, self._gone = self._gone, None
        if gone is not None:
            self._worker.tell_gone(*gone)

    def _unhold(self, over: bool = True) -> None:
        """The hold has ended; ``over``: so has the request."""
        hold, self._hold = self._hold, None
        if hold is not None:
            self._worker.held_ended(hold)
            if over:
                self._worker.tally.left(hold)
            self._worker.active[self] = None

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

    def cut(self, why: str) -> None:
        self._worker.slow_client(self, why)
        if self._hold is not None:
            self._worker.tally.slow(self._hold.rate_key, self._hold.mode)
        self._unhold()
        self.abort()

    def retry(self, last_ids: tuple[tuple[bytes, bytes], ...], because: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        hold = self._hold
        assert hold is not None
        self._unhold(over=False)
        self._tell_gone()
        request = parse_packed(self._packed)
        self._packed = b""
        route = self._worker.routes.by_id(cast("Route", hold.route).id)
        if route is None:
            self._worker.tally.left(hold)
            self._flags &= ~CORS
            self.respond(
                error_response(502, "No route for host: " + (request.host or b"").decode("latin-1")), "no-route"
            )
            return
        self._flags &= ~SENT
        self._worker.in_flight += 1
        lane = hold.update_lane
        exchange = self._exchange = Repeat(self, self._worker, request, hold.serial, route, last_ids, because, lane)
        exchange.figures = self._worker.tally.repeated(hold)
        exchange.start()

    def abort(self) -> None:
        """Drop the connection at once: what was sent of a response does not look complete."""
        self._flags |= CLOSING
        self.transport.abort()
