"""Pool of connections to backends: opening, reuse, idle time, and requests that wait for a descriptor.

Only opening a connection is a coroutine.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final

from gripproxy.backend.connect_queue import ConnectQueue
from gripproxy.backend.connection import BackendConnection, Sink, TargetPool
from gripproxy.backend.descriptor_shortage import DescriptorShortage
from gripproxy.backend.outages import (
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
from gripproxy.backend.test_target import TestPool
from gripproxy.config import AccessPolicy
from gripproxy.grip.errors import BackendError
from gripproxy.routing.route import Target

__all__ = ["HOSTS_MAX", "BackendPool", "Blocked", "HostPool", "kind_of"]

HOSTS_MAX: Final = 4096
"""Pools that are kept although they are empty: clients' Host headers name the hosts that TLS is checked against."""


AWAY_PAUSE: Final = 0.05
"""Seconds between two connects of a request to a target that is away."""

AWAY_RATE: Final = 2000
"""Connects per second to such a target, of all requests that wait for it."""

FULL_PAUSE: Final = 0.02
"""Seconds until a connect is tried again that has found the queue of the listening socket full."""

QUEUE_PAUSE: Final = 0.005
"""Seconds between two looks at the requests that wait for a connection to a local target."""


class Blocked(BackendError, OSError):
    """The target's address is barred to untrusted targets (``policy_allow``, ``policy_deny``)."""


def kind_of(error: BaseException) -> str:
    """Return the kind of a failure to connect, one of ``gripproxy.grip.stats_format.FAILURES``.

    Args:
        error: The exception; a TimeoutError if ``connect_timeout`` is over.
    """
    if isinstance(error, Blocked):
        return BLOCKED
    if isinstance(error, ConnectionRefusedError | FileNotFoundError):
        # FileNotFoundError: the backend has not made its Unix socket yet, or has removed it.
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


