"""A client's connection: requests in, in order; responses out; and the outlet of a hold.

While nothing is in flight the connection waits in the worker's sweep for its deadline; while it is held it is in no
list, and keeps neither parser nor request objects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, cast

from gripproxy.client.answering import (
    ADVANCING,
    BETWEEN,
    BLOCKED,
    CLOSING,
    CORS,
    DRAINING,
    HALF,
    HEAD,
    KEEP,
    MINOR,
    NEVER,
    PAUSED,
    REFUSED,
    SENT,
    Answering,
)
from gripproxy.client.exchange import Exchange
from gripproxy.client.hold_start import begin_hold
from gripproxy.client.peer import GONE, address, descriptor
from gripproxy.client.ports import HoldRequest
from gripproxy.client.retry import RetriedExchange
from gripproxy.client.websocket_handshake import WebSocketHandshake
from gripproxy.grip.instruct import Instruct
from gripproxy.grip.response import Response
from gripproxy.http1.request_parser import BadRequest, Request, RequestParser, parse_packed
from gripproxy.http1.serializer import bad_request, error_response, whole
from gripproxy.routing.match import is_secure
from gripproxy.routing.route import Route
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold

__all__ = ["HttpConnection"]

UNHEARD_MAX: Final = 1024 * 1024
"""Bytes read and discarded behind a malformed request while responses to earlier ones are awaited; with more of them
the connection is dropped. Reading goes on so that the client's end is noticed."""

_DEAF: Final = CLOSING | REFUSED


