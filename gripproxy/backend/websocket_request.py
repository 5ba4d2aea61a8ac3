"""Request for a WebSocket to a backend: the targets in order, by handshake or over HTTP (docs/grip.md §8.1 to §8.3)."""

from __future__ import annotations

import asyncio
import base64
import os
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from gripproxy.backend.connection import BackendConnection, TargetPool
from gripproxy.backend.context import BackendContext
from gripproxy.backend.event_poster import EventPoster
from gripproxy.backend.forwarder import Forwarder
from gripproxy.backend.header_template import HeaderTemplate, HeaderTemplates
from gripproxy.backend.outages import AWAY, BAD_ANSWER, BLOCKED, DESCRIPTORS, LATE, RESET, TOO_LARGE
from gripproxy.backend.retries import HANDSHAKE, OPEN, RetryRule
from gripproxy.backend.upstream_request import BufferedRequest
from gripproxy.grip.event_headers import is_events, keep_alive_interval
from gripproxy.grip.event_reader import READ_MAX, EventReader
from gripproxy.grip.headers import Headers, first, head_size
from gripproxy.grip.response import Response
from gripproxy.grip.websocket_events import Event, EventError, decode_some
from gripproxy.grip.websocket_handshake import check_accept
from gripproxy.http1.request_parser import Request
from gripproxy.routing.match import host_name
from gripproxy.routing.route import Route, Target
from gripproxy.stats.counters import RouteCounters

__all__ = ["REJECTION_MAX", "WebSocketRequest", "WebSocketRequestOwner"]

REJECTION_MAX: Final = 100_000
"""Bytes of a rejection's body that are relayed (docs/grip.md §10)."""

NEVER: Final = float("inf")

_OPEN: Final = b"OPEN\r\n"


class WebSocketRequestOwner(Protocol):
    """The client's handshake, for which a backend is asked. One of these is called, once."""

    def on_switched(self, response: Response, transport: asyncio.Transport, rest: bytes) -> None:
        """Take a backend's WebSocket.

        Args:
            response: The 101, checked.
            transport: The connection, without a protocol.
            rest: Bytes received behind the 101.
        """

    def on_opened(self, response: Response, events: list[Event], poster: EventPoster, one_event: bool) -> None:
        """Take a WebSocket over HTTP.

        Args:
            response: The response to OPEN.
            events: The events in it behind its own OPEN.
            poster: Sends further events.
            one_event: Each request may have one event only.
        """

    def on_rejected(self, response: Response) -> None:
        """Relay ``response``, the backend's rejection."""

    def on_request_failed(self, kind: str, debug: str) -> None:
        """Answer for a backend that failed.

        Args:
            kind: One of ``gripproxy.grip.stats_format.FAILURES``.
            debug: The reason, for the log and for debugging.
        """


class _Templates:
    """Templates of the heads that are posted on one route."""

    __slots__ = ("patterns",)

    def __init__(self) -> None:
        self.patterns: defaultdict[tuple[int, bool], HeaderTemplates] = defaultdict(HeaderTemplates)
        """By index of the target and whether the clients are trusted."""


