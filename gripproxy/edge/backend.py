"""Connections to backends: opening, reuse, and one response at a time.

A connection talks to a ``Sink`` (an exchange or a fetch) by plain calls; only opening one is a coroutine.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol, cast

from gripproxy.config import AccessPolicy
from gripproxy.edge.heads import ResponseHead
from gripproxy.edge.responseparser import BadResponse, ResponseParser
from gripproxy.edge.shortage import Shortage
from gripproxy.outages import (
    BAD_ANSWER,
    BLOCKED,
    DESCRIPTORS,
    REFUSED,
    RESET,
    TIMED_OUT,
    TLS,
    UNREACHABLE,
    UNRESOLVED,
    Outage,
)
from gripproxy.routes import Target

__all__ = ["FINAL", "BackendConnection", "BackendPool", "Blocked", "HostPool", "Sink", "WholeSink", "kind_of"]

HIGH_WATER: Final = 128 * 1024
"""Bytes of request body that may wait in a backend connection before the client is not read."""


FINAL: Final = (BLOCKED, DESCRIPTORS)
"""Failures to connect after which no other target is tried: it would be no better."""


class Blocked(OSError):
    """The target's address is not one that untrusted targets may have (``policy_allow``, ``policy_deny``)."""


def kind_of(error: BaseException) -> str:
    """Return which of FAILURES (gripproxy.grip.stats) the failure to connect is.

    Args:
        error: what connecting raised; TimeoutError for our own ``connect_timeout``.
    """
    if isinstance(error, Blocked):
        return BLOCKED
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    if isinstance(error, TimeoutError):
        return TIMED_OUT
    if isinstance(error, ssl.SSLError | ssl.CertificateError):
        return TLS
    if isinstance(error, socket.gaierror | UnicodeError):
        return UNRESOLVED
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return DESCRIPTORS
    if isinstance(error, ConnectionError):
        return RESET
    return UNREACHABLE


