"""One client request on its way to a backend and the answer on its way back (docs/grip.md §2).

An exchange belongs to a client connection while the request is in flight. It ends with a response sent, with a hold
begun, or with an error; a held request that asks the backend again gets a new exchange.
"""

from __future__ import annotations

from typing import Final

from gripproxy.backend.connection import BackendConnection
from gripproxy.backend.forwarder import FORWARD_METHODS_IDEMPOTENT, Forwarder
from gripproxy.backend.outages import AWAY, BAD_ANSWER, BLOCKED, DESCRIPTORS, LATE, RETRY_AFTER, TOO_LARGE
from gripproxy.backend.retries import CLIENT_IDEMPOTENT, CLIENT_OTHER, RetryRule
from gripproxy.backend.upstream_request import UpstreamRequest
from gripproxy.client.context import ClientContext
from gripproxy.client.hold_start import passes_through
from gripproxy.client.ports import Downstream
from gripproxy.delivery.send_buffers import SMALL
from gripproxy.grip.cors import cors_headers
from gripproxy.grip.filters import FilterError, ResponseFilter
from gripproxy.grip.instruct import InstructError
from gripproxy.grip.instruct_parser import parse_instruct
from gripproxy.grip.response import Response, chunk
from gripproxy.http1.content_coding import BodyDecoder, DecodingError
from gripproxy.http1.head_cache import ResponseHead, interim_lines, relayed_lines
from gripproxy.http1.request_parser import Request
from gripproxy.http1.serializer import error_response, framing_lines
from gripproxy.process.log import log
from gripproxy.routing.match import find_route, has_events, host_name, is_secure
from gripproxy.routing.route import Route, Target
from gripproxy.stats.connection_events import Present
from gripproxy.stats.counters import UNCOUNTED, RouteCounters

__all__ = ["GRIP_REQUEST_MAX", "GRIP_RESPONSE_MAX", "Exchange"]

GRIP_REQUEST_MAX: Final = 100_000
"""Request body in bytes that is kept for a hold to repeat (docs/grip.md §10)."""

GRIP_RESPONSE_MAX: Final = 100_000
"""Response body in bytes of a GRIP response that is buffered (docs/grip.md §10)."""

UPLOAD_WAIT_MAX: Final = 128 * 1024
"""Request body bytes that wait for a backend connection before the client is not read."""

NEVER: Final = float("inf")

SAFE: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))
"""Methods that change nothing at the backend (RFC 9110 §9.2.1)."""

_ERROR: Final = "Error while proxying to origin."
_UNAVAILABLE: Final = "Service unavailable."

WAITING, RELAY, BUFFER, THROUGH = range(4)
"""Ways of a response: unknown; relayed; GRIP, buffered whole; GRIP stream too large to buffer, relayed, then held."""