class WebSocketRequest(BufferedRequest):
    """Request for one WebSocket. Implements ``PosterOwner`` for the targets over HTTP.

    Args:
        owner: The client's handshake.
        context: The backend context.
        route: The route.
        forwarder: The forwarder of the route and its first target.
        request: The client's request.
        cid: Id of the WebSocket outside.
        figures: Counters of the route.
        peer: Returns the client's address.
        secure: The client's connection is TLS, or counts as such.
        trusted: The client is a trusted GRIP proxy.
        serial: Serial of the client's request, of which ids are made.
    """

    __slots__ = (
        "_cid",
        "_figures",
        "_forwarder",
        "_key",
        "_over",
        "_owner",
        "_peer",
        "_poster",
        "_request",
        "_route",
        "_secure",
        "_serial",
        "_timer",
        "_trusted",
        "deadline",
    )

    _limit = REJECTION_MAX

    def __init__(
        self,
        owner: WebSocketRequestOwner,
        context: BackendContext,
        route: Route,
        forwarder: Forwarder,
        request: Request,
        cid: bytes,
        figures: RouteCounters,
        peer: Callable[[], bytes],
        secure: bool,
        trusted: bool,
        serial: int = 0,
    ) -> None:
        self._serial = serial
        self._owner = owner
        self._context = context
        self._route = route
        self._request = request
        self._cid = cid
        self._figures = figures
        self._peer = peer
        self._secure = secure
        self._trusted = trusted
        self.deadline = NEVER
        """Seconds of the loop's clock at which a direct target is late; a request over HTTP has its own."""
        self.target_index = 0
        self._fresh = True
        self._pool = None
        self._backend = None
        self._forwarder = forwarder
        self._key = b""
        self._poster: EventPoster | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._response = None
        self._parts = []
        self._size = 0
        self._complete = False
        self._over = False

    @property
    def target(self) -> Target:
        """The current target."""
        return self._route.targets[self.target_index]

    @property
    def pool(self) -> TargetPool | None:
        """The pool of the current target."""
        return self._pool

    def expire(self) -> None:
        """Fail: the backend is late."""
        self._broken("The backend did not answer in time.", LATE)

    def buffered(self) -> int:
        """Return the bytes kept of a rejection."""
        return min(self._size, REJECTION_MAX)

    def abandon(self) -> None:
        """Cancel; the owner is not called. The backend sees its request end without an answer."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        poster, self._poster = self._poster, None
        if poster is not None:
            poster.abandon()
        self._drop()

    # UpstreamRequest

    @property
    def _rule(self) -> RetryRule:
        return OPEN if self.target.over_http else HANDSHAKE

    @property
    def _targets(self) -> tuple[Target, ...]:
        return self._route.targets

    def _acquire(self) -> None:
        context, request, target = self._context, self._request, self._route.targets[self.target_index]
        forwarder = self._forwarder
        if forwarder.target is not target:
            forwarder = self._forwarder = context.router.forwarder(self._route, self.target_index)
        server_name = host_name(forwarder.host(request.host)).decode("latin-1") if target.ssl else ""
        pool = self._pool = context.pool.host(target, server_name)
        self._poster = None
        if not target.over_http:
            pool.acquire(self, fresh=True)
            return
        before, after = forwarder.socket_parts(request, True, self._peer, self._secure, self._trusted)
        patterns = self._route.states[_Templates].patterns[self.target_index, self._trusted]
        make = partial(HeaderTemplate, context, forwarder, pool, self._trusted, self._figures, before)
        pattern, share = patterns.find(first(request.headers, b"user-agent"), pool, before, make)
        traced = bool(context.trace.passed_on(request))
        self._poster = EventPoster(pattern, share, after, self._cid, self, traced)
        self._poster.post(_OPEN, 0, [])

    start = _acquire
    """Ask the first target."""

    def _report(self, kind: str, why: object, got: object) -> None:
        if self._pool is not None:
            what = f"WebSocket {self._route.public(self._request.target).decode('latin-1')}"
            self._context.outages.report(self._pool, self.target, kind, what, why, got)

    def _unconnected(self, kind: str, why: object) -> None:
        self._fail(kind, why, "Error: Origin host/IP blocked." if kind == BLOCKED else self._tried())

    def _broken(self, why: str, kind: str) -> None:
        self._fail(kind, why, why)

    def _fail(self, kind: str, why: object, debug: str) -> None:
        if self._over:
            return
        self.abandon()
        away = kind in AWAY and self.target.away
        self._report(kind, why, 503 if kind == DESCRIPTORS or away else 502)
        self._owner.on_request_failed(kind, debug)

    # A target that speaks WebSocket: Sink

    def on_connected(self, connection: BackendConnection) -> None:
        self._backend = connection
        forwarder, context = self._forwarder, self._context
        self.deadline = context.clock() + context.proxy.response_timeout
        before, after = forwarder.socket_parts(self._request, False, self._peer, self._secure, self._trusted)
        after += context.trace.lines(self._request, self._serial)
        key = self._key = base64.b64encode(os.urandom(16))
        grip = b"" if self._trusted else forwarder.grip_headers()
        self._figures.server_header_bytes_sent += len(before) + len(grip) + len(after)
        connection.send(
            b"%b%b%bUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % (before, grip, after, key),
            False,
            upgrade=True,
        )

    def on_head(self, code: int, reason: bytes, headers: Headers) -> None:
        self._figures.server_header_bytes_received += head_size(headers)
        self._response = Response(code, reason, headers)

    def on_batch(self) -> None:
        response, backend = self._response, self._backend
        if response is None or response.code != 101:
            super().on_batch()
            return
        wrong = check_accept(response.headers, self._key, self._request.headers)
        if wrong is not None:
            self._broken(f"the backend's 101: {wrong}", BAD_ANSWER)
        elif backend is not None:
            self._backend = None
            self._over = True
            self._owner.on_switched(response, *backend.detach())

    def _too_large(self) -> None:
        self._broken(f"the rejection has more than {REJECTION_MAX} bytes", TOO_LARGE)

    def _answered(self, response: Response) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.release()
        self._over = True
        self._poster = None
        self._owner.on_rejected(response)

    # A target over HTTP: PosterOwner

    def on_answer(self, response: Response) -> None:
        """Take the response to OPEN."""
        poster = self._poster
        assert poster is not None
        if response.code != 200 or not is_events(response.headers):
            self._size = len(response.body)
            if self._size > REJECTION_MAX:
                self._too_large()
            else:
                self._answered(response)
            return
        body = response.body
        try:
            events, position = decode_some(body, 0, READ_MAX)
        except EventError as error:
            self._broken(f"the backend's events: {error}", BAD_ANSWER)
            return
        if position < len(body):
            reader = EventReader(body, events, position)
            self._context.loop.call_soon(self._read, reader, response, poster)
        else:
            self._opened(events, response, poster)

    def _read(self, reader: EventReader, response: Response, poster: EventPoster) -> None:
        """Continue to read the events of a long response to OPEN, in the next turns of the loop."""
        if self._over:
            return
        try:
            whole = reader.read()
        except EventError as error:
            self._broken(f"the backend's events: {error}", BAD_ANSWER)
            return
        if whole:
            self._opened(reader.events, response, poster)
        else:
            self._context.loop.call_soon(self._read, reader, response, poster)

    def _opened(self, events: list[Event], response: Response, poster: EventPoster) -> None:
        interval = keep_alive_interval(response.headers)
        if not events and interval:
            # Not decided yet: asked again at the interval, the client waits (docs/grip.md §8.3).
            self._timer = self._context.loop.call_later(interval, poster.post, _OPEN, 0, [])
        elif not events or events[0].type != b"OPEN":
            self._broken("the backend's first event is not OPEN", BAD_ANSWER)
        else:
            self._over = True
            self._poster = None
            self._owner.on_opened(response, events[1:], poster, self.target.one_event)

    def on_post_failed(self, retry: bool, why: str, kind: str = RESET) -> None:
        """Go on to the next target if there was no connection; else fail."""
        if retry:
            self._connect_failed(kind, why)
        else:
            self._broken(why, kind)
