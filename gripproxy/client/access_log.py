"""Log lines about clients: one for each request, hold and handshake, and one for each client that misbehaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gripproxy.backend.forwarder import Forwarder
from gripproxy.client.peer import peer_text
from gripproxy.config import Config
from gripproxy.delivery.channel import Wanted
from gripproxy.http1.request_parser import Request
from gripproxy.process.log import PRINTABLE_MAX, log
from gripproxy.routing.route import Route

__all__ = ["AccessLog", "ClientEvents", "Connected", "Logged", "LoggedRequest"]


class Connected(Protocol):
    """A client with a transport."""

    @property
    def transport(self) -> Any:
        """The transport; None before and after its connection."""


class Logged(Protocol):
    """A request or handshake, as a line describes it."""

    @property
    def request(self) -> Request:
        """The client's request."""

    @property
    def route(self) -> Route | None:
        """The route; None if none was found."""

    @property
    def target_index(self) -> int:
        """Index of the target that was asked last."""


class LoggedRequest(Logged, Protocol):
    """A request, as a line describes it."""

    @property
    def forwarder(self) -> Forwarder | None:
        """The writer of the request to the backend, which has its target's name."""

    @property
    def began(self) -> float:
        """Time in seconds when the request began."""

    @property
    def client(self) -> Any:
        """The client: ``secure``, ``transport``."""


class AccessLog:
    """A line for each request, hold and handshake.

    Args:
        config: The configuration.
        clock: Time in seconds.
        connection_id: Returns the id of a request outside the process by its serial.
    """

    __slots__ = ("_clock", "_connection_id", "_plain", "_proxy")

    def __init__(self, config: Config, clock: Callable[[], float], connection_id: Callable[[int], bytes]) -> None:
        self._proxy = config.proxy
        self._clock = clock
        self._connection_id = connection_id
        self._plain = not (config.proxy.log_from or config.proxy.log_user_agent)

    def request(self, exchange: LoggedRequest, code: int, size: int) -> None:
        """Log a request that is over.

        Args:
            exchange: The request.
            code: Status of the response; 0: the client has left.
            size: Bytes of the response's body.
        """
        request, client = exchange.request, exchange.client
        head, forwarder = request.head, exchange.forwarder
        host = head.loggable if head is not None else request.host or b"localhost"
        if host and code and self._plain and forwarder is not None and forwarder.loggable:
            target = request.target
            if forwarder.route.secret_query:
                target = forwarder.route.public(target)
            line = b"%b http%b://%b%b -> %b %d %d bytes %d ms\n" % (
                request.method,
                b"s" if client.secure else b"",
                host,
                target,
                forwarder.loggable,
                code,
                size,
                (self._clock() - exchange.began) * 1000,
            )
            # The bytes of a cached head, and of its target, were checked before.
            printable = head is not None or (line.isascii() and line[:-1].decode("ascii").isprintable())
            if printable and len(line) < PRINTABLE_MAX:
                log.printable(line)
                return
        route = exchange.route
        goal = route.targets[exchange.target_index] if route is not None else "-"
        extra = ""
        if self._proxy.log_from:
            extra += f" from={peer_text(client.transport)}"
        if self._proxy.log_user_agent:
            agent = next((value for name, value in request.headers if name.lower() == b"user-agent"), b"-")
            extra += f" agent={agent.decode('latin-1')!r}"
        log.info(
            "%s http%s://%s%s -> %s %s %d bytes %d ms%s",
            request.method,
            "s" if client.secure else "",
            request.host or b"localhost",
            request.target if route is None else route.public(request.target),
            goal,
            code or "client left",
            size,
            (self._clock() - exchange.began) * 1000,
            extra,
        )

    def hold(
        self, client: Connected, request: Request, route: Route, serial: int, mode: str, wanted: list[Wanted]
    ) -> None:
        """Log a hold that begins.

        Args:
            client: The client.
            request: Its request.
            route: The request's route.
            serial: Serial of the request.
            mode: The mode, as the line names it.
            wanted: The channels.
        """
        if log.level >= 2:
            log.info(
                "%s %s: hold %s on %s for %s as %s",
                request.method,
                route.public(request.target),
                mode,
                b", ".join(want[0] for want in wanted) or b"no channel",
                peer_text(client.transport),
                self._connection_id(serial),
            )

    def left(self, serial: int) -> None:
        """Log a held client that has left; ``serial``: of its request."""
        if log.level >= 3:
            log.debug("%s left", self._connection_id(serial))

    def handshake(self, handshake: Logged, outcome: str) -> None:
        """Log a WebSocket handshake; ``outcome``: the end of the line."""
        route, request = handshake.route, handshake.request
        target = route.targets[handshake.target_index] if route is not None else "-"
        shown = request.target if route is None else route.public(request.target)
        log.info("WebSocket %s%s -> %s %s", request.host or b"localhost", shown, target, outcome)


