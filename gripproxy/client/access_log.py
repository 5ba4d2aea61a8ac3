"""Log lines about clients: one for each request, hold and handshake, and one for each client that misbehaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from gripproxy.backend.forwarder import Forwarder
from gripproxy.backend.trace_headers import FORMATTED, NO_IDS, TraceHeaders
from gripproxy.client.peer import peer_text
from gripproxy.config import Config
from gripproxy.delivery.channel import Wanted
from gripproxy.http1.request_parser import Request
from gripproxy.process.log import DEBUG, INFO, PRINTABLE_MAX, Log, log
from gripproxy.routing.route import Route

__all__ = ["AccessLog", "ClientEvents", "Connected", "Logged", "LoggedRequest"]

_LINE: Final = b"request: method=%b scheme=http%b host=%b path=%b status=%d bytes=%d ms=%d %b connection=%b\n"
"""Line of a request. In place of the eighth value stand route and target, in that of the ninth all ids."""

FAILED: Final = 400
"""Least status of the requests whose lines ``access_log_sample`` does not leave out."""


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

    @property
    def serial(self) -> int:
        """Serial of the request in this process."""


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
        trace: Maker of the requests' ids.
        target: The log that the lines of requests go to.
        own: True if that is a log of their own, which has these lines at any ``log_level``.
    """

    __slots__ = (
        "_clock", "_connection_id", "_ids", "_left_out", "_own", "_plain", "_proxy", "_sample", "_target", "_trace",
    )  # fmt: skip

    def __init__(
        self,
        config: Config,
        clock: Callable[[], float],
        connection_id: Callable[[int], bytes],
        trace: TraceHeaders,
        target: Log = log,
        own: bool = False,
    ) -> None:
        self._proxy = config.proxy
        self._clock = clock
        self._connection_id = connection_id
        self._plain = not (config.proxy.log_from or config.proxy.log_user_agent)
        self._trace = trace
        self._target = target
        self._own = own
        self._sample = config.runner.access_log_sample
        self._left_out = 0
        # The id of a connection ends with its serial in hex.
        start = connection_id(0)[:-1].replace(b"%", b"%%")
        self._ids = start + b"%b" + trace.text_format if trace.text_format else b""

    def request(self, exchange: LoggedRequest, code: int, size: int) -> None:
        """Log a request that is over, unless ``log_level`` or ``access_log_sample`` leave it out.

        Args:
            exchange: The request.
            code: Status of the response; 0: the client has left.
            size: Bytes of the response's body.
        """
        route, target = exchange.route, self._target
        level = target.level if route is None or route.log_level is None else route.log_level
        if level < INFO and not self._own:
            return
        if self._sample > 1 and 0 < code < FAILED:
            self._left_out += 1
            if self._left_out < self._sample:
                return
            self._left_out = 0
        request, client, serial = exchange.request, exchange.client, exchange.serial
        head, forwarder = request.head, exchange.forwarder
        host = head.loggable if head is not None else request.host or b"localhost"
        milliseconds = (self._clock() - exchange.began) * 1000
        if host and code and self._plain and not target.json and forwarder is not None and forwarder.loggable:
            if head is not None and head.trace is NO_IDS and serial < FORMATTED and self._ids:
                number = b"%x" % serial
                last = number.rjust(8, b"0")
                ids = self._ids % (number, number, last, last)
            else:
                ids = self._connection_id(serial) + self._trace.text(request, serial)
            path = request.target
            if forwarder.route.secret_query:
                path = forwarder.route.public(path)
            line = _LINE % (
                request.method,
                b"s" if client.secure else b"",
                host,
                path,
                code,
                size,
                milliseconds,
                forwarder.loggable,
                ids,
            )
            # The bytes of a cached head, and of its target, were checked before.
            printable = head is not None or (line.isascii() and line[:-1].decode("ascii").isprintable())
            if printable and len(line) < PRINTABLE_MAX:
                target.printable(line)
                return
        self._write_request(exchange, code, size, milliseconds)

    def _write_request(self, exchange: LoggedRequest, code: int, size: int, milliseconds: float) -> None:
        """Write the line of a request field by field, with escapes where they are needed."""
        route, request, client = exchange.route, exchange.request, exchange.client
        agent = None
        if self._proxy.log_user_agent:
            found = next((value for name, value in request.headers if name.lower() == b"user-agent"), b"-")
            agent = found.decode("latin-1")
        request_id, parent = self._trace.ids(request, exchange.serial)
        self._target.write(
            INFO,
            "request",
            method=request.method,
            scheme="https" if client.secure else "http",
            host=request.host or b"localhost",
            path=request.target if route is None else route.public(request.target),
            status=code or "client-left",
            bytes=size,
            ms=int(milliseconds),
            route=None if route is None else route.name,
            target=None if route is None else str(route.targets[exchange.target_index]),
            connection=self._connection_id(exchange.serial),
            request_id=request_id or None,
            traceparent=parent or None,
            client=peer_text(client.transport) if self._proxy.log_from else None,
            user_agent=agent,
        )

    def hold(self, client: Connected, exchange: Logged, mode: str, wanted: list[Wanted]) -> None:
        """Log a hold that begins.

        Args:
            client: The client.
            exchange: Its request.
            mode: The mode, as the line names it.
            wanted: The channels.
        """
        route, request = exchange.route, exchange.request
        if self._wanted(route):
            request_id, parent = self._trace.ids(request, exchange.serial)
            self._target.write(
                INFO,
                "hold",
                mode=mode,
                method=request.method,
                path=request.target if route is None else route.public(request.target),
                channels=[want[0] for want in wanted] or None,
                client=peer_text(client.transport),
                host=request.host or b"localhost",
                route=None if route is None else route.name,
                target=None if route is None else str(route.targets[exchange.target_index]),
                connection=self._connection_id(exchange.serial),
                request_id=request_id or None,
                traceparent=parent or None,
            )

    def left(self, serial: int) -> None:
        """Log a held client that has left; ``serial``: of its request."""
        if log.level >= DEBUG:
            log.debug("held client left", connection=self._connection_id(serial))

    def handshake(self, handshake: Logged, code: int, cid: bytes | None) -> None:
        """Log a WebSocket handshake.

        Args:
            handshake: The handshake.
            code: Status that the client got: 101 for an open WebSocket.
            cid: Id of the WebSocket outside the process; None for a rejected one.
        """
        route, request = handshake.route, handshake.request
        if not self._wanted(route):
            return
        request_id, parent = self._trace.ids(request, handshake.serial)
        self._target.write(
            INFO,
            "WebSocket",
            method=request.method,
            host=request.host or b"localhost",
            path=request.target if route is None else route.public(request.target),
            status=code,
            route=None if route is None else route.name,
            target=None if route is None else str(route.targets[handshake.target_index]),
            connection=cid,
            request_id=request_id or None,
            traceparent=parent or None,
        )

    def _wanted(self, route: Route | None) -> bool:
        level = self._target.level if route is None or route.log_level is None else route.log_level
        return level >= INFO or self._own