class HostPool:
    """Connections to one address with one configuration of TLS.

    Args:
        owner: The pool of all targets.
        target: The target.
        tls: Configuration of TLS; None for plain TCP.
        server_name: Name that the certificate is checked against.
    """

    __slots__ = (
        "_away_since",
        "_connecting",
        "_idle",
        "_others",
        "_owner",
        "_server_name",
        "_starved",
        "_tls",
        "outage",
        "target",
    )

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
        """Sinks in ``_connecting`` that wait for a descriptor; True if only a new connection will do."""
        self._away_since = 0.0
        """Time of the first of the latest refusals, in seconds of the loop's clock; 0 after a connection."""
        self.outage: Outage | None = None
        """Counter of the target's failures, if there were any (``gripproxy.backend.outages.Troubled``)."""

    def acquire(self, sink: Sink, fresh: bool = False) -> None:
        """Call ``sink.on_connected``: now with an idle connection, later with a new one.

        Args:
            sink: The request.
            fresh: Only a new connection will do.
        """
        if not fresh and self._idle:
            # The one used last, so that the others reach their idle time.
            connection, _ = self._idle.popitem()
            connection.sink = sink
            sink.on_connected(connection)
            return
        self._begin(sink, fresh)

    def _begin(self, sink: Sink, fresh: bool) -> None:
        """Begin to open a connection."""
        name = f"connect {self.target}"
        self._connecting[sink] = self._owner.loop.create_task(self._connect(sink, fresh), name=name)
        self._owner.connecting += 1

    def _made(self, connection: BackendConnection) -> None:
        """Note a new ``connection``."""

    def _not_made(self) -> None:
        """Note that a connection that was being opened is none."""

    def forget(self, sink: Sink) -> None:
        """Stop opening a connection for ``sink``, which is not called any more."""
        task = self._over(sink)
        if task is not None:
            self._not_made()
            task.cancel()

    def _over(self, sink: Sink) -> asyncio.Task[None] | None:
        """Forget that a connection is being opened for the sink; return the task."""
        task = self._connecting.pop(sink, None)
        if task is not None:
            self._owner.connecting -= 1
            self._starved.pop(sink, None)
        return task

    @property
    def used(self) -> bool:
        """True while a connection is idle or being opened."""
        return bool(self._idle or self._connecting)

    def put(self, connection: BackendConnection) -> None:
        """Keep ``connection``, which is idle; while descriptors are short, give it to a waiting sink or close it."""
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
        """Close the connection that was idle longest.

        Returns:
            Whether there was one.
        """
        connection = next(iter(self._idle), None)
        if connection is None:
            return False
        del self._idle[connection]
        connection.abort()
        return True

    def discard(self, connection: BackendConnection) -> None:
        """Forget ``connection``, which is closing."""
        self._idle.pop(connection, None)

    def sweep(self, before: float) -> None:
        """Close connections that have been idle since ``before``, in seconds of the loop's clock."""
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
                connection = await self._reached(sink, fresh)
        except TimeoutError:
            starved = sink in self._starved
            self._over(sink)
            self._not_made()
            why = f"no {'descriptor' if starved else 'connection'} within {timeout:g} s"
            sink.on_connect_failed(OSError(errno.EMFILE, why) if starved else TimeoutError(why))
            return
        except (OSError, ssl.SSLError, ssl.CertificateError, UnicodeError) as error:
            self._over(sink)
            self._not_made()
            sink.on_connect_failed(error)
            return
        self._over(sink)
        self._made(connection)
        connection.sink = sink
        sink.on_connected(connection)

    async def _reached(self, sink: Sink, fresh: bool) -> BackendConnection:
        """Return a new connection; one that is refused is tried again while the target may be away.

        After ``away_wait`` further requests fail at the first refusal, until a connection is made.
        """
        loop, wait = self._owner.loop, self.target.away_wait
        while True:
            try:
                connection = await self._opened(sink, fresh)
            except (ConnectionRefusedError, FileNotFoundError):
                now = loop.time()
                if not self._away_since:
                    self._away_since = now
                left = self._away_since + wait - now
                if left <= 0:
                    raise
                # The more requests wait, the more seldom each of them tries.
                await asyncio.sleep(min(left, max(AWAY_PAUSE, len(self._connecting) / AWAY_RATE)))
            except BlockingIOError:
                # A Unix socket whose queue is full; TCP would try again by itself.
                await asyncio.sleep(FULL_PAUSE)
            else:
                self._away_since = 0.0
                return connection

    async def _opened(self, sink: Sink, fresh: bool) -> BackendConnection:
        """Return a new connection, as soon as there is a descriptor for it."""
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
        target, tls, loop = self.target, self._tls, self._owner.loop
        server_name = self._server_name if tls is not None else None
        if target.kind == "unix":
            # The operator has named the path: the access policy is about addresses.
            _, connection = await loop.create_unix_connection(
                lambda: BackendConnection(self), target.path, ssl=tls, server_hostname=server_name
            )
            return connection
        host = target.host
        if target.untrusted:
            host = await self._owner.allowed_address(host, target.port)
        _, connection = await loop.create_connection(
            lambda: BackendConnection(self), host, target.port, ssl=tls, server_hostname=server_name
        )
        return connection