class Sink(Protocol):
    """Who a backend connection works for."""

    def on_connected(self, connection: BackendConnection) -> None:
        """The connection is ready to take the request."""

    def on_connect_failed(self, error: Exception) -> None:
        """No connection: refused, timed out, TLS failed, or blocked by policy."""

    def on_head(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None: ...
    def on_interim(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None: ...
    def on_body(self, data: bytes) -> None: ...
    def on_complete(self) -> None: ...

    def on_batch(self) -> None:
        """What arrived together has been told: a good time to write what was gathered."""

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        """The connection broke before the response was complete; ``stale``: it was reused and gave nothing; ``clean``:
        it was closed, not reset; ``kind``: see gripproxy.outages."""

    def on_request_blocked(self, blocked: bool) -> None:
        """The backend does not take the body as fast as it comes, or does again."""


class WholeSink(Sink, Protocol):
    """A sink that can do with all of a response at once."""

    def on_whole(self, head: ResponseHead, data: bytes) -> None:
        """Instead of the calls for head, body and end: ``data`` is a whole response with that head, to be relayed."""


class BackendConnection(asyncio.Protocol):
    """One connection to a backend; at most one request on it at a time."""

    __slots__ = ("_parser", "_paused", "_pool", "_transport", "_whole", "answered", "idle_since", "reused", "sink")

    def __init__(self, pool: HostPool) -> None:
        self._pool = pool
        self._parser = ResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._whole: WholeSink | None = None
        self.sink: Sink | None = None
        self.reused = False
        self.answered = False
        self.idle_since = 0.0

    @property
    def head_size(self) -> int:
        """Bytes of the header lines of the response."""
        return self._parser.head_size

    def send(self, data: bytes, head: bool, upgrade: bool = False, whole: WholeSink | None = None) -> None:
        """Send a request's head (and what is there of its body); ``head``: its method is HEAD, ``upgrade``: it asks
        for a WebSocket. ``whole``: the sink, if it may get a response that is only to be relayed in one piece."""
        self.answered = False
        self._whole = whole
        self._parser.expect(head, upgrade)
        if self._transport is not None:
            self._transport.write(data)

    def write(self, data: bytes) -> None:
        """Send more of the request body."""
        if self._transport is not None:
            self._transport.write(data)

    def buffered(self) -> int:
        """Return how many bytes wait for the backend."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def pause(self) -> None:
        """Read no more of the response for now."""
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Undo ``pause``."""
        if self._transport is not None and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def release(self) -> None:
        """The response is complete and the sink done with it: keep the connection for another request, or close it."""
        self.sink = self._whole = None
        pool = self._pool
        if pool.outage is not None:
            pool.outage.answered = True
        transport = self._transport
        if transport is None:
            return
        if not self._parser.reusable or self._parser.asked or transport.is_closing():
            transport.close()
            return
        if self._paused:
            self._paused = False
            transport.resume_reading()
        self.reused = True
        pool.put(self)

    def detach(self) -> tuple[asyncio.Transport, bytes]:
        """Give the transport away after a 101, with what came behind it; this object is done."""
        outage = self._pool.outage
        if outage is not None:
            outage.answered = True
        transport, self._transport = self._transport, None
        self.sink = self._whole = None
        assert transport is not None
        rest = self._parser.rest
        self._parser.close()
        return transport, rest

    def abort(self) -> None:
        """Close at once; the sink is not told."""
        self.sink = self._whole = None
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        sink, whole = self.sink, self._whole
        self.answered = True
        try:
            head = self._parser.feed(data, whole is not None)
        except BadResponse as error:
            self._break(f"bad response: {error}", True, BAD_ANSWER)
            return
        if head is not None and whole is not None:
            whole.on_whole(head, data)
        elif sink is not None:
            sink.on_batch()
        else:
            self._pool.discard(self)
            self.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._pool.discard(self)
        sink = self.sink
        if sink is not None and self._parser.eof():
            sink.on_batch()
        self._parser.close()
        if self.sink is not None:
            why = f"connection closed{f': {exc}' if exc else ' before the response was complete'}"
            self._break(why, exc is None)

    def pause_writing(self) -> None:
        if self.sink is not None:
            self.sink.on_request_blocked(True)

    def resume_writing(self) -> None:
        if self.sink is not None:
            self.sink.on_request_blocked(False)

    def _break(self, why: str, clean: bool, kind: str = RESET) -> None:
        sink, self.sink = self.sink, None
        self._whole = None
        self._pool.discard(self)
        if self._transport is not None:
            self._transport.abort()
        if sink is not None:
            sink.on_failed(why, self.reused and not self.answered, clean, kind)

    # ResponseOwner

    def response_begun(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.answered = True
        if self.sink is not None:
            self.sink.on_head(code, reason, headers)

    def interim_response(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        if self.sink is not None:
            self.sink.on_interim(code, reason, headers)

    def response_body(self, data: bytes) -> None:
        if self.sink is not None:
            self.sink.on_body(data)

    def response_complete(self) -> None:
        if self.sink is not None:
            self.sink.on_complete()


class HostPool:
    """Connections to one address with one way of TLS."""

    __slots__ = ("_connecting", "_idle", "_others", "_owner", "_server_name", "_starved", "_tls", "outage", "target")

    def __init__(self, owner: BackendPool, target: Target, tls: ssl.SSLContext | None, server_name: str) -> None:
        self._owner = owner
        self.target = target
        self._tls = tls
        self._server_name = server_name
        self._idle: dict[BackendConnection, None] = {}
        self._connecting: dict[Sink, asyncio.Task[None]] = {}
        self._others = owner.shortage.queue
        """Connects of all pools that wait for a descriptor."""
        self._starved: dict[Sink, bool] = {}
        """Of these, those that wait for a descriptor; and whether only a new connection will do."""
        self.outage: Outage | None = None
        """Counter of the target's failures, if there were any (``gripproxy.outages.Troubled``)."""

    def acquire(self, sink: Sink, fresh: bool = False) -> None:
        """Have ``sink.on_connected`` called with a connection: at once with an idle one, else when a new one is open.

        ``fresh`` asks for a new one.
        """
        if not fresh and self._idle:
            # The one used last: the others may come to their idle time.
            connection, _ = self._idle.popitem()
            connection.sink = sink
            sink.on_connected(connection)
            return
        name = f"connect {self.target.host}:{self.target.port}"
        self._connecting[sink] = self._owner.loop.create_task(self._connect(sink, fresh), name=name)
        self._owner.connecting += 1

    def forget(self, sink: Sink) -> None:
        """The sink does not want its connection any more."""
        task = self._over(sink)
        if task is not None:
            task.cancel()

    def _over(self, sink: Sink) -> asyncio.Task[None] | None:
        """Forget that a connection is being opened for the sink; returns the task."""
        task = self._connecting.pop(sink, None)
        if task is not None:
            self._owner.connecting -= 1
            self._starved.pop(sink, None)
        return task

    def put(self, connection: BackendConnection) -> None:
        """Keep an idle connection; if descriptors are short, for who waits for one, or not at all."""
        if self._others:
            sink = next((sink for sink, fresh in self._starved.items() if not fresh), None)
            if sink is None:
                connection.abort()
                return
            self.forget(sink)
            connection.sink = sink
            sink.on_connected(connection)
            return
        connection.idle_since = self._owner.loop.time()
        self._idle[connection] = None

    def drop_one(self) -> bool:
        """Close the connection that was idle longest; returns whether there was one."""
        connection = next(iter(self._idle), None)
        if connection is None:
            return False
        del self._idle[connection]
        connection.abort()
        return True

    def discard(self, connection: BackendConnection) -> None:
        """Forget a connection that is closing."""
        self._idle.pop(connection, None)

    def sweep(self, before: float) -> None:
        """Close connections idle since before that time (seconds of the loop's clock)."""
        for connection in list(self._idle):
            if connection.idle_since >= before:
                break
            del self._idle[connection]
            connection.abort()

    def close(self) -> None:
        """Close every idle connection."""
        while self._idle:
            self._idle.popitem()[0].abort()

    async def _connect(self, sink: Sink, fresh: bool) -> None:
        timeout = self._owner.connect_timeout
        try:
            async with asyncio.timeout(timeout):
                connection = await self._opened(sink, fresh)
        except TimeoutError:
            starved = sink in self._starved
            self._over(sink)
            why = f"no {'descriptor' if starved else 'connection'} within {timeout:g} s"
            sink.on_connect_failed(OSError(errno.EMFILE, why) if starved else TimeoutError(why))
            return
        except (OSError, ssl.SSLError, ssl.CertificateError, UnicodeError) as error:
            self._over(sink)
            sink.on_connect_failed(error)
            return
        self._over(sink)
        connection.sink = sink
        sink.on_connected(connection)

    async def _opened(self, sink: Sink, fresh: bool) -> BackendConnection:
        """Return a new connection, as soon as there is a descriptor for it. Raises what connecting raises."""
        owner = self._owner
        shortage = owner.shortage
        ticket = shortage.ticket()
        error: OSError | None = None
        noted = False
        while True:
            if error is not None or shortage.short:
                if not noted:
                    noted = True
                    shortage.note()
                self._starved[sink] = fresh
                owner.spare()
                await shortage.wait(ticket)
                del self._starved[sink]
            try:
                return await self._open()
            except OSError as failure:
                if not shortage.means(failure):
                    raise
                error = failure

    async def _open(self) -> BackendConnection:
        target = self.target
        host = target.host
        if target.untrusted:
            host = await self._owner.allowed_address(host, target.port)
        _, connection = await self._owner.loop.create_connection(
            lambda: BackendConnection(self),
            host,
            target.port,
            ssl=self._tls,
            server_hostname=self._server_name if self._tls is not None else None,
        )
        return connection


class BackendPool:
    """All backend connections of a worker.

    ``connect_timeout`` and ``idle_timeout`` in seconds; ``tls(target)`` makes the TLS context of a target;
    ``policy`` says which resolved addresses untrusted targets may have; ``shortage`` is where connects wait for
    descriptors.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect_timeout: float,
        idle_timeout: float,
        tls: Callable[[Target], ssl.SSLContext],
        policy: AccessPolicy,
        shortage: Shortage,
    ) -> None:
        self.loop = loop
        self.shortage = shortage
        self.connecting = 0
        """Connections that are being opened, or wait for a descriptor."""
        self.connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._tls = tls
        self._policy = policy
        self._hosts: dict[tuple[object, ...], HostPool] = {}

    def host(self, target: Target, server_name: str) -> HostPool:
        """Return the pool of a target; ``server_name`` is what its certificate is checked against."""
        name = ""
        key: tuple[object, ...] = (target.host, target.port, target.untrusted)
        if target.ssl:
            name = target.host if target.trust_connect_host else server_name
            key += (name, target.insecure, target.client_cert, target.client_key)
        pool = self._hosts.get(key)
        if pool is None:
            if len(self._hosts) > 4096:
                # Names come from clients' Host headers when TLS is checked against them.
                self._hosts = {k: p for k, p in self._hosts.items() if p._idle or p._connecting}
            tls = self._tls(target) if target.ssl else None
            pool = self._hosts[key] = HostPool(self, target, tls, name)
        return pool

    async def allowed_address(self, host: str, port: int) -> str:
        """Return an address of ``host`` that policy allows. Raises Blocked if there is none, OSError if it has none."""
        found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for _, _, _, _, address in found:
            if self._policy.allows(str(address[0])):
                return str(address[0])
        raise Blocked(f"{host} is at an address that untrusted targets may not have")

    def spare(self) -> None:
        """Close an idle connection, if there is one: its descriptor is needed."""
        for pool in self._hosts.values():
            if pool.drop_one():
                return

    def sweep(self, now: float) -> None:
        """Close connections that were idle too long."""
        for pool in self._hosts.values():
            pool.sweep(now - self._idle_timeout)

    def close(self) -> None:
        """Close all idle connections."""
        for pool in self._hosts.values():
            pool.close()