class HttpConnection(Answering):
    """Connection of one client.

    Implements ``gripproxy.http1.request_parser.RequestOwner`` and ``gripproxy.sessions.interfaces.Outlet``.
    """

    __slots__ = ("_ahead", "_parser", "_queue")

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        context = self._context
        self.transport = transport
        # Here and not in a constructor of its own, which would call another one for each client.
        self._parser: RequestParser | None = None
        self._queue: deque[Request | BadRequest] | None = None
        """Requests that wait for their turn, and behind them the error of bytes that are no request."""
        self._ahead = 0
        registry = context.registry
        registry.connections += 1
        registry.accepted += 1
        registry.active[self] = None
        self.deadline = context.clock() + context.proxy.client_head_timeout
        if registry.connections > registry.max_connections or registry.draining:
            stopping = registry.draining
            why = "the process is stopping" if stopping else f"{registry.max_connections} connections are open"
            context.events.refused(self, why, "client_maxconn")
            self._close_with(error_response(503, "Service unavailable."))

    def data_received(self, data: bytes) -> None:
        if self._flags & _DEAF:
            self._unheard(len(data))
            return
        exchange = self._exchange
        idle = exchange is None and self._hold is None
        if not idle and (exchange is None or exchange.request.complete):
            # Reading goes on, else the client's end would not be noticed; the bytes that may pile up are bounded.
            self._ahead += len(data)
        parser = self._parser
        first = parser is None
        if parser is None:
            parser = self._parser = RequestParser(self, self._context.config.runner.client_buffer_size)
        if idle and not self._queue:
            request = parser.known(data)
            if request is not None:
                self._begin(request)
                return
        begins = idle and not first and parser.between
        try:
            parser.feed(data)
        except BadRequest as error:
            self._refuse(error)
            return
        if not idle and self._ahead > self._context.config.runner.client_buffer_size:
            self._context.events.bad_client(self, f"{self._ahead} bytes sent while a response is awaited")
            self.abort()
            return
        if self._exchange is None:
            if begins and parser.in_head:
                self.deadline = self._context.clock() + self._context.proxy.client_head_timeout
            queue = self._queue
            if queue and self._hold is None:
                if len(queue) == 1:
                    self._ahead = 0
                    self._begin(queue.popleft())  # type: ignore[arg-type]  # what is none never comes alone
                else:
                    self._count_ahead()
                    self._advance()
        elif not self._exchange.request.complete and not self._flags & PAUSED:
            self.deadline = self._context.clock() + self._context.proxy.client_body_timeout

    def eof_received(self) -> bool:
        """The client sends no more. Returns whether the connection stays open, for an answer whose head is not sent.

        Otherwise the client has left: while an answer is on its way, and while it is held. A TLS connection cannot stay
        half open (asyncio).
        """
        exchange = self._exchange
        if type(exchange) is not Exchange or exchange.answering or not exchange.request.complete or self.secure:
            return False
        queue = self._queue
        if queue and isinstance(queue[-1], Request) and not queue[-1].complete:
            queue.pop()
        self._flags |= HALF if queue else HALF | DRAINING
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        context = self._context
        context.registry.connections -= 1
        context.registry.active.pop(self, None)
        if context.buffers.peers:
            context.buffers.forget(self)
        self._flags |= CLOSING
        exchange = self._take_exchange()
        if exchange is not None:
            exchange.abort()
            context.stats.ended(exchange, exchange.serial, exchange.figures)
        hold, self._hold = self._hold, None
        if hold is not None:
            context.registry.held_ended(hold)
            hold.client_lost()
            context.access_log.left(hold.serial)
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
        self._context.buffers.watch(self)

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

    def _take_exchange(self) -> Exchange | WebSocketHandshake | None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._context.registry.in_flight -= 1
        return exchange

    def _advance(self) -> None:
        """Begin the next request, if nothing is in flight."""
        if self._flags & ADVANCING:
            return
        self._flags |= ADVANCING
        while self._queue and self._exchange is None and self._hold is None and not self._flags & CLOSING:
            request = self._queue.popleft()
            if isinstance(request, BadRequest):
                self._answer_bad(request)
                break
            self._ahead = max(0, self._ahead - request.size)
            if self._flags & HALF and not self._queue:
                self._flags |= DRAINING
            self._begin(request)
        self._flags &= ~ADVANCING

    def _begin(self, request: Request) -> None:
        """Begin a request: nothing is in flight."""
        self._flags &= BETWEEN
        context = self._context
        registry = context.registry
        registry.requests += 1
        if registry.retiring:
            request.keep_alive = False
        kind = WebSocketHandshake if request.upgrade is not None else Exchange
        exchange = self._exchange = kind(self, context, request, registry.next_serial())
        self.deadline = NEVER
        registry.in_flight += 1
        if registry.in_flight > registry.max_requests:
            context.events.refused(self, f"{registry.max_requests} requests are being proxied", "max_open_requests")
            context.stats.responded(context.stats.others, 503, "limit")
            request.keep_alive = False
            self.send_response(error_response(503, "Service unavailable."), request)
            return
        if not request.complete:
            self.deadline = context.clock() + context.proxy.client_body_timeout
            if request.expect and request.minor and not request.body:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        exchange.start()

    def _refuse(self, error: BadRequest) -> None:
        """Queue the error of a malformed request behind the responses before it; then the connection closes."""
        context = self._context
        context.events.bad_client(self, str(error))
        queue = self._queue = self._queue or deque()
        if queue and isinstance(queue[-1], Request) and not queue[-1].complete:
            # The error is in its body.
            queue.pop()
        exchange = self._exchange
        if isinstance(exchange, Exchange) and not exchange.request.complete:
            if exchange.answering:
                # An answer now would be taken for the rest of that one.
                self.abort()
                return
            self._take_exchange()
            exchange.abort(error.status)
            context.stats.ended(exchange, exchange.serial, exchange.figures)
        self._count_ahead()
        self._flags |= REFUSED
        queue.append(error)
        self._advance()

    def _count_ahead(self) -> None:
        self._ahead = sum([waiting.size for waiting in self._queue or () if isinstance(waiting, Request)])

    def _unheard(self, size: int) -> None:
        """Discard ``size`` bytes received behind a malformed request, or while the connection closes."""
        if not self._flags & CLOSING:
            self._ahead += size
            if self._ahead > UNHEARD_MAX:
                self._context.events.bad_client(self, f"{self._ahead} bytes sent behind what is no request")
                self.abort()

    def _answer_bad(self, error: BadRequest) -> None:
        """Send the error of a malformed request, and close."""
        self._close_with(bad_request(error.status, str(error)))

    def _close_with(self, response: Response) -> None:
        stats = self._context.stats
        stats.responded(stats.others, response.code, "limit" if response.code == 503 else "client")
        self._flags |= CLOSING
        self.transport.write(whole(response, 1, False, False))
        # Unread input would turn the close into a reset that may overtake the answer (RFC 9112 §9.6).
        self.transport.pause_reading()
        sock = self.transport.get_extra_info("socket")
        if sock is not None and self.transport.get_extra_info("sslcontext") is None and self.transport.can_write_eof():
            self.transport.write_eof()
            self.transport.resume_reading()
            self.deadline = self._context.clock() + 1.0
        else:
            self.transport.close()

    def expire(self) -> None:
        """The deadline has passed: the client was silent for too long."""
        exchange = self._exchange
        context = self._context
        if exchange is not None:
            context.events.bad_client(self, "no more of the request body in time")
            self._take_exchange()
            exchange.abort()
            context.stats.ended(exchange, exchange.serial, exchange.figures)
            self.abort()
            return
        parser = self._parser
        if not self._flags & CLOSING and parser is not None and parser.in_head:
            context.events.bad_client(self, "request head not complete in time")
            self._close_with(error_response(408, "Request head not complete in time."))
            return
        self.transport.abort() if self._flags & CLOSING else self.transport.close()

    def sweep(self, now: float) -> None:
        """End a request that has taken too long; called about once a second while not held, ``now`` in loop seconds."""
        exchange = self._exchange
        if exchange is not None and exchange.deadline < now:
            exchange.expire()
        elif self.deadline < now:
            self.deadline = NEVER
            self.expire()

    def drain(self) -> None:
        """Finish the request in flight, end a hold, take no new request: the process ends."""
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
        return self._hold.waiting(size, not self.secure) if isinstance(self._hold, StreamHold) else size

    def unread(self) -> int:
        return descriptor(self.transport) if self._flags & PAUSED else -1

    def attend(self, now: float, closed: int) -> None:
        # Half a close is none: a client may end its sending side and wait for its response.
        if closed & GONE:
            self.abort()

    def overfull(self, size: int, total: int) -> None:
        self._context.events.overfull(self, size, total)
        self.abort()

    # --- for the exchange

    @property
    def exchange(self) -> Exchange | WebSocketHandshake | None:
        """The request in flight, or handshake."""
        return self._exchange

    @property
    def half_closed(self) -> bool:
        """True once the client has closed its sending side; it cannot be distinguished from one that has left."""
        return bool(self._flags & HALF)

    @property
    def blocked(self) -> bool:
        """The client does not read as fast as is written."""
        return bool(self._flags & BLOCKED)

    def peer(self) -> bytes:
        """Return the client's address, empty for a unix socket."""
        return address(self.transport)

    def logical(self) -> tuple[bytes, bool]:
        """Return the address by which the statistics know a held client, and whether it has TLS."""
        packed = self._packed
        if not isinstance(self._hold, ResponseHold):
            return (packed[1:], packed[:1] == b"s") if packed else (self.peer(), self.secure)
        request = parse_packed(packed)
        context = self._context
        # A client that is trusted to be a GRIP proxy is never held.
        return context.router.settings.client_address(request, self.peer()), is_secure(
            request, self.secure, context.router.settings
        )

    def begin_hold(self, exchange: HoldRequest, instruct: Instruct, opened: bool) -> None:
        begin_hold(self._context, self, exchange, instruct, opened)

    def pause(self) -> None:
        """Read no more of the request body for now."""
        self.deadline = NEVER
        if not self._flags & PAUSED:
            self._flags |= PAUSED
            self.transport.pause_reading()
            self._context.buffers.watch(self)

    def resume(self) -> None:
        """Undo ``pause``."""
        if self._flags & PAUSED and not self.transport.is_closing():
            self._flags &= ~PAUSED
            self.transport.resume_reading()
            self.deadline = self._context.clock() + self._context.proxy.client_body_timeout

    def finished(self, keep: bool) -> None:
        """A response has been sent completely. ``keep``: the connection may carry another request."""
        context = self._context
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            context.registry.in_flight -= 1
            context.stats.ended(exchange, exchange.serial, exchange.figures)
        if self._gone is not None:
            self._tell_gone()
        transport = self.transport
        if not keep or self._flags & (DRAINING | CLOSING):
            self._flags |= CLOSING
            transport.close()
            return
        self._flags &= ~SENT
        parser = self._parser
        times = context.proxy
        in_head = parser is not None and parser.in_head
        self.deadline = context.clock() + (times.client_head_timeout if in_head else times.client_idle_timeout)
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
        flags = self._flags & (BETWEEN | SENT)
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
            known = self._context.router.settings.client_address(request, b"")
            if known or exchange.secure != self.secure:
                self._packed = (b"s" if exchange.secure else b"-") + (known or self.peer())
        parser = self._parser
        if parser is not None and parser.between and not self._queue and not parser.closing:
            parser.close()
            self._parser = None
            self._queue = None
        registry = self._context.registry
        registry.active.pop(self, None)
        registry.held_began(hold)
        if flags & BLOCKED and isinstance(hold, StreamHold):
            # Since the response before, or the opening: the transport reports it only once.
            hold.on_blocked()
        if flags & DRAINING:
            hold.drain()

    def give_away(self) -> tuple[Any, bytes]:
        """End this protocol's part in the connection: the client speaks another one from now on.

        Returns:
            The transport, and the bytes received behind the request.
        """
        context, parser = self._context, self._parser
        if context.buffers.peers:
            context.buffers.forget(self)
        context.registry.connections -= 1
        context.registry.active.pop(self, None)
        self._flags |= CLOSING
        self._take_exchange()
        self._queue = None
        self._parser = None
        rest = b""
        if parser is not None:
            rest = parser.rest
            parser.close()
        return self.transport, rest

    def _unhold(self, over: bool = True) -> None:
        """The hold has ended; ``over``: so has the request."""
        hold, self._hold = self._hold, None
        if hold is not None:
            registry = self._context.registry
            registry.held_ended(hold, over)
            registry.active[self] = None

    def abort_slow(self, why: str) -> None:
        self._context.events.slow_client(self, why)
        if self._hold is not None:
            self._context.stats.slow(self._hold.rate_key, self._hold.mode)
        self._unhold()
        self.abort()

    def retry(self, last_ids: tuple[tuple[bytes, bytes], ...], because: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        hold = self._hold
        assert hold is not None
        self._unhold(over=False)
        self._tell_gone()
        request = parse_packed(self._packed)
        self._packed = b""
        route = self._context.router.routes.by_id(cast("Route", hold.route).id)
        if route is None:
            self._context.registry.request_over(hold)
            self._flags &= ~CORS
            self.respond(
                error_response(502, "No route for host: " + (request.host or b"").decode("latin-1")), "no-route"
            )
            return
        self._flags &= ~SENT
        self._context.registry.in_flight += 1
        figures = self._context.stats.repeated(hold.serial, hold.rate_key, hold.mode)
        lane = hold.backend_key
        exchange = self._exchange = RetriedExchange(
            self, self._context, request, hold.serial, route, figures, last_ids, because, lane
        )
        exchange.start()