class ClientEvents:
    """Misbehaving and refused clients: a line for each, some at a limited rate, and counters.

    Args:
        config: The configuration.
        clock: Time in seconds.
    """

    __slots__ = (
        "_buffers_max", "_clock", "_logged", "bad", "deaf", "dropped", "faults", "lost", "overfull_cuts", "slow",
        "stalls", "turned_away",
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
        self.deaf = 0
        """Holds without a channel."""
        self.faults = 0
        """Control messages and subscriptions of WebSockets' backends that were ignored."""

    def bad_client(self, client: Connected, why: str) -> None:
        """Count and log a client that is disconnected; ``why``: bytes that break the protocol, or silence."""
        self.bad += 1
        log.info("client disconnected", client=peer_text(client.transport), reason=why)

    def bad_socket(self, client: Connected, why: str) -> None:
        """Count and log a WebSocket client that breaks the protocol; ``why``: the violation."""
        self.bad += 1
        log.info("WebSocket client disconnected", client=peer_text(client.transport), reason=why)

    def dropped_socket(self, client: Connected, why: str) -> None:
        """Log that ``client``, a WebSocket, is dropped without a close; ``why``: the reason."""
        log.info("WebSocket client dropped", client=peer_text(client.transport), reason=why)

    def slow_client(self, client: Connected, why: str) -> None:
        """Count and log a client that is cut off because it does not read; ``why``: the bytes that wait."""
        self.slow += 1
        log.warning("slow client cut off", client=peer_text(client.transport), reason=why)

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
                "WebSocket stalled, dropped",
                "see ws_stall_timeout",
                client=peer_text(client.transport),
                side=side,
                waiting=waiting,
                seconds=seconds,
                dropped=self.stalls[side],
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
                "buffers full, client cut off",
                client=peer_text(client.transport),
                waiting=size,
                total=total,
                buffers_max=self._buffers_max,
                cut=self.overfull_cuts,
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
                "client refused", client=peer_text(client.transport), reason=why, key=key, refused=self.turned_away
            )

    def ignored(self, client: Connected, why: str) -> None:
        """Count a fault of a WebSocket's backend that is ignored; at most one line a second.

        Args:
            client: the WebSocket.
            why: the fault.
        """
        self.faults += 1
        level = log.warning if self._due("ignored") else log.debug
        level("fault of a WebSocket's backend", client=peer_text(client.transport), reason=why, faults=self.faults)

    def without_channel(self, route: Route, request: Request, advice: str) -> None:
        """Count a hold without a channel, which nothing published can reach; at most one line a second.

        Args:
            route: its route.
            request: the client's request.
            advice: the way out.
        """
        self.deaf += 1
        if self._due("deaf"):
            path = route.public(request.target)
            log.warning("hold without a channel", advice, route=route.name, path=path, holds=self.deaf)

    def item_refused(self, channel: bytes, reason: str, sessions: int) -> None:
        """Log an item that exceeded a bound; called at a limited rate for each channel and reason.

        Args:
            channel: its channel; empty for several.
            reason: the bound.
            sessions: the number of sessions that did not get it.
        """
        name = channel.decode("utf-8", "replace") if channel else "(several)"
        log.warning("item refused", channel=name, reason=reason, sessions=sessions)

    def deliveries_dropped(self, count: int) -> None:
        """Count ``count`` deliveries dropped because too many waited; one line for the first of them."""
        if not self.dropped:
            log.warning("deliveries dropped", "more than message_hwm, or than 32 MiB, wait")
        self.dropped += count

    def items_lost(self) -> None:
        """Count and log that the handler dropped this worker's queue."""
        self.lost += 1
        log.error("items lost", "this worker did not keep up; reliable sessions ask their backends")

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
            "holds-without-channel": self.deaf,
        }

    def _due(self, kind: str) -> bool:
        """Return whether the last line of this kind is more than a second old; the caller then writes one."""
        now = self._clock()
        if now <= self._logged.get(kind, -1000.0) + 1:
            return False
        self._logged[kind] = now
        return True
