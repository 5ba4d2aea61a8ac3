"""What a worker tells its operator: one line for each request, hold and error, and counters of what went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gripproxy.config import Config
from gripproxy.edge.client import ClientConnection
from gripproxy.edge.exchange import Exchange
from gripproxy.edge.opening import Opening
from gripproxy.edge.peer import peer_text
from gripproxy.edge.websocket import WebSocketClient
from gripproxy.log import PRINTABLE_MAX, log
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold

__all__ = ["Journal"]


class Journal:
    """Lines and counters of one worker.

    Arguments: the ``config``; the worker's ``number``; ``clock`` in seconds; ``epoch``, when the process began in ns.
    """

    def __init__(self, config: Config, number: int, clock: Callable[[], float], epoch: int) -> None:
        self.config = config
        self.number = number
        self.clock = clock
        self.epoch = epoch
        self.bad = 0
        """Clients disconnected for what they sent, or did not send."""
        self.slow = 0
        """Clients cut off because they did not read."""
        self.turned_away = 0
        """Clients refused because too many were connected, or the process was stopping."""
        self.dropped = 0
        """Deliveries not made because too many waited (``message_hwm``)."""
        self.lost = 0
        """Times the handler said that items were lost on the way here."""
        self.accepted = 0
        """Clients that have connected."""
        self.upgraded = 0
        """WebSockets that were opened."""
        self.stalls = {"client": 0, "backend": 0}
        """WebSockets dropped because one side took nothing of what waited for it, by that side."""
        self.overfull_cuts = 0
        """Clients cut off because too much waited in the worker."""
        self._logged: dict[str, float] = {}
        self.faults = 0
        """Control messages and subscriptions of WebSockets' backends that were ignored."""
        self._plain = not (config.proxy.log_from or config.proxy.log_user_agent)

    def totals(self) -> dict[str, int]:
        """Return what was counted since the process began, by the name under which the handler adds it up."""
        return {
            "opened-http": self.accepted,
            "opened-websocket": self.upgraded,
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

    def connection_id(self, serial: int) -> bytes:
        """Return the id under which a request is known outside (docs/grip.md §5.8)."""
        return b"gripproxy:%d-%x-%x" % (self.number, self.epoch // 1_000_000, serial)

    def log_request(self, client: ClientConnection, exchange: Exchange, code: int, size: int) -> None:
        """One line for a request that is over; code 0: the client left."""
        request = exchange.request
        head, forwarder = request.head, exchange.forwarder
        host = head.loggable if head is not None else request.host or b"localhost"
        if host and code and self._plain and forwarder is not None and forwarder.loggable:
            line = b"%b http%b://%b%b -> %b %d %d bytes %d ms\n" % (
                request.method,
                b"s" if client.secure else b"",
                host,
                request.target,
                forwarder.loggable,
                code,
                size,
                (self.clock() - exchange.began) * 1000,
            )
            # Of a head that came before it is known, and its target was looked at too.
            printable = head is not None or (line.isascii() and line[:-1].decode("ascii").isprintable())
            if printable and len(line) < PRINTABLE_MAX:
                log.printable(line)
                return
        route = exchange.route
        target = route.targets[exchange.target_index] if route is not None else "-"
        extra = ""
        if self.config.proxy.log_from:
            extra += f" from={peer_text(client.transport)}"
        if self.config.proxy.log_user_agent:
            agent = next((value for name, value in request.headers if name.lower() == b"user-agent"), b"-")
            extra += f" agent={agent.decode('latin-1')!r}"
        log.info(
            "%s http%s://%s%s -> %s %s %d bytes %d ms%s",
            request.method,
            "s" if client.secure else "",
            request.host or b"localhost",
            request.target,
            target,
            code or "client left",
            size,
            (self.clock() - exchange.began) * 1000,
            extra,
        )

    def log_hold(
        self,
        client: ClientConnection,
        exchange: Exchange,
        mode: str,
        wanted: list[tuple[bytes, bytes, bytes | None, Any]],
    ) -> None:
        """One line for a hold that begins."""
        if log.level >= 2:
            log.info(
                "%s %s: hold %s on %s for %s as %s",
                exchange.request.method,
                exchange.request.target,
                mode,
                b", ".join(want[0] for want in wanted) or b"no channel",
                peer_text(client.transport),
                self.connection_id(exchange.serial),
            )

    def log_left(self, client: ClientConnection, hold: ResponseHold | StreamHold) -> None:
        """One line for a held client that left."""
        if log.level >= 3:
            log.debug("%s left", self.connection_id(hold.serial))

    def bad_client(self, client: ClientConnection, why: str) -> None:
        """One line for a client that is disconnected for what it sent, or did not send."""
        self.bad += 1
        log.info("client %s: %s", peer_text(client.transport), why)

    def log_opening(self, opening: Opening, outcome: str) -> None:
        """One line for a WebSocket handshake."""
        route, request = opening.route, opening.request
        target = route.targets[opening.target_index] if route is not None else "-"
        log.info("WebSocket %s%s -> %s %s", request.host or b"localhost", request.target, target, outcome)

    def bad_socket(self, client: WebSocketClient, why: str) -> None:
        """One line for a WebSocket client that breaks the protocol."""
        self.bad += 1
        log.info("WebSocket client %s: %s", peer_text(client.transport), why)

    def dropped_socket(self, client: WebSocketClient, why: str) -> None:
        """A WebSocket is dropped without a close."""
        log.info("WebSocket client %s dropped: %s", peer_text(client.transport), why)

    def slow_client(self, client: ClientConnection | WebSocketClient, why: str) -> None:
        """A client is cut off because it does not read."""
        self.slow += 1
        log.warning("slow client %s cut off: %s", peer_text(client.transport), why)

    def stalled(self, client: WebSocketClient, side: str, waiting: int, seconds: str) -> None:
        """Count a WebSocket that is dropped because one side stalls; at most one line a second for each side.

        Args:
            client: the WebSocket.
            side: ``client`` or ``backend``: which one does not take what waits for it.
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

    def overfull(self, client: ClientConnection | WebSocketClient, size: int, total: int, _: str = "") -> None:
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
                self.config.proxy.buffers_max,
                self.overfull_cuts,
            )

    def _due(self, kind: str) -> bool:
        """Return whether the last line of this kind is more than a second old; the caller then writes one."""
        now = self.clock()
        if now <= self._logged.get(kind, -1000.0) + 1:
            return False
        self._logged[kind] = now
        return True

    def refused(self, client: ClientConnection, why: str, key: str) -> None:
        """A client is turned away because of the limit ``key``; one line a second at most, the number is counted."""
        self.turned_away += 1
        if self._due("refused"):
            log.warning(
                "client %s refused: %s (%s; %d refused so far)", peer_text(client.transport), why, key, self.turned_away
            )

    def ignored(self, client: WebSocketClient, why: str) -> None:
        """What a WebSocket's backend did wrong is ignored; one line a second at most, the number is counted."""
        self.faults += 1
        level = log.warning if self._due("ignored") else log.debug
        level("WebSocket client %s: backend: %s (%d faults so far)", peer_text(client.transport), why, self.faults)

    def item_refused(self, channel: bytes, reason: str, sessions: int) -> None:
        """An item exceeded a bound for some sessions: one line for each channel and reason, at a limited rate."""
        name = channel.decode("utf-8", "replace") if channel else "(several)"
        log.warning("item refused: channel=%s reason=%s sessions=%d", name, reason, sessions)

    def deliveries_dropped(self, count: int) -> None:
        """Deliveries were not made because too many waited; one line for the first of them."""
        if not self.dropped:
            log.warning("deliveries dropped: more than message_hwm, or than 32 MiB, wait")
        self.dropped += count
