"""One client request on its way to a backend and the answer on its way back (docs/grip.md §2).

An exchange belongs to a client connection while the request is in flight. It ends with a response sent, with a hold
begun, or with an error; a held request that asks the backend again gets a new exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gripproxy.buffers import SMALL
from gripproxy.edge.backend import FINAL, BackendConnection, HostPool, kind_of
from gripproxy.edge.decoding import BodyDecoder, DecodingError
from gripproxy.edge.encoding import error_response, framing_lines
from gripproxy.edge.forwarding import FORWARD_METHODS_IDEMPOTENT, Forwarder, host_name
from gripproxy.edge.heads import ResponseHead, interim_lines, relayed_lines
from gripproxy.edge.holding import begin_hold, passes_through
from gripproxy.edge.parser import Request
from gripproxy.edge.routing import find_route, has_events, is_secure
from gripproxy.edge.testbackend import answer_test
from gripproxy.grip.cors import cors_headers
from gripproxy.grip.filters import FilterError, ResponseFilter
from gripproxy.grip.instruct import InstructError, parse_instruct
from gripproxy.grip.response import Response
from gripproxy.outages import BAD_ANSWER, BLOCKED, DESCRIPTORS, LATE, RESET, TOO_LARGE
from gripproxy.routes import Route
from gripproxy.tally import NOBODY

if TYPE_CHECKING:
    from gripproxy.edge.client import ClientConnection
    from gripproxy.worker import Worker

__all__ = ["GRIP_REQUEST_MAX", "GRIP_RESPONSE_MAX", "Exchange"]

GRIP_REQUEST_MAX: Final = 100_000
"""Request body in bytes that is kept for a hold to repeat (docs/grip.md §10)."""

GRIP_RESPONSE_MAX: Final = 100_000
"""Response body in bytes of a GRIP response that is buffered (docs/grip.md §10)."""

UPLOAD_WAIT_MAX: Final = 128 * 1024
"""Request body bytes that wait for a backend connection before the client is not read."""

NEVER: Final = float("inf")

# Ways of a response.
WAITING, RELAY, BUFFER, THROUGH = range(4)
"""No head yet; relayed as it comes; GRIP and buffered whole; GRIP stream too large to buffer, relayed, then held."""


class Exchange:
    """The state of one request in flight. Implements ``gripproxy.edge.backend.Sink``."""

    __slots__ = (
        "_asked", "_backend", "_chunked", "_code", "_complete", "_decoder", "_fresh", "_head", "_headers",
        "_index", "_kept", "_kept_size", "_last_ids", "_parts", "_pool", "_reason", "_sent", "_size", "_way",
        "_worker", "because", "began", "client", "deadline", "figures", "forwarder", "request", "route",
        "secure", "serial", "trusted",
    )  # fmt: skip

    def __init__(
        self,
        client: ClientConnection,
        worker: Worker,
        request: Request,
        serial: int,
        route: Route | None = None,
        last_ids: tuple[tuple[bytes, bytes], ...] = (),
        because: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.client = client
        self._worker = worker
        self.request = request
        self.serial = serial
        self.route = route
        self._last_ids = last_ids
        self.because = because
        """Items for which a held request is repeated: (channel name, id)."""
        self.began = worker.clock()
        self.deadline = NEVER
        self.figures = NOBODY
        """What it counts for, from when it has a route."""
        self._asked = 0.0
        self._index = 0
        self._pool: HostPool | None = None
        self._backend: BackendConnection | None = None
        self.forwarder: Forwarder | None = None
        self.trusted = False
        self.secure = False
        self._kept: list[bytes] | None = request.body
        self._kept_size = sum(map(len, request.body)) if request.body else 0
        self._fresh = False
        self._way = WAITING
        # From when there is a head; what is kept of one only for a response that is buffered.
        self._code: int
        self._reason: bytes
        self._headers: list[tuple[bytes, bytes]]
        self._parts: list[bytes]
        self._head = b""
        self._size = 0
        self._sent = False
        self._chunked = False
        self._complete = False
        self._decoder: BodyDecoder | None = None

    # --- the request

    def start(self) -> None:
        """Find the route and send the request to its first target."""
        request, worker = self.request, self._worker
        if request.check:
            self._respond(error_response(200, "Served by gripproxy, licensed under the Apache License 2.0."))
            return
        settings = worker.forward_settings
        self.secure = is_secure(request, self.client.secure, settings) if settings.accept_proto else self.client.secure
        if self.route is None:
            route = find_route(request, False, self.secure, worker.routes, settings)
            if route is None:
                host = host_name(request.host or b"localhost").decode("latin-1")
                self._fail(502, f"No route for host: {host}", reason="no-route")
                return
            self.route = route
        self._try()

    def _try(self) -> None:
        route, request = self.route, self.request
        assert route is not None
        target = route.targets[self._index]
        forwarder = self.forwarder = self._worker.forwarder(route, self._index)
        if self._kept_size > SMALL:
            self._worker.buffers.watch(self.client)
        if not self._index:
            self.trusted = self._worker.forward_settings.upstream_key is not None and forwarder.trusted(request)
            if self.figures is NOBODY:
                self.figures = self._worker.tally.request(self, route, self._kept_size)
        if target.over_http and not self.trusted and has_events(request):
            self._fail(403, "Client not allowed to send WebSocket events directly.")
            return
        if target.kind == "test":
            self._pool = None
            self._test()
            return
        server_name = host_name(forwarder.host(request.host)).decode("latin-1") if target.ssl else ""
        self._pool = self._worker.pool.host(target, server_name)
        self._pool.acquire(self, self._fresh)

    def _test(self) -> None:
        """Answer for the test target, unless more of the body is awaited."""
        forwarder = self.forwarder
        if forwarder is not None and self.client.exchange is self:
            answer_test(self, self.request, forwarder, self._kept_size)

    def on_connected(self, connection: BackendConnection) -> None:
        self._backend = connection
        request, forwarder, client, worker = self.request, self.forwarder, self.client, self._worker
        assert forwarder is not None
        now = self._asked = worker.clock()
        length: int | None = 0
        body = b""
        if self._kept:
            body = b"".join(self._kept)
            length = len(body)
            self.figures.server_content_bytes_sent += length
        if request.complete:
            self.deadline = now + worker.config.proxy.response_timeout
        elif request.length >= 0:
            length = request.length
        else:
            length = None
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        head = forwarder.head(request, length, client.peer, self.secure, self.trusted, self._last_ids)
        self.figures.server_header_bytes_sent += len(head)
        # What is to be done with a head that came before is known only for the common case.
        common = request.keep_alive and request.minor and request.complete and request.method != b"HEAD"
        whole = self if common and not worker.cors(forwarder.route) else None
        connection.send(head + body if body else head, request.method == b"HEAD", False, whole)
        if not request.complete:
            client.resume()
            if self._kept_size > GRIP_REQUEST_MAX:
                self._kept = None

    def request_body(self, data: bytes) -> None:
        """More of the client's body has come."""
        self._kept_size += len(data)
        self.figures.client_content_bytes_received += len(data)
        backend = self._backend
        if backend is None:
            assert self._kept is not None
            self._kept.append(data)
            self._worker.buffers.watch(self.client)
            if self._pool is None:
                self._worker.loop.call_soon(self._test)
            if self._kept_size > UPLOAD_WAIT_MAX:
                self.client.pause()
            return
        if self._kept is not None:
            # Kept for a retry or a hold, up to what may be held.
            self._kept.append(data)
            if self._kept_size > GRIP_REQUEST_MAX:
                self._kept = None
        self.figures.server_content_bytes_sent += len(data)
        backend.write(b"%x\r\n%b\r\n" % (len(data), data) if self.request.length < 0 else data)

    def request_complete(self) -> None:
        """The client's body is complete."""
        if self._backend is not None:
            if self.request.length < 0:
                self._backend.write(b"0\r\n\r\n")
            if self._way == WAITING:
                self.deadline = self._worker.clock() + self._worker.config.proxy.response_timeout
        elif self._pool is None:
            self._worker.loop.call_soon(self._test)

    def buffered(self) -> int:
        """Return how many bytes wait for the backend, or of it: of the request's body, and of a coded response."""
        size = self._kept_size if self._kept is not None else 0
        size += self._backend.buffered() if self._backend is not None else 0
        return size + self._decoder.held if self._decoder is not None else size

    def on_request_blocked(self, blocked: bool) -> None:
        if not self.request.complete:
            if blocked:
                self.client.pause()
            else:
                self.client.resume()

    def on_connect_failed(self, error: Exception) -> None:
        route = self.route
        assert route is not None
        kind = kind_of(error)
        more = kind not in FINAL and self._index + 1 < len(route.targets)
        self._tell(kind, error, "next-target" if more else 503 if kind == DESCRIPTORS else 502)
        if kind == DESCRIPTORS:
            self._fail(503, "Service unavailable.", reason=kind)
            return
        if kind == BLOCKED:
            self._fail(502, "Error while proxying to origin.", "Error: Origin host/IP blocked.", kind)
            return
        if more:
            self._index += 1
            self._fresh = False
            self._try()
            return
        tried = ", ".join(f"{t.host}:{t.port}" for t in route.targets if t.kind != "test")
        self._fail(502, "Error while proxying to origin.", f"Unable to connect to any targets. Tried: {tried}", kind)

    # --- the response

    def on_interim(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        # 100 answers our own Expect handling; the rest is for the client (RFC 9110 §15.2), HTTP/1.1 only.
        if code != 100 and self.request.minor and self._way == WAITING:
            self.client.write(b"HTTP/1.1 %d %b\r\n%b\r\n" % (code, reason, interim_lines(headers)))

    def on_head(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        worker, request, route, figures = self._worker, self.request, self.route, self.figures
        assert route is not None
        now = worker.clock()
        if self._asked:
            worker.tally.answered(now - self._asked)
        self.deadline = now + worker.config.proxy.backend_body_timeout
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
        if worker.cors(route):
            lines += map(b": ".join, cors_headers(request.headers, headers))
        if self._decoder is not None and sized:
            sized = False
            lines = [line for line in lines if line[:15].lower() != b"content-length:"]
        if request.method != b"HEAD" and code != 204 and code != 304 and not sized:
            self._chunked = bool(request.minor)
            request.keep_alive = request.keep_alive and self._chunked
        end = framing_lines(request.minor, self._chunked, request.keep_alive, worker.retiring)
        self._head = b"\r\n".join([b"HTTP/1.%d %d %b" % (request.minor, code, reason), *lines, end])
        figures.client_header_bytes_sent += len(self._head)

    def on_whole(self, head: ResponseHead, data: bytes) -> None:
        figures, size, worker = self.figures, head.length, self._worker
        worker.tally.answered(worker.clock() - self._asked)
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
        if worker.log.level >= 2:
            worker.log_request(self.client, self, code, size)
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
                    data = b"%x\r\n%b\r\n" % (len(data), data)
                if self._head:
                    # The head leaves with the first of the body: one system call for most responses.
                    data = self._head + data
                    self._head, self._sent = b"", True
                self.client.write(data)
        elif self._way == BUFFER:
            self._parts.append(data)
            self._size += len(data)
            if self._size > GRIP_RESPONSE_MAX:
                self._too_large()
        elif self._way == THROUGH and data:
            self._size += len(data)
            self.figures.client_content_bytes_sent += len(data)
            self.client.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

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
                # An empty chunked body.
                self._head += b"0\r\n\r\n"
                self._chunked = False
            head, self._head = self._head, b""
            self._sent = True
            self.client.write(head)
        if self._complete:
            if self._decoder is None or not self._decoder.waiting:
                self._finish()
        elif self._way != WAITING:
            if not self.client.blocked:
                self.deadline = self._worker.clock() + self._worker.config.proxy.backend_body_timeout
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
        self.deadline = self._worker.clock() + self._worker.config.proxy.backend_body_timeout
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
            code, worker = self._code, self._worker
            self.figures.answered[code // 100] += 1
            if worker.log.level >= 2:
                worker.log_request(self.client, self, code, self._size)
            self.client.finished(request.keep_alive)
        elif self._way == BUFFER:
            self._grip(Response(self._code, self._reason, self._headers, b"".join(self._parts)))
        elif self._way == THROUGH:
            self._hold(b"")

    # --- GRIP

    def _grip(self, response: Response) -> None:
        try:
            instruct = parse_instruct(response, self._worker.bounds)
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
            # There is no whole request to repeat, and what is still to come of it would pile up here.
            self._fail(502, "Error while proxying to origin.", "GRIP instruct before the end of the request.")
            return
        begin_hold(self._worker, self.client, self, instruct, opened=False)

    def _too_large(self) -> None:
        """More than may be buffered: a plain stream hold is passed through, anything else refused (§4.2)."""
        assert self.route is not None
        try:
            instruct = parse_instruct(Response(self._code, self._reason, self._headers), self._worker.bounds)
            streamable = passes_through(instruct, self._headers)
        except InstructError as error:
            self.refuse(f"Failed to parse accept instructions: {error.detail}")
            return
        if not streamable:
            target = self.route.targets[self._index]
            self.refuse(f"GRIP instruct response too large from {target.host}:{target.port}", TOO_LARGE)
            return
        if self._kept_size > GRIP_REQUEST_MAX:
            self._refuse_with(400, "Request too large to accept GRIP instruct.", "")
            return
        if not self.request.complete:
            self.refuse("GRIP instruct before the end of the request.")
            return
        self._way = THROUGH
        self._chunked = self.client.begin_stream(self.with_cors(instruct.response))
        self._sent = True
        parts, self._parts = self._parts, []
        self.client.write_body(b"".join(parts), self._chunked)

    def _hold(self, body: bytes) -> None:
        """A stream whose initial body was passed through is complete: subscribe now."""
        instruct = parse_instruct(Response(self._code, self._reason, self._headers, body), self._worker.bounds)
        begin_hold(self._worker, self.client, self, instruct, opened=True)

    def body_for_hold(self) -> bytes:
        """Return the request body, kept for repeating the request."""
        return b"".join(self._kept) if self._kept else b""

    @property
    def target_index(self) -> int:
        """Which of the route's targets answered."""
        return self._index

    def with_cors(self, response: Response) -> Response:
        assert self.route is not None
        if self._worker.cors(self.route):
            response.headers = response.headers + cors_headers(self.request.headers, response.headers)
        return response

    # --- ends

    def refuse(self, debug: str, kind: str = BAD_ANSWER) -> None:
        """The backend's response is of no use; ``debug`` says why, in debug mode."""
        self._refuse_with(502, "Error while proxying to origin.", debug, self._tell(kind, debug, 502))

    def _refuse_with(self, status: int, text: str, debug: str, reason: str = "client") -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.abort()
        self._way = WAITING
        self._fail(status, text, debug, reason)

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        self._backend = None
        request = self.request
        if (
            stale
            and not self._fresh
            and self._kept is not None
            and self._way == WAITING
            and request.method in FORWARD_METHODS_IDEMPOTENT
        ):
            # The backend closed an idle connection just as it was used again (RFC 9112 §9.3.1).
            self._fresh = True
            assert self._pool is not None
            self._pool.acquire(self, fresh=True)
            return
        self._broken(why, kind)

    def _broken(self, why: str, kind: str = BAD_ANSWER) -> None:
        """The backend cannot be relied on for the rest of this response."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.abort()
        self._tell(kind, why, "cut" if self._sent else 502)
        if self._sent:
            self._cut(kind)
            return
        self._head = b""
        self._way = WAITING
        self._fail(502, "Error while proxying to origin.", reason=kind)

    def _cut(self, kind: str) -> None:
        # A clean end would look like a complete response (docs/grip.md §2.5).
        self.deadline = NEVER
        self._worker.tally.responded(self.figures, self._code, kind, self.figures.answered)
        self._log(self._code)
        self.client.abort()

    def expire(self) -> None:
        """The deadline has passed."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.abort()
        waited = "response head" if self._way == WAITING else "more of the response body"
        self._tell(LATE, f"no {waited} in time", "cut" if self._sent else 504)
        if self._sent:
            self._cut(LATE)
            return
        self._way = WAITING
        self._head = b""
        self._fail(504, "Error while proxying to origin.", "The backend did not answer in time.", LATE)

    @property
    def answering(self) -> bool:
        """Whether some of the response, interim ones aside, is on its way to the client."""
        return self._sent

    def abort(self, code: int = 0) -> None:
        """The client is gone, or has got an error with that status code: whatever is under way for it ends."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.abort()
        elif self._pool is not None:
            self._pool.forget(self)
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

    def _tell(self, kind: str, why: object, got: object) -> str:
        """The target has failed; see Tally.failed. Returns the kind."""
        request, route = self.request, self.route
        assert route is not None
        if self._pool is not None:
            what = f"{request.method.decode()} {request.target.decode('latin-1')}"
            self._worker.tally.failed(self._pool, route.targets[self._index], kind, what, why, got)
        return kind

    def _fail(self, status: int, text: str, debug: str = "", reason: str = "client") -> None:
        route = self.route
        shown = debug if debug and route is not None and self._worker.debug(route) else text
        if debug:
            self._worker.log.info("%s %s: %s", self.request.method, self.request.target, debug)
        self._worker.tally.responded(self.figures, status, reason, self.figures.answered)
        self._respond(error_response(status, shown))

    def _log(self, code: int) -> None:
        worker = self._worker
        self.figures.answered[code // 100] += 1
        if worker.log.level >= 2:
            worker.log_request(self.client, self, code, self._size)
