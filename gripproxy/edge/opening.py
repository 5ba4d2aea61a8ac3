"""The opening of a WebSocket: from the client's handshake to a session, or to a rejection (docs/grip.md §8.1 to §8.3).

While it lasts, an opening stands in the place of an exchange on the client's connection.
"""

from __future__ import annotations

import asyncio
import base64
import os
import uuid
from functools import partial
from typing import TYPE_CHECKING, Final

from gripproxy.edge.backend import FINAL, BackendConnection, HostPool, kind_of
from gripproxy.edge.directleg import DirectLeg
from gripproxy.edge.forwarding import Forwarder, host_name
from gripproxy.edge.parser import Request
from gripproxy.edge.pattern import Pattern, Patterns
from gripproxy.edge.poster import EventPoster
from gripproxy.edge.routing import find_route, is_secure
from gripproxy.edge.websocket import WebSocketClient
from gripproxy.grip.deflate import Parameters, negotiate
from gripproxy.grip.handshake import accept_key, check_accept, check_handshake
from gripproxy.grip.headers import Headers, all_of, first, head_size
from gripproxy.grip.response import Response, phrase
from gripproxy.grip.wsevents import (
    Event,
    EventError,
    decode,
    grip_extension,
    is_events,
    keep_alive_interval,
    public_headers,
)
from gripproxy.outages import BAD_ANSWER, BLOCKED, DESCRIPTORS, LATE, RESET, TOO_LARGE
from gripproxy.routes import Route
from gripproxy.sessions.over_http import OverHttp
from gripproxy.sessions.sides import BackendLeg, SocketTerms, untold
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.tally import NOBODY

if TYPE_CHECKING:
    from gripproxy.edge.client import ClientConnection
    from gripproxy.worker import Worker

__all__ = ["REJECTION_MAX", "Opening"]

REJECTION_MAX: Final = 100_000
"""Bytes of a rejection's body that are relayed (docs/grip.md §10)."""

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


