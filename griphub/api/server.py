"""HTTP server of the hub: connections, framing, limits and deadlines.

One server answers publishers, whose requests are as frequent as proxied ones, and all others: a proxy sends both kinds
through the same connections. Every answer is one buffer of bounded size, since the hub holds no client: long answers
are pages, chained by links, and the proxy reads the next one when its client has taken the last.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, Protocol, cast

import httptools

from griphub.api.body_accounts import BodyAccounts
from griphub.api.body_buffer import BodyBuffer
from griphub.api.connection_progress import Progress, stalled
from griphub.api.head_memory import HeadMemory, KnownHead
from griphub.api.problem import Problem, limited
from griphub.api.pubsub_status import is_call, status_answer
from griphub.api.request import Answer, Request, answer_bytes, problem_answer, target_below, target_of
from griphub.api.server_limits import ServerLimits
from gripproxy.process.accept_queue import AcceptQueue
from gripproxy.process.log import log

__all__ = ["Application", "HubConnection", "HubServer"]

HEAD_MAX: Final = 65_536
"""Greatest size of a request's head, in bytes."""

HEAD_TIME: Final = 15.0
"""Seconds for a request, from its first byte to the last byte of its head."""

BODY_TIME: Final = 60.0
"""Seconds without a byte in a body."""

IDLE_TIME: Final = 75.0
"""Seconds between two requests of a connection from elsewhere; workers close theirs themselves."""

HEADERS_MAX: Final = 500
"""Greatest number of a request's headers: short ones take far more memory than their bytes."""

CLOSE_TIME: Final = 2.0
"""Seconds for which a client may go on sending behind the last answer, which a socket with unread bytes may lose."""

CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks of all connections."""

ACCEPT_TURN: Final = 250
"""Connections accepted in one turn of the loop: those of a burst wait for a few turns, not for one each."""

_CREATED: Final = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
"""Answer to most publishers."""


class Application(Protocol):
    """Application behind a server."""

    def admits(self, request: Request, *, private: bool) -> str:
        """Check a request before its body is read.

        Args:
            request: without body.
            private: whether it arrived through a private socket.

        Returns:
            Text that names the owner whose body it is.

        Raises:
            Problem: it is refused.
        """

    def again(self, first: Request, body: bytes, connection: HubConnection) -> bool:
        """Carry out a request whose head is equal to that of an earlier one, if it is known how.

        Args:
            first: the earlier request, without body.
            body: of the request.
            connection: ``answer`` or ``created`` of it is called once, now or later.

        Returns:
            False if ``start`` has to be called.
        """

    def start(self, request: Request, connection: HubConnection) -> None:
        """Carry out a request; ``connection.answer`` is called once, now or later."""


class HubServer:
    """Server on any number of listening sockets.

    Args:
        application: receiver of the requests.
        limits: bounds.
    """

    def __init__(self, application: Application, limits: ServerLimits) -> None:
        self.application = application
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.connections: set[HubConnection] = set()
        self.accounts = BodyAccounts()
        self.retiring = self.closed = False
        self.memory = HeadMemory()
        self._listeners: list[tuple[asyncio.Server, AcceptQueue]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, sock: socket.socket, *, private: bool, root: bytes = b"") -> None:
        """Accept connections.

        Args:
            sock: listening socket, which the server owns from now on.
            private: whether only processes of the same user reach it.
            root: path that all targets begin with, which is left out of them.
        """
        create: Any = self.loop.create_unix_server if sock.family == socket.AF_UNIX else self.loop.create_server
        local = sock.family == socket.AF_UNIX

        def connection() -> HubConnection:
            return HubConnection(self, private=private, root=root, local=local)

        queue = AcceptQueue(self.loop, sock, connection, turn=ACCEPT_TURN)
        server = await create(queue.first, sock=sock, backlog=1024)
        self._listeners.append((server, queue))
        if self._timer is None:
            self._timer = self.loop.call_later(CHECK_INTERVAL, self._check)

    def retire(self) -> None:
        """Stop listening, and close each connection after its request."""
        self.retiring = True
        for server, queue in self._listeners:
            server.close()
            queue.close()
        self._listeners.clear()
        for connection in [*self.connections]:
            connection.retire()

    def close(self) -> None:
        """Stop listening and close all connections, those too that the loop has accepted already."""
        self.closed = True
        self.retire()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in [*self.connections]:
            connection.abort()

    def check(self, now: float) -> None:
        """End connections whose time is over, and those that take least of their answers while too much waits.

        Args:
            now: seconds of the loop's clock.
        """
        looks: list[tuple[float, int, HubConnection]] = []
        for connection in [*self.connections]:
            if connection.deadline <= now:
                connection.time_out()
            quiet, waiting = connection.progress(now)
            if waiting:
                looks.append((quiet, waiting, connection))
        ended = stalled(looks, self.limits.stall, self.limits.unread)
        for connection in ended:
            connection.abort()
        if ended:
            log.warning("clients that do not read were disconnected", connections=len(ended))

    def _check(self) -> None:
        self._timer = self.loop.call_later(CHECK_INTERVAL, self._check)
        self.check(self.loop.time())


class HubConnection(asyncio.Protocol):
    """Connection of a client, nearly always a worker of the proxy. One request is carried out at a time.

    Args:
        server: that accepted it.
        private: whether only processes of the same user reach the server's socket.
        root: path that all targets begin with, which is left out of them.
        local: whether the client is a process of this machine, on a Unix socket.
    """

    def __init__(self, server: HubServer, *, private: bool, root: bytes = b"", local: bool = True) -> None:
        self._server = server
        self._private = private
        self._local = local
        self._root = root
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._pending = b""
        """Bytes behind the request that is carried out."""
        self._busy = False
        self._refused: Problem | None = None
        self._closing = False
        """True once the last answer was written: further bytes are dropped until the client closes."""
        self._ended = False
        """True once the client has ended its bytes."""
        self._writing_paused = False
        self._turn: asyncio.Handle | None = None
        """Turn of the loop in which the pending bytes are read."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        """Bytes of the target and the headers so far."""
        self._unfinished = 0
        """Bytes received since the parser reported more than a header; it keeps those of an incomplete one."""
        self._request: Request | None = None
        """Request that is received or carried out; None while a head is received."""
        self._complete: Request | None = None
        """Request that the last bytes have completed."""
        self._body = BodyBuffer()
        self._size = 0
        """Bytes of the body of the request."""
        self._owner: str | None = None
        """Owner whose body it is; None for one that arrived whole with its remembered head."""
        self._arriving = False
        """True if a part of the request has arrived, and the owner is counted for it."""
        self._keep_alive = True
        self.deadline = float("inf")
        """Time of ``time_out``, in seconds of the loop's clock."""
        self._progress = Progress()

    # --- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve ``transport``."""
        self._transport = cast(asyncio.Transport, transport)
        server = self._server
        most = server.limits.connections
        if server.closed or len(server.connections) >= (most if self._local else most - most // 4):
            log.warning("connection closed", reason="the hub ends" if server.closed else "too many", max=most)
            self._transport.abort()
            return
        server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection; ``exc`` is ignored."""
        self._server.connections.discard(self)
        self._release()
        self._body.clear()
        self._pending = b""
        self._transport = None

    def eof_received(self) -> bool:
        """Return whether the connection stays open after the end of the client's bytes: for an answer under way."""
        self._ended = True
        return self._busy or bool(self._pending)

    def pause_writing(self) -> None:
        """Stop reading while the client does not read."""
        self._writing_paused = True
        self._stop()

    def resume_writing(self) -> None:
        """Read again."""
        self._writing_paused = False
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """Parse ``data``; a further request waits for the answer to the one before."""
        if self._busy or self._writing_paused or self._pending or self._closing:
            if not self._closing:
                self._pending += data
                self._stop()
            return
        begins = self.deadline == float("inf")
        # Behind a root, an equal head has another target.
        memory = begins and not self._root
        if memory:
            end = data.find(b"\r\n\r\n") + 4
            known = self._server.memory.heads.get(data[:end])
            if known is not None and len(data) == end + known.length:
                self._begin_known(known, data[end:])
                return
        if begins:
            self.deadline = self._server.loop.time() + HEAD_TIME
        elif self._request is not None:
            self.deadline = self._server.loop.time() + BODY_TIME
        self._unfinished += len(data)
        self._complete = None
        self._parse(data)
        if memory and self._complete is not None and self._refused is None:
            self._server.memory.remember(data, self._complete, keep_alive=self._keep_alive)
        if self._unfinished > HEAD_MAX:
            self._fail(_long_head())
        if self._request is not None and not self._busy and not self._arriving and self._refused is None:
            self._arrive()
        if self._refused is not None and not self._busy:
            self._refuse(self._refused)

    def _begin_known(self, known: KnownHead, body: bytes) -> None:
        """Carry out a request with a remembered head."""
        server, first = self._server, known.request
        # Of a request that is carried out only the method is looked at here.
        self._request, self._keep_alive, self._busy = first, known.keep_alive, True
        self._size = known.length
        server.accounts.bodies += known.length
        application = server.application
        if not self._private:
            try:
                application.admits(first, private=False)
            except Problem as problem:
                self._busy = False
                self._refuse(problem)
                return
        if not application.again(first, body, self):
            request = Request(first.method, first.target, first.headers, body, first.raw_target, first.memo)
            self._request = request
            application.start(request, self)

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # An unknown Upgrade is ignored (RFC 9110 §7.8): the next request follows.
            self._pending += data[upgrade.args[0] :]
            if self._pending:
                self._stop()
                self._go_on()
        except httptools.HttpParserCallbackError:
            log.exception("request not read", target=self._url)
            self._busy = False
            self._fail(Problem(500, "internal", "the hub has a fault, which is in its log"))
        except httptools.HttpParserError as error:
            self._fail(Problem(400, "bad-request", f"the request is malformed: {error}"))

    # --- parser

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._headers = []
        self._head_size = 0
        self._unfinished = 0
        if self._busy or self._writing_paused:
            # Requests that arrived in one read, of which the first is not answered: proxies do not send them so.
            self._fail(Problem(400, "bad-request", "a request must follow the answer to the one before"))

    def on_url(self, url: bytes) -> None:
        """Take a part of the target, ``url``."""
        self._url += url
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header.

        Args:
            name: its name.
            value: its value.
        """
        # Not of trailers, which come unchecked behind a body.
        if self._refused is None and self._request is None:
            self._headers.append((name.lower(), value))
            self._grow(len(name) + len(value))
            if len(self._headers) > HEADERS_MAX:
                self._fail(Problem(431, "too-large", f"the request has more than {HEADERS_MAX} headers"))

    def _grow(self, size: int) -> None:
        self._head_size += size
        if self._head_size > HEAD_MAX:
            self._fail(_long_head())

    def on_headers_complete(self) -> None:
        """Check a head before its body is read."""
        self._unfinished = 0
        if self._refused is not None:
            return
        version = self._parser.get_http_version()
        current = version == "1.1"
        self._keep_alive = current and self._parser.should_keep_alive()
        try:
            if not current and version != "1.0":
                raise Problem(400, "bad-request", f"the version of HTTP is {version}: expected 1.1 or 1.0")
            raw = target_below(self._url, self._root) if self._root else self._url
            target = target_of(raw)
            hosts = sum([name == b"host" for name, _ in self._headers])
            if hosts > 1:
                raise Problem(400, "bad-request", f"the request has {hosts} Host headers: expected one (RFC 9112 §3.2)")
            request = Request(self._parser.get_method(), target, self._headers, b"", raw)
            self._request = request
            length = request.header(b"content-length")
            if length is not None and length.isdigit() and int(length) > self._server.limits.body:
                raise _too_long(self._server.limits.body)
            self._owner = self._server.application.admits(request, private=self._private)
        except Problem as problem:
            self._fail(problem)
            return
        if current and self._transport is not None and (request.header(b"expect") or b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """Take a part of the body, ``data``."""
        self._unfinished = 0
        if self._refused is not None:
            return
        server = self._server
        of_owner = self._hold(len(data))
        if self._size > server.limits.body:
            self._fail(_too_long(server.limits.body))
        elif of_owner > server.limits.owner_bodies:
            text = f"requests of {server.limits.owner_bodies} bytes are under way for this owner: repeat it later"
            self._fail(limited(text, "owner_bodies", server.limits.owner_bodies, 1))
        elif server.accounts.bodies > server.limits.bodies:
            text = f"requests of {server.limits.bodies} bytes are under way: repeat it later"
            self._fail(Problem(503, "unavailable", text, headers=[("Retry-After", "1")]))
        else:
            self._body.add(data)

    def _hold(self, size: int) -> int:
        """Count bytes of the body; return those of all bodies of its owner."""
        self._size += size
        return self._server.accounts.hold(self._owner or "", size)

    def _release(self) -> None:
        """Count the bytes of the body no more."""
        if self._arriving:
            self._arrived()
        self._server.accounts.release(self._owner, self._size)
        self._size, self._owner = 0, None

    def _arrive(self) -> None:
        """Count a request whose body arrives in parts: one owner must not have all connections with these."""
        self._arriving = True
        most = self._server.limits.owner_requests
        if self._server.accounts.begin(self._owner or "") > most:
            text = f"the bodies of {most} requests of this owner are arriving: repeat it later"
            self._fail(limited(text, "owner_requests", most, 1))

    def _arrived(self) -> None:
        self._arriving = False
        self._server.accounts.end(self._owner or "")

    def on_message_complete(self) -> None:
        """Carry out a request."""
        self._unfinished = 0
        request = self._request
        if request is None or self._refused is not None or self._transport is None:
            return
        if self._arriving:
            self._arrived()
        request.body = self._body.take()
        self._busy = True
        self._complete = request
        self.deadline = float("inf")
        self._server.application.start(request, self)

    # --- answers

    def answer(self, answer: Answer) -> None:
        """Answer the request under way.

        Args:
            answer: the answer.
        """
        request = self._request
        head = request is not None and request.method == b"HEAD"
        keep_alive = self._keep_alive and not self._server.retiring
        self.send(answer_bytes(answer, keep_alive=keep_alive, head=head))

    def created(self, body: bytes) -> None:
        """Answer 201 to the request under way.

        Args:
            body: JSON.
        """
        if self._keep_alive and not self._server.retiring:
            self.send(_CREATED % (len(body), body))
        else:
            self.answer(Answer(201, body))

    def send(self, data: bytes) -> None:
        """Answer the request under way.

        Args:
            data: bytes of the response.
        """
        server, transport = self._server, self._transport
        if self._owner is None and not self._arriving:
            server.accounts.bodies -= self._size
            self._size = 0
        else:
            self._release()
        self._progress.used = True
        self._request = None
        self._busy = False
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if not self._keep_alive or server.retiring:
            self._close()
        elif self._refused is not None:
            self._refuse(self._refused)
        else:
            self._go_on()

    def _stop(self) -> None:
        """Stop reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Read the next request, unless one is under way or the client does not read."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._busy or self._writing_paused or self._closing:
            return
        if self._pending:
            # Reading stays stopped: bytes that a loop reads before its next turn would overtake these.
            if self._turn is None:
                self._turn = self._server.loop.call_soon(self._take_pending)
        elif self._ended:
            self._close()
        else:
            transport.resume_reading()

    def _take_pending(self) -> None:
        self._turn = None
        if self._transport is not None and not self._busy and not self._writing_paused:
            pending, self._pending = self._pending, b""
            self.data_received(pending)
            self._go_on()

    @property
    def busy(self) -> bool:
        """True while a request is carried out."""
        return self._busy

    def retire(self) -> None:
        """Close the connection, after the answer if a request is under way."""
        if not self._busy and self._request is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection without waiting for anything."""
        if self._transport is not None:
            self._transport.abort()

    def progress(self, now: float) -> tuple[float, int]:
        """Return for how many seconds nothing has moved, and bytes of answers that wait; end an idle connection.

        Args:
            now: seconds of the loop's clock.
        """
        transport = self._transport
        if transport is None:
            return 0.0, 0
        waiting = transport.get_write_buffer_size()
        quiet = self._progress.quiet(waiting, now)
        idle = not (waiting or self._busy or self._local) and self.deadline == float("inf")
        if idle and quiet >= IDLE_TIME:
            transport.close()
        return quiet, waiting

    def time_out(self) -> None:
        """Refuse a request that does not arrive in time, or end a connection that its client does not close."""
        if not self._closing:
            self._refuse(Problem(408, "bad-request", "the request did not arrive in time"))
        elif self._transport is not None and self._transport.get_write_buffer_size():
            self.deadline = self._server.loop.time() + CLOSE_TIME
        else:
            self.abort()

    def _fail(self, problem: Problem) -> None:
        """Refuse the request when the parser returns."""
        if self._refused is None:
            self._refused = problem

    def _refuse(self, problem: Problem) -> None:
        """Answer an unread request, and close the connection."""
        transport = self._transport
        self._release()
        self._body.clear()
        if transport is not None and not transport.is_closing() and not self._closing:
            head = self._request is not None and self._request.method == b"HEAD"
            answer = problem_answer(problem)
            if self._request is not None and is_call(self._request.raw_target):
                answer = status_answer(answer)
            transport.write(answer_bytes(answer, keep_alive=False, head=head))
            self._close()

    def _close(self) -> None:
        """End the answers; the connection is closed when the client has closed it, or after ``CLOSE_TIME``."""
        transport = self._transport
        self._closing = True
        self._pending = b""
        self.deadline = self._server.loop.time() + CLOSE_TIME
        if transport is not None and not transport.is_closing():
            if self._ended:
                transport.close()
            else:
                transport.write_eof()
                transport.resume_reading()


def _long_head() -> Problem:
    return Problem(431, "too-large", f"the head of the request is longer than {HEAD_MAX} bytes")


def _too_long(limit: int) -> Problem:
    return Problem(413, "too-large", f"the body is longer than {limit} bytes", {"limit": "body", "max": limit})