class ClientEvents:
    """Misbehaving and refused clients: a line for each, some at a limited rate, and counters.

    Args:
        config: The configuration.
        clock: Time in seconds.
    """

    __slots__ = (
        "_buffers_max", "_clock", "_logged", "bad", "dropped", "faults", "lost", "overfull_cuts", "slow", "stalls",
        "turned_away",
    )  # fmt: skip

    def __init__(self, config: Config, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buffers_max = config.proxy.buffers_max
        self._logged: dict[str, float] = {}
        self.bad = 0
        """Clients disconnected for bytes that break the protocol, or for silence."""
        self.slow = 0
        """Clients cut off because they did not read."""
        self.turned_away = 0
        """Clients refused because too many were connected, or the process was stopping."""
        self.dropped = 0
        """Deliveries not made because too many waited (``message_hwm``)."""
        self.lost = 0
        """Times the handler dropped this worker's queue."""
        self.stalls = {"client": 0, "backend": 0}
        """WebSockets dropped because one side took no byte of those that waited for it, by that side."""
        self.overfull_cuts = 0
        """Clients cut off because too much waited in the worker."""
        self.faults = 0
        """Control messages and subscriptions of WebSockets' backends that were ignored."""

    def bad_client(self, client: Connected, why: str) -> None:
        """Count and log a client that is disconnected; ``why``: bytes that break the protocol, or silence."""
        self.bad += 1
        log.info("client %s: %s", peer_text(client.transport), why)

    def bad_socket(self, client: Connected, why: str) -> None:
        """Count and log a WebSocket client that breaks the protocol; ``why``: the violation."""
        self.bad += 1
        log.info("WebSocket client %s: %s", peer_text(client.transport), why)

    def dropped_socket(self, client: Connected, why: str) -> None:
        """Log that ``client``, a WebSocket, is dropped without a close; ``why``: the reason."""
        log.info("WebSocket client %s dropped: %s", peer_text(client.transport), why)

    def slow_client(self, client: Connected, why: str) -> None:
        """Count and log a client that is cut off because it does not read; ``why``: the bytes that wait."""
        self.slow += 1
        log.warning("slow client %s cut off: %s", peer_text(client.transport), why)

    def stalled(self, client: Connected, side: str, waiting: int, seconds: str) -> None:
        """Count a WebSocket that is dropped because one side stalls; at most one line a second for each side.

        Args:
            client: the WebSocket.
            side: ``client`` or ``backend``: the one that does not read.
            waiting: bytes that wait for it.
            seconds: how long it has taken nothing.
        """
        self.stalls[side] += 1
        if self._due(f"stalled {side}"):
            log.warning(
                "WebSocket stalled, dropped: client=%s side=%s waiting=%d seconds=%s key=ws_stall_timeout dropped=%d",
                peer_text(client.transport),
                side,
                waiting,
                seconds,
                self.stalls[side],
            )

    def overfull(self, client: Connected, size: int, total: int, _: str = "") -> None:
        """Count a client that is cut off because too much waits in the worker; at most one line a second.

        Args:
            client: the client.
            size: bytes that wait for it, or for its backend.
            total: bytes that wait in the worker.
        """
        self.overfull_cuts += 1
        if self._due("overfull"):
            log.warning(
                "buffers full, client cut off: client=%s waiting=%d total=%d buffers_max=%d cut=%d",
                peer_text(client.transport),
                size,
                total,
                self._buffers_max,
                self.overfull_cuts,
            )

    def refused(self, client: Connected, why: str, key: str) -> None:
        """Count a client that is refused because of a limit; at most one line a second.

        Args:
            client: the client.
            why: the reason.
            key: the configuration key of the limit.
        """
        self.turned_away += 1
        if self._due("refused"):
            log.warning(
                "client %s refused: %s (%s; %d refused so far)", peer_text(client.transport), why, key, self.turned_away
            )

    def ignored(self, client: Connected, why: str) -> None:
        """Count a fault of a WebSocket's backend that is ignored; at most one line a second.

        Args:
            client: the WebSocket.
            why: the fault.
        """
        self.faults += 1
        level = log.warning if self._due("ignored") else log.debug
        level("WebSocket client %s: backend: %s (%d faults so far)", peer_text(client.transport), why, self.faults)

    def item_refused(self, channel: bytes, reason: str, sessions: int) -> None:
        """Log an item that exceeded a bound; called at a limited rate for each channel and reason.

        Args:
            channel: its channel; empty for several.
            reason: the bound.
            sessions: the number of sessions that did not get it.
        """
        name = channel.decode("utf-8", "replace") if channel else "(several)"
        log.warning("item refused: channel=%s reason=%s sessions=%d", name, reason, sessions)

    def deliveries_dropped(self, count: int) -> None:
        """Count ``count`` deliveries dropped because too many waited; one line for the first of them."""
        if not self.dropped:
            log.warning("deliveries dropped: more than message_hwm, or than 32 MiB, wait")
        self.dropped += count

    def items_lost(self) -> None:
        """Count and log that the handler dropped this worker's queue."""
        self.lost += 1
        log.error("items were lost on the way from the handler: this worker does not keep up")

    def totals(self) -> dict[str, int]:
        """Return the counters since the process began, by the name under which the handler adds them up."""
        return {
            "connections-refused": self.turned_away,
            "bad-clients": self.bad,
            "slow-clients": self.slow,
            "stalled-client": self.stalls["client"],
            "stalled-backend": self.stalls["backend"],
            "buffer-cuts": self.overfull_cuts,
            "dropped-message-hwm": self.dropped,
            "lost": self.lost,
            "ignored-control": self.faults,
        }

    def _due(self, kind: str) -> bool:
        """Return whether the last line of this kind is more than a second old; the caller then writes one."""
        now = self._clock()
        if now <= self._logged.get(kind, -1000.0) + 1:
            return False
        self._logged[kind] = now
        return True