class Opening:
    """One handshake in flight. Implements ``Sink`` for direct backends and ``PosterOwner`` for those over HTTP."""

    def __init__(self, client: ClientConnection, worker: Worker, request: Request, serial: int) -> None:
        self.client = client
        self._worker = worker
        self.request = request
        self.serial = serial
        self.route: Route | None = None
        self.began = worker.clock()
        self.deadline = NEVER
        self._index = 0
        self.cid = b""
        """Its id outside, from when it is known to be a handshake."""
        self.figures = NOBODY
        self.secure = False
        self.trusted = False
        self._forwarder: Forwarder | None = None
        self._pool: HostPool | None = None
        self._backend: BackendConnection | None = None
        self._poster: EventPoster | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._response: Response | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._complete = False
        self._over = False
        self._deflate: Parameters | None = None

    @property
    def target_index(self) -> int:
        """Which of the route's targets is being asked."""
        return self._index

    def start(self) -> None:
        """Check the handshake, find the route and ask its first target."""
        request, worker = self.request, self._worker
        wrong = check_handshake(request.headers, request.method)
        if wrong is not None:
            worker.bad_client(self.client, f"WebSocket handshake: {wrong}")
            if wrong.startswith("Sec-WebSocket-Version") and first(request.headers, b"sec-websocket-version"):
                self._reject(426, wrong, [(b"Sec-WebSocket-Version", b"13")])
            else:
                self._reject(400, f"Failed to parse request: {wrong}")
            return
        settings = worker.forward_settings
        self.secure = is_secure(request, self.client.secure, settings)
        route = find_route(request, True, self.secure, worker.routes, settings)
        self.cid = str(uuid.uuid4()).encode()
        if route is None:
            self.figures = worker.tally.request(self, None)
            host = host_name(request.host or b"localhost").decode("latin-1")
            self._reject(502, f"No route for host: {host}", reason="no-route")
            return
        self.route = route
        self._try()

    def _try(self) -> None:
        route, worker, request = self.route, self._worker, self.request
        assert route is not None
        target = route.targets[self._index]
        forwarder = self._forwarder = worker.forwarder(route, self._index)
        if not self._index:
            self.trusted = forwarder.trusted(request)
            self.figures = worker.tally.request(self, route)
        if target.kind == "test":
            self._test(forwarder.path(request.target))
            return
        server_name = host_name(forwarder.host(request.host)).decode("latin-1") if target.ssl else ""
        self._pool = worker.pool.host(target, server_name)
        if not target.over_http:
            self._pool.acquire(self, fresh=True)
            return
        before, after = forwarder.socket_parts(request, True, self.client.peer, self.secure, self.trusted)
        patterns = route.cache.get(("patterns", self._index, self.trusted))
        if patterns is None:
            patterns = route.cache["patterns", self._index, self.trusted] = Patterns()
        make = partial(Pattern, worker, forwarder, self._pool, self.trusted, self.figures, before)
        pattern, share = patterns.find(first(request.headers, b"user-agent"), self._pool, before, make)
        self._poster = EventPoster(pattern, share, after, self.cid)
        self._poster.owner = self
        self._poster.post(b"OPEN\r\n", 0, [])

    # --- over HTTP: PosterOwner

    def on_answer(self, response: Response) -> None:
        """The answer to OPEN."""
        if response.code != 200 or not is_events(response.headers):
            if len(response.body) > REJECTION_MAX:
                self._refuse(f"the rejection has more than {REJECTION_MAX} bytes", TOO_LARGE)
                return
            self._relay(response)
            return
        try:
            events = decode(response.body)
        except EventError as error:
            self._refuse(f"the backend's events: {error}")
            return
        interval = keep_alive_interval(response.headers)
        if not events and interval:
            # Not decided yet: asked again at the interval, the client waits (docs/grip.md §8.3).
            self._timer = self._worker.loop.call_later(interval, self._again)
            return
        if not events or events[0].type != b"OPEN":
            self._refuse("the backend's first event is not OPEN")
            return
        self._accept_over_http(response, events)

    def _again(self) -> None:
        self._timer = None
        if self._poster is not None and not self._over:
            self._poster.post(b"OPEN\r\n", 0, [])

    def on_post_failed(self, retry: bool, why: str, kind: str = RESET) -> None:
        """OPEN could not be posted: the next target, if no connection was had."""
        if self._over:
            return
        if not retry:
            self._refuse(why, kind)
        else:
            self._unconnected(why, kind)

    def _unconnected(self, why: object, kind: str) -> None:
        """There is no connection to the target: the next one is asked, if there is one."""
        route = self.route
        assert route is not None
        more = kind not in FINAL and self._index + 1 < len(route.targets)
        self._tell(kind, why, "next-target" if more else 503 if kind == DESCRIPTORS else 502)
        if kind == DESCRIPTORS:
            self._reject(503, "Service unavailable.", reason=kind)
        elif kind == BLOCKED:
            self._fail("Error: Origin host/IP blocked.", kind)
        elif more:
            self._index += 1
            self._poster = None
            self._try()
        else:
            tried = ", ".join(f"{t.host}:{t.port}" for t in route.targets if t.kind != "test")
            self._fail(f"Unable to connect to any targets. Tried: {tried}", kind)

    def _accept_over_http(self, response: Response, events: list[Event]) -> None:
        poster, route = self._poster, self.route
        assert poster is not None
        assert route is not None
        worker = self._worker
        target = route.targets[self._index]
        acts = not route.no_grip and not self.trusted
        grip = grip_extension(response.headers) if acts else None
        headers = public_headers(response.headers)
        if self.trusted:
            headers += [h for h in response.headers if h[0].lower() == b"sec-websocket-extensions"]
        limit = worker.config.proxy.ws_over_http_message_max
        rest = self._switch(headers, limit)
        websocket, session = self._session(grip, limit)
        leg = OverHttp(session, poster, target.one_event, limit)
        poster.owner = leg
        poster.repeats = True
        self._begin(websocket, session, leg)
        try:
            leg.headers(response.headers)
        except EventError as error:
            session.backend_lost(str(error))
            return
        if not leg.process(events[1:]):
            leg.rest()
        if rest:
            websocket.data_received(rest)

    # --- direct: Sink

    def on_connected(self, connection: BackendConnection) -> None:
        self._backend = connection
        forwarder, worker = self._forwarder, self._worker
        assert forwarder is not None
        self.deadline = worker.clock() + worker.config.proxy.response_timeout
        before, after = forwarder.socket_parts(self.request, False, self.client.peer, self.secure, self.trusted)
        key = base64.b64encode(os.urandom(16))
        grip = b"" if self.trusted else forwarder.grip_headers()
        self.figures.server_header_bytes_sent += len(before) + len(grip) + len(after)
        connection.send(
            b"%b%b%bUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % (before, grip, after, key),
            False,
            upgrade=True,
        )
        self._key = key

    def on_connect_failed(self, error: Exception) -> None:
        self._unconnected(error, kind_of(error))

    def on_head(self, code: int, reason: bytes, headers: Headers) -> None:
        self.figures.server_header_bytes_received += head_size(headers)
        self._response = Response(code, reason, headers)

    def on_interim(self, code: int, reason: bytes, headers: Headers) -> None:
        """Nothing to do: a handshake's interim responses are of no use to a WebSocket client."""

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= REJECTION_MAX:
            self._parts.append(data)

    def on_complete(self) -> None:
        self._complete = True

    def on_batch(self) -> None:
        response, backend = self._response, self._backend
        if response is None or backend is None:
            return
        if response.code == 101:
            self._accept_direct(response, backend)
        elif self._size > REJECTION_MAX:
            self._refuse(f"the rejection has more than {REJECTION_MAX} bytes", TOO_LARGE)
        elif self._complete:
            self._backend = None
            backend.release()
            response.body = b"".join(self._parts)
            self._relay(response)

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        self._backend = None
        self._refuse(why, kind)

    def on_request_blocked(self, blocked: bool) -> None:
        """Nothing to do: a handshake is small."""

    def _accept_direct(self, response: Response, backend: BackendConnection) -> None:
        route = self.route
        assert route is not None
        wrong = check_accept(response.headers, self._key)
        if wrong is not None:
            self._refuse(f"the backend's 101: {wrong}")
            return
        acts = not route.no_grip and not self.trusted
        grip = grip_extension(response.headers) if acts else None
        headers = [
            h
            for h in response.headers
            if h[0].lower() not in _HANDSHAKE_HEADERS or (self.trusted and h[0].lower() == b"sec-websocket-extensions")
        ]
        limit = self._worker.config.proxy.ws_message_max
        self._backend = None
        backend_transport, backend_rest = backend.detach()
        rest = self._switch(headers, limit)
        websocket, session = self._session(grip, limit)
        leg = DirectLeg(self._worker, session, backend_transport, limit)
        backend_transport.set_protocol(leg)
        self._begin(websocket, session, leg)
        if backend_rest:
            leg.data_received(backend_rest)
        if rest:
            websocket.data_received(rest)

    # --- the built-in test target

    def _test(self, target: bytes) -> None:
        route = self.route
        assert route is not None
        path, _, query = target.partition(b"?")
        prefix = route.path_beg.rstrip(b"/")
        if prefix and path.startswith(prefix):
            path = path[len(prefix) :]
        if path != b"/ws":
            self._reject(404, "no such test resource", [(b"Content-Type", b"text/plain")])
            return
        names = [value for name, _, value in (part.partition(b"=") for part in query.split(b"&")) if name == b"channel"]
        limit = self._worker.config.proxy.ws_message_max
        rest = self._switch([], limit)
        websocket, session = self._session(None, limit)
        self._begin(websocket, session, None)
        for name in names or [b"test"]:
            session.subscribe(name, ())
        if rest:
            websocket.data_received(rest)

    # --- common

    def _session(self, grip: bytes | None, limit: int) -> tuple[WebSocketClient, WebSocketSession]:
        route, worker = self.route, self._worker
        assert route is not None
        target = route.targets[self._index]
        handler = worker.config.handler
        terms = route.cache.get(("socket", self._index))
        if terms is None:
            terms = route.cache["socket", self._index] = SocketTerms(
                route.prefix,
                handler.connection_subscription_max,
                worker.config.proxy.max_filters,
                target.subs,
                route,
                route.id if route.explicit_id else b"",
                worker.debug(route),
                self.figures,
                target.untrusted,
                partial(worker.tally.outages.failed, self._pool, str(target)) if self._pool is not None else untold,
                worker.bounds,
            )
        websocket = WebSocketClient(worker, self._transport, limit)
        websocket.peer = worker.tally.peer(self.request, b"", self.trusted)
        uri = b"%b://%b%b" % (
            b"wss" if self.secure else b"ws",
            self.request.host or b"localhost",
            self.request.target,
        )
        session = WebSocketSession(websocket, worker.keeper, terms, self.cid, self.serial, uri, grip)
        session.deflate = self._deflate
        websocket.session = session
        return websocket, session

    def _switch(self, headers: Headers, limit: int) -> bytes:
        """Answer 101 and take the connection over; returns what the client has sent behind its handshake."""
        self._over = True
        key = first(self.request.headers, b"sec-websocket-key")
        assert key is not None
        if self._worker.config.runner.allow_compression:
            offer = b", ".join(all_of(self.request.headers, b"sec-websocket-extensions"))
            agreed = negotiate(offer) if offer else None
            if agreed is not None:
                headers = [*headers, (b"Sec-WebSocket-Extensions", agreed[0])]
                self._deflate = agreed[1]
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        self.figures.client_header_bytes_sent += head_size(headers)
        self.figures.answered[1] += 1
        self._transport, rest = self.client.give_away()
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\n%bUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % (lines, accept_key(key))
        )
        return rest

    def _begin(self, websocket: WebSocketClient, session: WebSocketSession, leg: BackendLeg | None) -> None:
        session.leg = leg
        self._transport.set_protocol(websocket)
        self._worker.socket_began(session, self)
        session.start()

    def _refuse(self, debug: str, kind: str = BAD_ANSWER) -> None:
        """The backend's fault: 502."""
        self._tell(kind, debug, 502)
        self._fail(debug, kind)

    def _tell(self, kind: str, why: object, got: object) -> None:
        """The target has failed; see Tally.failed."""
        route, pool = self.route, self._pool
        if route is not None and pool is not None:
            what = f"WebSocket {self.request.target.decode('latin-1')}"
            self._worker.tally.failed(pool, route.targets[self._index], kind, what, why, got)

    def _fail(self, debug: str, reason: str) -> None:
        self._worker.log.info("WebSocket %s: %s", self.request.target, debug)
        shown = debug if self.route is not None and self._worker.debug(self.route) else _ERROR
        self._reject(502, shown, reason=reason)

    def _reject(self, status: int, text: str, headers: Headers | None = None, reason: str = "client") -> None:
        # Rejections of our own carry no Content-Type (docs/grip.md §2.6).
        self._worker.tally.responded(self.figures, status, reason, self.figures.answered)
        self._relay(Response(status, phrase(status), headers or [], text.encode() + b"\n"))

    def _relay(self, response: Response) -> None:
        """Send a rejection; the connection may not go on, since nobody knows what the client sends next."""
        if self._over:
            return
        self._end()
        self.figures.answered[response.code // 100] += 1
        self.request.keep_alive = False
        response.headers = [
            h
            for h in response.headers
            if h[0].lower() not in (b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"upgrade")
        ]
        if self._worker.log.level >= 2:
            self._worker.log_opening(self, f"rejected with {response.code}")
        self.client.send_response(response, self.request)

    def _end(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.abort()
        elif self._poster is not None:
            self._poster.abandon()
        elif self._pool is not None:
            self._pool.forget(self)

    # --- what the connection says, as to an exchange

    def abort(self) -> None:
        """The client is gone: the backend sees its request end without an answer."""
        if not self._over:
            self._end()

    def expire(self) -> None:
        """The backend did not answer in time."""
        self._refuse("The backend did not answer in time.", LATE)

    def buffered(self) -> int:
        """Return how many bytes wait: of a rejection's body, which is bounded."""
        return min(self._size, REJECTION_MAX)

    def client_blocked(self, blocked: bool) -> None:
        """Nothing to do: nothing large is sent during an opening."""

    def request_body(self, data: bytes) -> None:
        """A handshake's body has no meaning and is dropped."""

    def request_complete(self) -> None:
        """A handshake has no body."""

    _transport: asyncio.Transport
    _key: bytes
