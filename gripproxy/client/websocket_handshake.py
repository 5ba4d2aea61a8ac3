"""Handshake of a WebSocket: from the client's request to a session, or to a rejection (docs/grip.md §8.1 to §8.3)."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import Final

from gripproxy.backend.event_poster import EventPoster
from gripproxy.backend.outages import AWAY, DESCRIPTORS, RETRY_AFTER
from gripproxy.backend.websocket_leg import WebSocketLeg
from gripproxy.backend.websocket_request import WebSocketRequest
from gripproxy.client.context import ClientContext
from gripproxy.client.ports import Downstream
from gripproxy.client.websocket_connection import WebSocketConnection
from gripproxy.grip.event_headers import grip_extension, public_headers
from gripproxy.grip.headers import Headers, all_of, first, head_size
from gripproxy.grip.permessage_deflate import Parameters, negotiate
from gripproxy.grip.response import Response, phrase
from gripproxy.grip.websocket_events import Event
from gripproxy.grip.websocket_handshake import accept_key, check_handshake
from gripproxy.http1.request_parser import Request
from gripproxy.process.log import log
from gripproxy.routing.match import find_route, host_name, is_secure
from gripproxy.routing.route import Route
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.sessions.websocket_interfaces import BackendLeg, SocketTerms, untold
from gripproxy.sessions.websocket_over_http import WebSocketOverHttp
from gripproxy.stats.connection_events import Present
from gripproxy.stats.counters import UNCOUNTED

__all__ = ["WebSocketHandshake"]

NEVER: Final = float("inf")
_ERROR: Final = "Error while proxying to origin."
_HANDSHAKE_HEADERS: Final = frozenset(
    (
        b"connection",
        b"upgrade",
        b"sec-websocket-accept",
        b"sec-websocket-extensions",
        b"content-length",
        b"transfer-encoding",
        b"keep-alive",
    )
)


class _Terms(dict[int, SocketTerms]):
    """Terms of the WebSockets of one route, by the index of its target."""


class WebSocketHandshake:
    """One handshake in flight, in the place of an exchange. Implements ``WebSocketRequestOwner``.

    Args:
        client: The client's connection.
        context: The client context.
        request: The client's request.
        serial: Serial of the request.
    """

    def __init__(self, client: Downstream, context: ClientContext, request: Request, serial: int) -> None:
        self.client = client
        self._context = context
        self.request = request
        self.serial = serial
        self.route: Route | None = None
        self.began = context.clock()
        self.cid = b""
        """Id of the WebSocket outside, once the request is known to be a handshake."""
        self.figures = UNCOUNTED
        self.secure = False
        self.trusted = False
        # The request refers to this handshake: the circle is cut at its end, and both are freed without a collection.
        self._upstream: WebSocketRequest | None = None
        self._over = False

    @property
    def target_index(self) -> int:
        """Position of the current target in the route."""
        return self._upstream.target_index if self._upstream is not None else 0

    @property
    def deadline(self) -> float:
        """Time in seconds of the loop at which the backend is late."""
        return self._upstream.deadline if self._upstream is not None else NEVER

    def start(self) -> None:
        """Check the handshake, find the route and ask its first target."""
        request, context = self.request, self._context
        wrong = check_handshake(request.headers, request.method)
        if wrong is not None:
            context.events.bad_client(self.client, f"WebSocket handshake: {wrong}")
            if wrong.startswith("Sec-WebSocket-Version") and first(request.headers, b"sec-websocket-version"):
                self._reject(426, wrong, [(b"Sec-WebSocket-Version", b"13")])
            else:
                self._reject(400, f"Failed to parse request: {wrong}")
            return
        router = context.router
        self.secure = is_secure(request, self.client.secure, router.settings)
        route = find_route(request, True, self.secure, router.routes, router.settings)
        self.cid = str(uuid.uuid4()).encode()
        if route is None:
            self.figures = context.stats.request(self, self.serial, b"", request.size)
            host = host_name(request.host or b"localhost").decode("latin-1")
            self._reject(502, f"No route for host: {host}", reason="no-route")
            return
        self.route = route
        forwarder = router.forwarder(route, 0)
        self.trusted = forwarder.trusted(request)
        self.figures = context.stats.request(self, self.serial, route.rate_key, request.size)
        self._upstream = WebSocketRequest(
            self,
            context,
            route,
            forwarder,
            request,
            self.cid,
            self.figures,
            self.client.peer,
            self.secure,
            self.trusted,
            self.serial,
        )
        self._upstream.start()

    # --- WebSocketRequestOwner

    def on_switched(self, response: Response, transport: asyncio.Transport, rest: bytes) -> None:
        """Open the WebSocket with a leg that is a WebSocket."""
        headers = [
            h
            for h in response.headers
            if h[0].lower() not in _HANDSHAKE_HEADERS or (self.trusted and h[0].lower() == b"sec-websocket-extensions")
        ]
        limit = self._context.proxy.ws_message_max
        websocket, session, ahead = self._accept(response, headers, limit)
        leg = WebSocketLeg(self._context, session, transport, limit)
        transport.set_protocol(leg)
        self._begin(websocket, session, leg)
        if rest:
            leg.data_received(rest)
        if ahead:
            websocket.data_received(ahead)

    def on_opened(self, response: Response, events: list[Event], poster: EventPoster, one_event: bool) -> None:
        """Open the WebSocket with a leg over HTTP."""
        headers = public_headers(response.headers)
        if self.trusted:
            headers += [h for h in response.headers if h[0].lower() == b"sec-websocket-extensions"]
        limit = self._context.proxy.ws_over_http_message_max
        websocket, session, ahead = self._accept(response, headers, limit)
        leg = WebSocketOverHttp(session, poster, one_event, limit)
        poster.serve(leg)
        self._begin(websocket, session, leg)
        leg.opened(events, response.headers)
        if ahead:
            websocket.data_received(ahead)

    def on_rejected(self, response: Response) -> None:
        """Relay the backend's rejection."""
        self._relay(response)

    def on_request_failed(self, kind: str, debug: str) -> None:
        """Answer 503 for want of a descriptor or a target that is away, else 502."""
        upstream = self._upstream
        if kind == DESCRIPTORS:
            self._reject(503, "Service unavailable.", reason=kind)
            return
        if kind in AWAY and upstream is not None and upstream.target.away:
            self._reject(503, "Service unavailable.", [(b"Retry-After", b"%d" % RETRY_AFTER)], kind)
            return
        route, target = self.route, self.request.target
        log.info("WebSocket failed", path=target if route is None else route.public(target), status=502, reason=debug)
        shown = route is not None and self._context.router.debug(route)
        self._reject(502, debug if shown else _ERROR, reason=kind)

    # --- acceptance

    def _terms(self, route: Route) -> SocketTerms:
        """Return the terms that all WebSockets of the target share; the first handshake makes them."""
        context, upstream = self._context, self._upstream
        assert upstream is not None
        known = route.states[_Terms]
        terms = known.get(upstream.target_index)
        if terms is None:
            target, pool = upstream.target, upstream.pool
            terms = known[upstream.target_index] = SocketTerms(
                route.prefix,
                context.config.handler.connection_subscription_max,
                context.proxy.max_filters,
                target.subs,
                route,
                route.rate_key,
                context.router.debug(route),
                self.figures,
                target.untrusted,
                partial(context.outages.failed, pool, str(target)) if pool is not None else untold,
                context.bounds_of(route),
            )
        return terms

    def _accept(
        self, response: Response, headers: Headers, limit: int
    ) -> tuple[WebSocketConnection, WebSocketSession, bytes]:
        """Answer 101 and take the connection over.

        Args:
            response: The backend's acceptance.
            headers: Headers of it that the client gets.
            limit: Bytes a message may have.

        Returns:
            Connection and session of the client, and the bytes received behind its handshake.
        """
        self._over = True
        context, request, route = self._context, self.request, self.route
        assert route is not None
        grip = grip_extension(response.headers) if not route.no_grip and not self.trusted else None
        deflate: Parameters | None = None
        if context.config.runner.allow_compression:
            offer = b", ".join(all_of(request.headers, b"sec-websocket-extensions"))
            agreed = negotiate(offer) if offer else None
            if agreed is not None:
                headers = [*headers, (b"Sec-WebSocket-Extensions", agreed[0])]
                deflate = agreed[1]
        key = first(request.headers, b"sec-websocket-key")
        assert key is not None
        self.figures.client_header_bytes_sent += head_size(headers)
        self.figures.answered[1] += 1
        transport, ahead = self.client.give_away()
        transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\n%bUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n"
            % (b"".join([b"%b: %b\r\n" % header for header in headers]), accept_key(key))
        )
        target = route.public(request.target) if route.secret_query else request.target
        session = partial(
            WebSocketSession,
            context=context.sessions,
            terms=self._terms(route),
            cid=self.cid,
            serial=self.serial,
            uri=b"%b://%b%b" % (b"wss" if self.secure else b"ws", request.host or b"localhost", target),
            grip=grip,
            deflate=deflate,
        )
        peer = context.router.settings.client_address(request, b"", self.trusted)
        websocket = WebSocketConnection(context, transport, limit, peer, session)
        assert websocket.session is not None
        return websocket, websocket.session, ahead

    def _begin(self, websocket: WebSocketConnection, session: WebSocketSession, leg: BackendLeg) -> None:
        websocket.transport.set_protocol(websocket)
        if self.client.blocked:
            # Since the response before: the transport reports it only once.
            websocket.pause_writing()
        context = self._context
        context.registry.socket_began(session)
        context.access_log.handshake(self, 101, session.cid)
        self._upstream = None
        if context.registry.draining:
            context.loop.call_soon(session.drain)
        session.start(leg)

    # --- rejection

    def _reject(self, status: int, text: str, headers: Headers | None = None, reason: str = "client") -> None:
        # Rejections of our own carry no Content-Type (docs/grip.md §2.6).
        self._context.stats.responded(self.figures, status, reason, self.figures.answered)
        self._relay(Response(status, phrase(status), headers or [], text.encode() + b"\n"))

    def _relay(self, response: Response) -> None:
        """Send a rejection and close: the bytes behind a handshake may be frames."""
        if self._over:
            return
        self._over = True
        self.figures.answered[response.code // 100] += 1
        self.request.keep_alive = False
        response.headers = [
            h
            for h in response.headers
            if h[0].lower() not in (b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"upgrade")
        ]
        self._context.access_log.handshake(self, response.code, None)
        self._upstream = None
        self.client.send_response(response, self.request)

    # --- connection events

    @property
    def key(self) -> bytes:
        """Key of the WebSocket in connection events."""
        return self.cid

    def present(self, route: bytes) -> Present:
        """Return the event of the handshake.

        Args:
            route: Id of its route, or empty.
        """
        peer = self._context.router.settings.client_address(self.request, self.client.peer(), self.trusted)
        return (self.cid, route, True, peer, self.secure)

    # --- InFlightRequest

    def abort(self, code: int = 0) -> None:
        """Cancel the request to the backend: the client is gone."""
        self._over = True
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abandon()

    def expire(self) -> None:
        """Reject with 502: the backend is late."""
        if self._upstream is not None:
            self._upstream.expire()

    def buffered(self) -> int:
        """Return the bytes kept of a rejection."""
        return self._upstream.buffered() if self._upstream is not None else 0

    def client_blocked(self, blocked: bool) -> None:
        """Do nothing: a handshake sends little."""

    def request_body(self, data: bytes) -> None:
        """Drop the body of a handshake, which has no meaning."""

    def request_complete(self) -> None:
        """Do nothing: a handshake has no body."""