class Exchange(UpstreamRequest):
    """The state of one request in flight. Implements ``gripproxy.backend.connection.Sink``.

    Args:
        client: The client's connection.
        context: The context of client connections.
        request: The client's request, the body perhaps incomplete.
        serial: Serial of the request in this process.
        route: The route, if it is known; None to find it.
        figures: Counters of the route; UNCOUNTED until a route is found.
        last_ids: Last ids for the backend, of a held request that is repeated: (channel name, id).
        because: Items for which a held request is repeated: (channel name, id).
    """

    __slots__ = (
        "_asked", "_chunked", "_code", "_complete", "_decoder", "_head", "_headers", "_kept", "_kept_size", "_last_ids",
        "_parts", "_reason", "_size", "_way", "answering", "because", "began", "client", "deadline",
        "figures", "forwarder", "request", "route", "secure", "serial", "trusted",
    )  # fmt: skip

    _context: ClientContext

    def __init__(
        self,
        client: Downstream,
        context: ClientContext,
        request: Request,
        serial: int,
        route: Route | None = None,
        figures: RouteCounters = UNCOUNTED,
        last_ids: tuple[tuple[bytes, bytes], ...] = (),
        because: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.client = client
        self._context = context
        self.request = request
        self.serial = serial
        self.route = route
        self._last_ids = last_ids
        self.because = because
        self.began = context.clock()
        self.deadline = NEVER
        self.figures = figures
        """Counters of the route; UNCOUNTED until a route is found."""
        self._asked = 0.0
        self.target_index = 0
        self._pool = None
        self._backend = None
        self.forwarder: Forwarder | None = None
        self.trusted = self.secure = self._fresh = self._chunked = self._complete = False
        self.answering = False
        """Some of the response, interim ones aside, is on its way to the client."""
        self._kept: list[bytes] | None = request.body
        self._kept_size = sum(map(len, request.body)) if request.body else 0
        self._way = WAITING
        # Set once there is a head; headers and parts only for a response that is buffered.
        self._code: int
        self._reason: bytes
        self._headers: list[tuple[bytes, bytes]]
        self._parts: list[bytes]
        self._head, self._size = b"", 0
        self._decoder: BodyDecoder | None = None

    # --- the request

    @property
    def changing(self) -> bool:
        """True if the request may change something at the backend; see ``Sink``."""
        return self.request.method not in SAFE

    def start(self) -> None:
        """Find the route and send the request to its first target."""
        request, context = self.request, self._context
        if request.check:
            self._respond(error_response(200, "Served by gripproxy, licensed under the Apache License 2.0."))
            return
        router = context.router
        settings = router.settings
        self.secure = is_secure(request, self.client.secure, settings) if settings.accept_proto else self.client.secure
        if self.route is None:
            route = find_route(request, False, self.secure, router.routes, settings)
            if route is None:
                host = host_name(request.host or b"localhost").decode("latin-1")
                self._fail(502, f"No route for host: {host}", reason="no-route")
                return
            self.route = route
        self._acquire()

    def _acquire(self) -> None:
        route, request, context, index = self.route, self.request, self._context, self.target_index
        assert route is not None
        target, router = route.targets[index], context.router
        forwarder = self.forwarder = router.forwarder(route, index)
        if self._kept_size > SMALL:
            context.buffers.watch(self.client)
        if not index:
            self.trusted = router.settings.upstream_key is not None and forwarder.trusted(request)
            if self.figures is UNCOUNTED:
                self.figures = context.stats.request(
                    self, self.serial, route.rate_key, request.size - self._kept_size, self._kept_size
                )
        if target.over_http and not self.trusted and has_events(request):
            self._fail(403, "Client not allowed to send WebSocket events directly.")
            return
        server_name = host_name(forwarder.host(request.host)).decode("latin-1") if target.ssl else ""
        self._pool = context.pool.host(target, server_name)
        self._pool.acquire(self, self._fresh)

    def on_connected(self, connection: BackendConnection) -> None:
        self._backend = connection
        request, forwarder, client, context = self.request, self.forwarder, self.client, self._context
        assert forwarder is not None
        now = self._asked = context.clock()
        length: int | None = 0
        body = b""
        if self._kept:
            kept = self._kept
            body = kept[0] if len(kept) == 1 else b"".join(kept)
            length = len(body)
            self.figures.server_content_bytes_sent += length
        if request.complete:
            self.deadline = now + context.proxy.response_timeout
        elif request.length >= 0:
            length = request.length
        else:
            length = None
            body = chunk(body)
        peer, trace = client.peer, context.trace.lines(request, self.serial)
        head = forwarder.head(request, length, peer, self.secure, self.trusted, self._last_ids, trace)
        self.figures.server_header_bytes_sent += len(head)
        # Cached heads have their relayed form only for the common case.
        common = request.keep_alive and request.minor and request.complete and request.method != b"HEAD"
        whole = self if common and not context.router.cors(forwarder.route) else None
        connection.send(head + body if body else head, request.method == b"HEAD", False, whole)
        if not request.complete:
            client.resume()
            if self._kept_size > GRIP_REQUEST_MAX:
                self._kept = None

    def request_body(self, data: bytes) -> None:
        """Pass on ``data``, a piece of the request's body."""
        self._kept_size += len(data)
        self.figures.client_content_bytes_received += len(data)
        backend = self._backend
        if backend is None:
            assert self._kept is not None
            self._kept.append(data)
            self._context.buffers.watch(self.client)
            if self._kept_size > UPLOAD_WAIT_MAX:
                self.client.pause()
            return
        if self._kept is not None:
            # Kept for a retry or a hold, up to GRIP_REQUEST_MAX bytes.
            self._kept.append(data)
            if self._kept_size > GRIP_REQUEST_MAX:
                self._kept = None
        self.figures.server_content_bytes_sent += len(data)
        backend.write(chunk(data) if self.request.length < 0 else data)

    def request_complete(self) -> None:
        """The client's body is complete."""
        if self._backend is not None:
            if self.request.length < 0:
                self._backend.write(b"0\r\n\r\n")
            if self._way == WAITING:
                self.deadline = self._context.clock() + self._context.proxy.response_timeout

    def buffered(self) -> int:
        """Return how many bytes wait for the backend, or of it: of the request's body, and of a coded response."""
        size = self._kept_size if self._kept is not None else 0
        size += self._backend.buffered() if self._backend is not None else 0
        return size + self._decoder.held if self._decoder is not None else size

    def on_request_blocked(self, blocked: bool) -> None:
        if not self.request.complete:
            (self.client.pause if blocked else self.client.resume)()

    # --- UpstreamRequest

    @property
    def _rule(self) -> RetryRule:
        whole = self._kept is not None
        return CLIENT_IDEMPOTENT if whole and self.request.method in FORWARD_METHODS_IDEMPOTENT else CLIENT_OTHER

    @property
    def _targets(self) -> tuple[Target, ...]:
        return self.route.targets if self.route is not None else ()

    def _unconnected(self, kind: str, why: object) -> None:
        away = self._away(kind)
        status = 503 if kind == DESCRIPTORS or away else 502
        self._report(kind, why, status)
        debug = "" if kind == DESCRIPTORS else "Error: Origin host/IP blocked." if kind == BLOCKED else self._tried()
        self._fail(status, _UNAVAILABLE if status == 503 else _ERROR, debug, kind, away)

    def _away(self, kind: str) -> bool:
        """Return whether a failure is that of a target which may be away (route property ``away``)."""
        return kind in AWAY and self.route is not None and self.route.targets[self.target_index].away

    def _report(self, kind: str, why: object, got: object) -> None:
        """Log and count a failure of the target: see ``Outages.report``."""
        if self._pool is not None:
            request = self.request
            what = f"{request.method.decode()} {self._shown.decode('latin-1')}"
            self._context.outages.report(self._pool, self._targets[self.target_index], kind, what, why, got)

    # --- the response

    def on_interim(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        # 100 answers our own Expect handling; the rest is for the client (RFC 9110 §15.2), HTTP/1.1 only.
        if code != 100 and self.request.minor and self._way == WAITING:
            self.client.write(b"HTTP/1.1 %d %b\r\n%b\r\n" % (code, reason, interim_lines(headers)))

    def on_head(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        context, request, route, figures = self._context, self.request, self.route, self.figures
        assert route is not None
        now = context.clock()
        if self._asked:
            context.stats.answered(now - self._asked)
        self.deadline = now + context.proxy.backend_body_timeout
        lines, grip, sized, coding = relayed_lines(code, headers, request.method != b"HEAD")
        if coding is not None:
            self._decoder = BodyDecoder.of(coding)
        if self._backend is not None:
            figures.server_header_bytes_received += self._backend.head_size
        if grip and not route.no_grip and not self.trusted:
            self._way = BUFFER
            if coding is not None:
                headers = [header for header in headers if header[0].lower() != b"content-encoding"]
            self._code, self._reason, self._headers, self._parts = code, reason, headers, []
            return
        self._way = RELAY
        self._code = code
        if context.router.cors(route):
            lines += map(b": ".join, cors_headers(request.headers, headers))
        if self._decoder is not None and sized:
            sized = False
            lines = [line for line in lines if line[:15].lower() != b"content-length:"]
        if request.method != b"HEAD" and code != 204 and code != 304 and not sized:
            self._chunked = bool(request.minor)
            request.keep_alive = request.keep_alive and self._chunked
        end = framing_lines(request.minor, self._chunked, request.keep_alive, context.registry.retiring)
        self._head = b"\r\n".join([b"HTTP/1.%d %d %b" % (request.minor, code, reason), *lines, end])
        figures.client_header_bytes_sent += len(self._head)

    def on_whole(self, head: ResponseHead, data: bytes) -> None:
        figures, size, context = self.figures, head.length, self._context
        context.stats.answered(context.clock() - self._asked)
        figures.server_header_bytes_received += head.size
        figures.server_content_bytes_received += size
        figures.client_header_bytes_sent += len(head.relay)
        figures.client_content_bytes_sent += size
        self.client.write(data if head.same else head.relay + data[head.end :])
        backend, self._backend = self._backend, None
        assert backend is not None
        backend.release()
        code = head.code
        figures.answered[code // 100] += 1
        context.access_log.request(self, code, size)
        self.client.finished(True)

    def on_body(self, data: bytes) -> None:
        self.figures.server_content_bytes_received += len(data)
        if self._decoder is not None:
            self._decoder.put(data)
            self._decode(self._decoder)
        else:
            self._body(data)

    def _body(self, data: bytes) -> None:
        """Body bytes as the client is meant to see them."""
        if self._way == RELAY:
            self._size += len(data)
            self.figures.client_content_bytes_sent += len(data)
            if data:
                if self._chunked:
                    data = chunk(data)
                if self._head:
                    # The head leaves with the first of the body: one system call for most responses.
                    data = self._head + data
                    self._head, self.answering = b"", True
                self.client.write(data)
        elif self._way == BUFFER:
            self._parts.append(data)
            self._size += len(data)
            if self._size > GRIP_RESPONSE_MAX:
                self._too_large()
        elif self._way == THROUGH and data:
            self._size += len(data)
            self.figures.client_content_bytes_sent += len(data)
            self.client.write(chunk(data) if self._chunked else data)

    def _decode(self, decoder: BodyDecoder) -> None:
        while decoder.waiting and not self.client.blocked and self._way != WAITING:
            try:
                piece = decoder.take()
            except DecodingError as error:
                self._broken(f"content coding: {error}")
                return
            self._body(piece)

    def on_complete(self) -> None:
        self._complete = True

    def on_batch(self) -> None:
        if self._way == RELAY and self._head:
            if self._complete and self._chunked and self._decoder is None:
                self._head += b"0\r\n\r\n"  # an empty chunked body
                self._chunked = False
            head, self._head = self._head, b""
            self.answering = True
            self.client.write(head)
        if self._complete:
            if self._decoder is None or not self._decoder.waiting:
                self._finish()
        elif self._way != WAITING:
            if not self.client.blocked:
                self.deadline = self._context.clock() + self._context.proxy.backend_body_timeout
            elif self._backend is not None:
                self.deadline = NEVER
                self._backend.pause()

    def client_blocked(self, blocked: bool) -> None:
        """The client does not take the response as fast as it comes, or does again."""
        if self._way == WAITING:
            # It is still busy with the response before this one; the backend's time is running.
            return
        if blocked:
            self.deadline = NEVER
            if self._backend is not None:
                self._backend.pause()
            return
        if self._decoder is not None and self._decoder.waiting:
            self._decode(self._decoder)
            if self.client.blocked:
                return
            if self._complete and not self._decoder.waiting:
                self._finish()
                return
        self.deadline = self._context.clock() + self._context.proxy.backend_body_timeout
        if self._backend is not None:
            self._backend.resume()

    def _finish(self) -> None:
        """The backend's response is complete."""
        if self._decoder is not None and not self._decoder.whole:
            self._broken("content coding: the body ends too early")
            return
        backend, self._backend = self._backend, None
        request = self.request
        if request.complete:
            if backend is not None:
                backend.release()
        else:
            request.keep_alive = False
            if backend is not None:
                backend.abort()
        if self._way == RELAY:
            if self._chunked:
                self.client.write(b"0\r\n\r\n")
            self._log(self._code)
            self.client.finished(request.keep_alive)
        elif self._way == BUFFER:
            self._grip(Response(self._code, self._reason, self._headers, b"".join(self._parts)))
        elif self._way == THROUGH:
            self._hold(b"")

    # --- GRIP

    def _grip(self, response: Response) -> None:
        assert self.route is not None
        try:
            instruct = parse_instruct(response, self._context.bounds_of(self.route))
        except InstructError as error:
            self.refuse(f"Failed to parse accept instructions: {error.detail}")
            return
        if instruct.mode is None and instruct.next is None:
            if any(channel.filters for channel in instruct.channels):
                try:
                    ids = ResponseFilter([n for channel in instruct.channels for n in channel.filters], instruct.meta)
                    instruct.response.body = ids.feed(instruct.response.body) + ids.finish()
                except FilterError as error:
                    self.refuse(f"filter error: {error}")
                    return
            self._respond(instruct.response)
            return
        if self._kept_size > GRIP_REQUEST_MAX:
            self._fail(400, "Request too large to accept GRIP instruct.")
            return
        if not self.request.complete:
            # There is no whole request to repeat, and the rest of it would pile up here.
            self._fail(502, _ERROR, "GRIP instruct before the end of the request.")
            return
        self.client.begin_hold(self, instruct, False)

    def _too_large(self) -> None:
        """More than may be buffered: a plain stream hold is passed through, anything else refused (§4.2)."""
        assert self.route is not None
        bounds = self._context.bounds_of(self.route)
        try:
            instruct = parse_instruct(Response(self._code, self._reason, self._headers), bounds)
            streamable = passes_through(instruct, self._headers)
        except InstructError as error:
            self.refuse(f"Failed to parse accept instructions: {error.detail}")
            return
        if not streamable:
            target = self.route.targets[self.target_index]
            self.refuse(f"GRIP instruct response too large from {target.address}", TOO_LARGE)
            return
        if self._kept_size > GRIP_REQUEST_MAX:
            self._refuse_with(400, "Request too large to accept GRIP instruct.", "")
            return
        if not self.request.complete:
            self.refuse("GRIP instruct before the end of the request.")
            return
        self._way = THROUGH
        self._chunked = self.client.begin_stream(self.with_cors(instruct.response))
        self.answering = True
        parts, self._parts = self._parts, []
        self.client.write_body(b"".join(parts), self._chunked)

    def _hold(self, body: bytes) -> None:
        """A stream whose initial body was passed through is complete: subscribe now."""
        assert self.route is not None
        bounds = self._context.bounds_of(self.route)
        instruct = parse_instruct(Response(self._code, self._reason, self._headers, body), bounds)
        self.client.begin_hold(self, instruct, True)

    def body_for_hold(self) -> bytes:
        """Return the request body, kept for repeating the request."""
        return b"".join(self._kept) if self._kept else b""

    def with_cors(self, response: Response) -> Response:
        assert self.route is not None
        if self._context.router.cors(self.route):
            response.headers = response.headers + cors_headers(self.request.headers, response.headers)
        return response

    # --- connection events

    @property
    def key(self) -> int:
        """Key of the request in connection events."""
        return self.serial

    def present(self, route: bytes) -> Present:
        """Return the event of the request; ``route``: id of its route, or empty."""
        context = self._context
        peer = context.router.settings.client_address(self.request, self.client.peer(), self.trusted)
        return (context.registry.connection_id(self.serial), route, False, peer, self.secure)

    # --- ends

    def refuse(self, debug: str, kind: str = BAD_ANSWER) -> None:
        """Fail: the backend's response is of no use; ``debug``: the reason, shown in debug mode."""
        self._report(kind, debug, 502)
        self._refuse_with(502, _ERROR, debug, kind)

    def _refuse_with(self, status: int, text: str, debug: str, reason: str = "client") -> None:
        self._drop()
        self._way = WAITING
        self._fail(status, text, debug, reason)

    def _broken(self, why: str, kind: str = BAD_ANSWER) -> None:
        """Answer 502, or abort a response that has begun: the backend broke off, or its response is malformed."""
        self._drop()
        away = self._away(kind)
        status = 503 if away else 502
        self._report(kind, why, "cut" if self.answering else status)
        if self.answering:
            self._cut(kind)
            return
        self._head = b""
        self._way = WAITING
        self._fail(status, _UNAVAILABLE if away else _ERROR, reason=kind, away=away)

    def _cut(self, kind: str) -> None:
        # A clean end would look like a complete response (docs/grip.md §2.5).
        self.deadline = NEVER
        self._context.stats.responded(self.figures, self._code, kind, self.figures.answered)
        self._log(self._code)
        self.client.abort()

    def expire(self) -> None:
        """The deadline has passed."""
        self._drop()
        waited = "response head" if self._way == WAITING else "more of the response body"
        self._report(LATE, f"no {waited} in time", "cut" if self.answering else 504)
        if self.answering:
            self._cut(LATE)
            return
        self._way = WAITING
        self._head = b""
        self._fail(504, _ERROR, "The backend did not answer in time.", LATE)

    def abort(self, code: int = 0) -> None:
        """End the request; ``code``: status of the error that the client was sent, 0 if it has left."""
        self._drop()
        self._log(code)
        if code:
            # The connection counts its own errors.
            self.figures.answered[code // 100] -= 1

    def _respond(self, response: Response) -> None:
        if not self.request.complete:
            self.request.keep_alive = False
        self._log(response.code)
        if self.route is not None:
            self.with_cors(response)
        self.client.send_response(response, self.request)

    def respond_head(self, response: Response) -> None:
        """Answer HEAD where GET would begin a stream: without a length, which is unknown (RFC 9110 §8.6)."""
        self._log(response.code)
        self.client.send_head(self.with_cors(response), self.request)

    def _fail(self, status: int, text: str, debug: str = "", reason: str = "client", away: bool = False) -> None:
        route = self.route
        shown = debug if debug and route is not None and self._context.router.debug(route) else text
        if debug and self._pool is None:  # a failure of a target was logged with it
            log.info("request failed", method=self.request.method, path=self._shown, status=status, reason=debug)
        self._context.stats.responded(self.figures, status, reason, self.figures.answered)
        response = error_response(status, shown)
        if away:
            response.headers.append((b"Retry-After", b"%d" % RETRY_AFTER))
        self._respond(response)

    @property
    def _shown(self) -> bytes:
        """Target of the request, as texts may have it."""
        return self.request.target if self.route is None else self.route.public(self.request.target)

    def _log(self, code: int) -> None:
        self.figures.answered[code // 100] += 1
        self._context.access_log.request(self, code, self._size)
