"""Connections to callbacks: opened to pinned addresses, reused, closed.

A connection is made to an address that was judged, never to a name; the certificate of its peer is that of the name.
Only opening one is a coroutine.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import partial

from griphub.callbacks.idle_connections import IdleConnections, Place
from griphub.callbacks.outcome import is_shortage
from griphub.callbacks.request_limits import RequestLimits
from gripproxy.backend.connection import BackendConnection, Sink, WholeSink
from gripproxy.backend.outages import Outage
from gripproxy.process.log import log
from gripproxy.routing.route import Target

__all__ = ["CallbackConnection", "Connections"]


class PlacePool:
    """Pool of one place, as its connections see it; see ``TargetPool``.

    Args:
        connections: all connections.
        place: where those of this pool lead.

    Attributes:
        outage: always None: owners learn of failures, the log does not.
    """

    __slots__ = ("_connections", "_place", "outage")

    def __init__(self, connections: Connections, place: Place) -> None:
        self._connections = connections
        self._place = place
        self.outage: Outage | None = None

    @property
    def target(self) -> Target:
        """The place as a target."""
        _, address, port, secure = self._place
        return Target("host", address, port, ssl=secure)

    def acquire(self, sink: Sink, fresh: bool = False) -> None:
        """Call ``sink`` with a connection, a new one if ``fresh``, now or later."""
        self._connections.acquire(self._place, sink, fresh=fresh)

    def forget(self, sink: Sink) -> None:
        """Stop opening a connection for ``sink``."""
        self._connections.forget(sink)

    def put(self, connection: BackendConnection) -> None:
        """Keep ``connection`` for the next request."""
        self._connections.put(self._place, connection)

    def opened(self, connection: BackendConnection) -> None:
        """Note that ``connection`` is open."""
        self._connections.opened(connection)

    def discard(self, connection: BackendConnection) -> None:
        """Note that ``connection`` is closed."""
        self._connections.discard(connection)


class CallbackConnection(BackendConnection):
    """Connection to a callback.

    Args:
        pool: that of its place.

    Attributes:
        received: bytes received since the last request was sent.
    """

    __slots__ = ("_place_pool", "received")

    def __init__(self, pool: PlacePool) -> None:
        super().__init__(pool)
        self._place_pool = pool
        self.received = 0

    def send(self, data: bytes, head: bool, upgrade: bool = False, whole: WholeSink | None = None) -> None:
        self.received = 0
        super().send(data, head, upgrade, whole)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._place_pool.opened(self)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)


class Connections:
    """All connections to callbacks.

    Args:
        limits: seconds for opening one, and bounds of the idle ones.
        tls: configuration of TLS.
        loop: the event loop.
    """

    __slots__ = ("_idle", "_limits", "_loop", "_open", "_opening", "_tls")

    def __init__(self, limits: RequestLimits, tls: ssl.SSLContext, loop: asyncio.AbstractEventLoop) -> None:
        self._limits = limits
        self._tls = tls
        self._loop = loop
        self._idle: IdleConnections[BackendConnection] = IdleConnections(limits)
        self._open: set[BackendConnection] = set()
        self._opening: dict[Sink, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        """Return the number of connections, those that are being opened too."""
        return len(self._open) + len(self._opening)

    def acquire(self, place: Place, sink: Sink, *, fresh: bool = False) -> None:
        """Call ``sink.on_connected``, now with an idle connection or later with a new one, or ``on_connect_failed``.

        Args:
            place: where it leads.
            sink: the request.
            fresh: only a new connection will do.
        """
        connection = None if fresh else self._idle.take(place)
        if connection is not None:
            connection.sink = sink
            sink.on_connected(connection)
            return
        self._opening[sink] = self._loop.create_task(self._connect(place, sink), name=f"connect to {place.address}")

    def forget(self, sink: Sink) -> None:
        """Stop opening a connection for ``sink``, which is not called any more."""
        task = self._opening.pop(sink, None)
        if task is not None:
            task.cancel()

    def release(self, connection: BackendConnection) -> None:
        """Keep a connection after a complete answer, or close it.

        Args:
            connection: without a request from now on. One that may not be kept, or has not sent all of its request, is
                closed without further ado: its peer could take any time to read the remainder.
        """
        if connection.buffered():
            connection.abort()
            return
        connection.release()
        if connection not in self._idle:
            connection.abort()

    def put(self, place: Place, connection: BackendConnection) -> None:
        """Keep a connection for the next request, and close another if they are too many.

        Args:
            place: where it leads.
            connection: without a request.
        """
        other = self._idle.put(place, connection, self._loop.time())
        if other is not None:
            other.abort()

    def opened(self, connection: BackendConnection) -> None:
        """Note that ``connection`` is open."""
        self._open.add(connection)

    def discard(self, connection: BackendConnection) -> None:
        """Note that ``connection`` is closed."""
        self._idle.remove(connection)
        self._open.discard(connection)

    def sweep(self, now: float) -> None:
        """Close connections that have been idle for too long.

        Args:
            now: time of the loop in seconds.
        """
        for connection in self._idle.over(now):
            connection.abort()

    def close(self) -> None:
        """Close all connections; no request is called any more."""
        for task in self._opening.values():
            task.cancel()
        self._opening.clear()
        for connection in list(self._open):
            connection.abort()

    async def _connect(self, place: Place, sink: Sink) -> None:
        error: Exception | None = None
        connection: CallbackConnection | None = None
        try:
            async with asyncio.timeout(self._limits.connect):
                _, connection = await self._loop.create_connection(
                    partial(CallbackConnection, PlacePool(self, place)),
                    place.address,
                    place.port,
                    ssl=self._tls if place.secure else None,
                    server_hostname=place.host if place.secure else None,
                )
        except TimeoutError:
            error = TimeoutError(f"no connection within {self._limits.connect:g} s")
        except (OSError, ssl.CertificateError, UnicodeError) as failure:
            error = failure
            if is_shortage(failure) and (oldest := self._idle.oldest()) is not None:
                oldest.abort()
        except Exception as failure:  # noqa: BLE001 - it is logged; without an outcome the request would wait for its end
            log.exception("unexpected error of a connection", address=place.address, port=place.port)
            error = failure
        self._opening.pop(sink, None)
        if connection is not None and connection in self._open:
            connection.sink = sink
            sink.on_connected(connection)
        else:
            sink.on_connect_failed(error or ConnectionResetError("closed as soon as it was open"))
