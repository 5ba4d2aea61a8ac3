"""The registry: connections, requests in flight, and sessions of one worker."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import chain
from math import ceil
from typing import Protocol, cast

from gripproxy.config import Config
from gripproxy.delivery.send_buffers import Peer
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from gripproxy.sessions.websocket import WebSocketSession
from gripproxy.stats.connection_events import Key, Present, Reported
from gripproxy.stats.counters import UNCOUNTED, RouteCounters
from gripproxy.stats.worker_stats import SERIAL_STEP, WorkerStats

__all__ = ["ActiveConnection", "Ending", "InFlight", "Registry"]


class InFlight(Reported, Protocol):
    """A request or handshake that is with a backend."""

    @property
    def figures(self) -> RouteCounters:
        """Counters of its route; UNCOUNTED until a route is found."""


class Ending(Protocol):
    """A client that can be asked to end."""

    def drain(self) -> None:
        """Finish the request in flight, end a hold, take no new request."""


class ActiveConnection(Peer, Ending, Protocol):
    """A client's connection that is not held."""

    @property
    def exchange(self) -> InFlight | None:
        """Its request in flight, or handshake."""

    def sweep(self, now: float) -> None:
        """End a request that has taken too long; called about once a second, ``now`` in seconds."""

    def abort(self) -> None:
        """Drop the connection."""


class HeldClient(Ending, Protocol):
    """A client whose request is held, or that is a WebSocket."""

    def logical(self) -> tuple[bytes, bool]:
        """Return the address by which the statistics know the client, and whether it has TLS."""


class Registry:
    """Clients of one worker, and the numbers that are limited.

    Args:
        config: The configuration; limits are shared evenly by its workers.
        stats: Counters.
        connection_id: Returns the id of a request outside the process by its serial.
    """

    __slots__ = (
        "_serial", "_stats", "accepted", "active", "connection_id", "connections", "draining", "held", "in_flight",
        "max_connections", "max_requests", "requests", "retiring", "sockets", "upgraded",
    )  # fmt: skip

    def __init__(self, config: Config, stats: WorkerStats, connection_id: Callable[[int], bytes]) -> None:
        workers = max(1, config.proxy.workers)
        self._stats = stats
        self._serial = 0
        self.connection_id = connection_id
        self.connections = 0
        """Clients connected now."""
        self.accepted = 0
        """Clients that have connected."""
        self.upgraded = 0
        """WebSockets that were opened."""
        self.requests = 0
        """Requests and handshakes so far."""
        self.in_flight = 0
        """Requests and handshakes that are with a backend; held ones are not."""
        self.max_connections = ceil(config.runner.client_maxconn / workers)
        self.max_requests = ceil(config.proxy.max_open_requests / workers)
        self.active: dict[ActiveConnection, None] = {}
        """Connections that are not held: those the sweep looks at."""
        self.held: dict[int, ResponseHold | StreamHold] = {}
        """Held requests by serial."""
        self.sockets: dict[bytes, WebSocketSession] = {}
        """WebSockets by connection id."""
        self.retiring = False
        """A successor serves: no new clients come, and each request is the last one of its connection."""
        self.draining = False
        """The process ends: no request begins any more."""

    def next_serial(self) -> int:
        """Return a number for a new request, unique in this process; its low bits are the second of the minute."""
        self._serial += SERIAL_STEP
        return self._serial | self._stats.phase

    def retire(self) -> None:
        """Make each request the last one of its connection: a successor serves."""
        self.retiring = True

    def drain(self) -> None:
        """Begin no more requests: the process ends."""
        self.retiring = self.draining = True

    # --- sessions

    def held_began(self, hold: ResponseHold | StreamHold) -> None:
        """Add ``hold``, a request that is held from now on."""
        self.held[hold.serial] = hold
        self._stats.held(hold.serial, hold.mode)

    def held_ended(self, hold: ResponseHold | StreamHold, over: bool = True) -> None:
        """Remove a hold.

        Args:
            hold: The hold.
            over: The request is over too; else it is repeated.
        """
        self.held.pop(hold.serial, None)
        self._stats.holding[hold.mode] -= 1
        if over:
            self._stats.left(hold.serial, hold.serial, hold.rate_key)

    def request_over(self, hold: ResponseHold | StreamHold) -> None:
        """Count the end of the request of ``hold``."""
        self._stats.left(hold.serial, hold.serial, hold.rate_key)

    def socket_began(self, session: WebSocketSession) -> None:
        """Add the WebSocket of ``session``."""
        self.connections += 1
        self.upgraded += 1
        self.sockets[session.cid] = session

    def socket_ended(self, session: WebSocketSession | None) -> None:
        """Remove the connection of a WebSocket, and its session if that is not over already."""
        self.connections -= 1
        if session is not None and self.sockets.pop(session.cid, None) is not None:
            self._stats.left(session.cid, session.serial, session.rate_key)

    # --- all clients

    def peers(self) -> list[Peer]:
        """Return all clients."""
        sessions = chain(self.held.values(), self.sockets.values())
        return [*self.active, *(cast(Peer, session.outlet) for session in sessions)]

    def present(self, known: Container[Key]) -> Iterator[tuple[Key, Present]]:
        """Yield key and event of each open connection (docs/grip.md §9); those that end meanwhile are left out.

        Args:
            known: Keys of connections that are left out.
        """
        for client in list(self.active):
            exchange = client.exchange
            if exchange is not None and exchange.figures is not UNCOUNTED and exchange.key not in known:
                yield exchange.key, exchange.present(exchange.figures.route)
        for hold in list(self.held.values()):
            if not hold.over and hold.serial not in known:
                logical, secure = cast(HeldClient, hold.outlet).logical()
                yield hold.serial, (self.connection_id(hold.serial), hold.rate_key, False, logical, secure)
        for session in list(self.sockets.values()):
            if not session.over and session.cid not in known:
                logical, secure = cast(HeldClient, session.outlet).logical()
                yield session.cid, (session.cid, session.rate_key, True, logical, secure)