class LocalPool(HostPool):
    """Connections to one Unix socket; requests beyond its pace wait for one.

    Args:
        owner: The pool of all targets.
        target: The target.
        tls: Configuration of TLS; None for plain connections.
        server_name: Name that the certificate is checked against.
    """

    __slots__ = ("_counted", "_queue", "_ticking")

    def __init__(self, owner: BackendPool, target: Target, tls: ssl.SSLContext | None, server_name: str) -> None:
        super().__init__(owner, target, tls, server_name)
        most = max(1, target.connections_max // owner.workers) if target.connections_max else 0
        self._queue = ConnectQueue(most, owner.connect_timeout)
        self._counted: set[BackendConnection] = set()
        """Connections that the queue counts."""
        self._ticking = False

    def acquire(self, sink: Sink, fresh: bool = False) -> None:
        """Call ``sink.on_connected``: now with an idle connection, later with one that was released, or a new one.

        Args:
            sink: The request.
            fresh: Only a new connection will do.
        """
        queue = self._queue
        if self._idle and not fresh:
            super().acquire(sink)
            return
        now = self._owner.loop.time()
        if not queue and queue.open(now):
            self._begin(sink, fresh)
            return
        queue.add(sink, now, fresh=fresh, changing=sink.changing)
        self._tick_later()

    def forget(self, sink: Sink) -> None:
        """Stop waiting, or opening a connection, for ``sink``, which is not called any more."""
        if not self._queue.forget(sink):
            super().forget(sink)

    @property
    def used(self) -> bool:
        """True while a connection is idle, waited for, or being opened."""
        return super().used or bool(self._queue)

    def put(self, connection: BackendConnection) -> None:
        """Give ``connection``, which is idle, to a sink that waits, or keep it."""
        queue = self._queue
        if queue:
            queue.released()
            waiting = queue.take(reused=True)
            if waiting is not None:
                connection.sink = waiting[0]
                waiting[0].on_connected(connection)
                return
        super().put(connection)

    def discard(self, connection: BackendConnection) -> None:
        """Forget ``connection``, which is closing, or is handed over."""
        super().discard(connection)
        if connection in self._counted:
            self._counted.remove(connection)
            self._queue.closed()

    def _made(self, connection: BackendConnection) -> None:
        self._counted.add(connection)

    def _not_made(self) -> None:
        self._queue.closed()

    def _tick_later(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._owner.loop.call_later(QUEUE_PAUSE, self._tick)

    def _tick(self) -> None:
        """Open connections for requests that wait, and end those that have waited too long."""
        self._ticking = False
        queue, now = self._queue, self._owner.loop.time()
        try:
            while (sink := queue.expired(now)) is not None:
                sink.on_connect_failed(TimeoutError(f"no connection within {self._owner.connect_timeout:g} s"))
            while queue and queue.open(now):
                waiting = queue.take(reused=False)
                assert waiting is not None
                self._begin(*waiting)
        finally:
            # A fault of one request keeps none of the others waiting.
            if queue:
                self._tick_later()


class BackendPool:
    """All backend connections of a worker.

    Args:
        loop: The event loop.
        connect_timeout: Seconds until a connect fails.
        idle_timeout: Seconds until an idle connection is closed.
        tls: Makes the TLS context of a target.
        policy: Resolved addresses that untrusted targets may have.
        shortage: Queue of connects that wait for descriptors.
        workers: Number of workers, which share ``Target.connections_max``.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect_timeout: float,
        idle_timeout: float,
        tls: Callable[[Target], ssl.SSLContext],
        policy: AccessPolicy,
        shortage: DescriptorShortage,
        workers: int = 1,
    ) -> None:
        self.loop = loop
        self.shortage = shortage
        self.workers = workers
        self.connecting = 0
        """Connections that are being opened, or wait for a descriptor."""
        self.connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._tls = tls
        self._policy = policy
        self._hosts: dict[tuple[object, ...], HostPool] = {}

    def host(self, target: Target, server_name: str) -> TargetPool:
        """Return the pool of ``target``; ``server_name``: the name of the request, for its certificate."""
        name = ""
        key: tuple[object, ...] = (target.host, target.port, target.path, target.untrusted, target.away_wait)
        if target.ssl:
            name = target.host if target.trust_connect_host else server_name
            key += (name, target.insecure, target.client_cert, target.client_key)
        pool = self._hosts.get(key)
        if pool is None:
            if target.kind == "test":
                return TestPool(target, self.loop)
            if len(self._hosts) > HOSTS_MAX:
                self._hosts = {k: p for k, p in self._hosts.items() if p.used}
            tls = self._tls(target) if target.ssl else None
            kind = LocalPool if target.kind == "unix" else HostPool
            pool = self._hosts[key] = kind(self, target, tls, name)
        return pool

    async def allowed_address(self, host: str, port: int) -> str:
        """Return an address of a host that policy allows.

        Args:
            host: Name or address.
            port: Port.

        Raises:
            Blocked: All of its addresses are barred.
            OSError: It has no address.
        """
        found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for _, _, _, _, address in found:
            if self._policy.allows(str(address[0])):
                return str(address[0])
        raise Blocked(f"{host} is at an address that untrusted targets may not have")

    def spare(self) -> None:
        """Close one idle connection, to free its descriptor."""
        for pool in self._hosts.values():
            if pool.drop_one():
                return

    def sweep(self, now: float) -> None:
        """Close connections idle for more than ``idle_timeout``; ``now`` in seconds of the loop's clock."""
        for pool in self._hosts.values():
            pool.sweep(now - self._idle_timeout)

    def close(self) -> None:
        """Close all idle connections."""
        for pool in self._hosts.values():
            pool.close()
