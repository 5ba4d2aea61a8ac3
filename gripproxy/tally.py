"""What a worker tells the handler about its work: figures, and while wanted each connection (docs/grip.md §9).

Counting is done where things happen, in ``Figures``. Here is what goes with time: every 100 ms what has changed goes to
the handler, every second minutes are counted, and what is present is said again before its ttl is over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, cast

from gripproxy.grip.forwarded import logical_peer
from gripproxy.grip.headers import all_of
from gripproxy.grip.stats import LATENCIES, Rounds
from gripproxy.log import log
from gripproxy.outages import Outages, Troubled
from gripproxy.pipe import CONNECTIONS, FIGURES, RESPONSE, SOCKET, STREAM
from gripproxy.process import restarts
from gripproxy.sessions.figures import PHASES, Figures, Ledger
from gripproxy.sessions.wheel import TICK

if TYPE_CHECKING:
    from gripproxy.edge.client import ClientConnection
    from gripproxy.edge.exchange import Exchange
    from gripproxy.edge.opening import Opening
    from gripproxy.edge.parser import Request
    from gripproxy.edge.websocket import WebSocketClient
    from gripproxy.routes import Route
    from gripproxy.sessions.response import ResponseHold
    from gripproxy.sessions.stream import StreamHold
    from gripproxy.sessions.websocket import WebSocketSession
    from gripproxy.worker import Worker

__all__ = ["FLUSH", "NOBODY", "SERIAL_STEP", "Tally", "address"]

FLUSH: Final = 0.1
"""Seconds between two times that the handler is told."""

ROUTES_MAX: Final = 500
"""Route ids looked at per flush; with more of them each has its turn a little later."""

SLICE: Final = 500
"""Connections told per flush when all of them are: about a millisecond."""

SERIAL_STEP: Final = PHASES
"""Between the numbers of two requests: in between is the second of the minute at which one began."""

_PHASE: Final = PHASES - 1

NOBODY: Final = Figures()
"""Takes the counts of what is not counted: requests without a route."""

Present = tuple[bytes, bytes, bool, bytes, bool]
"""A connection: id, route id or empty, whether it is a WebSocket, logical peer address or empty, whether TLS."""

Key = int | bytes
"""A request's serial, or a WebSocket's id."""


def address(transport: Any) -> bytes:
    """Return the address of a transport's peer, empty for a unix socket or one that has gone."""
    name = transport.get_extra_info("peername") if transport is not None else None
    return name[0].encode() if isinstance(name, tuple) and name else b""


class Tally(Ledger):
    """The figures of one worker, and its present connections while the handler wants to know of them.

    Times are seconds of the worker's clock.
    """

    __slots__ = (
        "_advanced",
        "_all",
        "_events",
        "_lag",
        "_live",
        "_restarts",
        "_rounds",
        "_turn",
        "_worker",
        "holding",
        "holds",
        "latencies",
        "outages",
        "phase",
        "repeats",
        "second",
        "waited",
        "watching",
    )

    def __init__(self, worker: Worker) -> None:
        config = worker.config
        super().__init__(config.handler.message_block_size)
        self._worker = worker
        self.second = int(worker.clock())
        self.phase = self.second % 60
        self.watching = False
        """Whether each connection is told."""
        self.latencies = [0] * (len(LATENCIES) + 1)
        """Responses of backends by the time to their head, see LATENCIES; at the end slower ones."""
        self.waited = 0
        """The sum of these times in µs."""
        self.holds = [0, 0]
        """Requests held so far, by mode."""
        self.holding = [0, 0]
        """Requests held now."""
        self.repeats = 0
        """Requests to backends for held clients, but those for links."""
        self.outages = Outages(worker.clock, log.warning)
        self._lag = 0.0
        self._advanced = worker.clock()
        self._restarts = restarts()
        self._rounds: Rounds[Key] = Rounds(config.globals.stats_connection_ttl)
        self._live: dict[Key, Present] = {}
        self._events: list[tuple[Any, ...]] = []
        self._all: Iterator[Present | None] | None = None
        self._turn: deque[bytes] = deque()

    # --- what happens

    def request(self, exchange: Exchange | Opening, route: Route | None, body: int = 0) -> Figures:
        """A request has a route, or is a WebSocket: it is a connection from now on. Returns its figures.

        ``body``: bytes of the request's body that have come.
        """
        key = route.id if route is not None and route.explicit_id else b""
        figures = self.of(key) if key else self.others
        figures.requests_received += 1
        figures.activity += 1
        figures.client_header_bytes_received += exchange.request.size - body
        if body:
            figures.client_content_bytes_received += body
        figures.began(exchange.serial & _PHASE)
        if self.watching:
            self._tell(_key(exchange), self._of_exchange(exchange, key))
        return figures

    def ended(self, exchange: Exchange | Opening) -> None:
        """A request is over, and its connection in the sense of the statistics with it."""
        figures = exchange.figures
        if figures is not NOBODY:
            figures.ended(exchange.serial & _PHASE)
            if self.watching:
                self._gone(_key(exchange))

    def left(self, session: ResponseHold | StreamHold | WebSocketSession) -> None:
        """A held request, or a WebSocket, is over."""
        self.of(session.rate_key).ended(session.serial & _PHASE)
        if self.watching:
            self._gone(session.cid if session.mode == SOCKET else session.serial)  # type: ignore[union-attr]

    def handed(self, serial: int) -> None:
        """A request is held from now on, or asks the backend again: it is told once more, as Pushpin does."""
        event = self._live.get(serial)
        if event is not None:
            self._tell(serial, event)

    def repeated(self, hold: ResponseHold | StreamHold) -> Figures:
        """A held request asks the backend again. Returns its figures."""
        figures = self.of(hold.rate_key)
        figures.activity += 1
        self.repeats += 1
        self.asked(hold.rate_key, hold.mode)
        self.handed(hold.serial)
        return figures

    def failed(self, pool: Troubled, target: object, kind: str, what: object, why: object, got: object) -> None:
        """A backend did not do what was asked of it.

        Args:
            pool: what the request went through.
            target: as the log names it.
            kind: one of gripproxy.grip.stats.FAILURES.
            what: the request, for the log: method and path, or URI.
            why: what went wrong.
            got: what the client gets, in one word: a status, or what becomes of it.
        """
        log.info("%s: target %s: %s", what, target, why)
        self.outages.failed(pool, str(target), kind, str(why), str(got))

    def totals(self) -> dict[str, int]:
        """Return further counts since the process began, by name."""
        worker = self._worker
        totals = {f"dropped-{reason}": count for reason, count in self.unsent.items()}
        totals["closed-http"] = worker.accepted - (worker.connections - len(worker.sockets))
        totals["closed-websocket"] = worker.upgraded - len(worker.sockets)
        totals["deliveries"] = worker.fanout.delivered + (worker.pacer.delivered if worker.pacer is not None else 0)
        totals["keep-alives"] = worker.keeper.keep_alives
        totals["accept-pauses"] = worker.accepting.pauses
        totals["descriptor-waits"] = worker.shortage.waits
        totals["link-requests"] = worker.links.asked
        totals["held-response"], totals["held-stream"] = self.holds
        totals["repeats"] = self.repeats
        totals["questions"] = self.questions
        totals["gaps"] = self.gaps
        totals["recoveries"] = self.recoveries
        totals["backend-us"] = self.waited
        for place, count in enumerate(self.latencies):
            if count:
                totals[f"backend-latency-{place}"] = count
        for kind, count in self.outages.counts.items():
            if count:
                totals[f"backend-failed-{kind}"] = count
        return totals

    def by_route(self) -> dict[str, Any]:
        """Return what was counted by route since the last call, to be told beside the totals: recoveries and responses.

        Empty if there is no news.
        """
        news: dict[str, Any] = {}
        if self.recovery:
            recovery, self.recovery = self.recovery, {}
            news["recovery"] = [(*key, tuple(numbers)) for key, numbers in recovery.items()]
        if self.responses:
            responses, self.responses = self.responses, {}
            news["responses"] = [(*key, count) for key, count in responses.items() if count]
        return news

    def gauges(self, queue: int) -> dict[str, int]:
        """Return what can fall as well as rise, by name, without zeros; ``queue``: messages waiting for the handler.

        The lag of the event loop is the longest since the last call, in ms.
        """
        lag, self._lag = self._lag, 0.0
        worker = self._worker
        gauges = {
            "connected-http": worker.connections - len(worker.sockets),
            "connected-websocket": len(worker.sockets),
            "lag": round(max(0.0, lag) * 1000),
            "queue": queue,
            "buffered": worker.buffers.total,
            "restarts": self._restarts,
            "held-response": self.holding[RESPONSE],
            "held-stream": self.holding[STREAM],
            "routes-generation": worker.routes_generation,
        }
        return {name: value for name, value in gauges.items() if value}

    def answered(self, seconds: float) -> None:
        """A backend has begun its response so long after it was asked."""
        self.latencies[bisect_left(LATENCIES, seconds)] += 1
        self.waited += round(seconds * 1_000_000)

    # --- time

    def advance(self, now: float) -> None:
        """Count minutes, and see how late this is; to be called every TICK seconds."""
        self._lag = max(self._lag, now - self._advanced - TICK)
        self._advanced = now
        second = int(now)
        if self.second < second:
            self.outages.sweep()
        # After a long sleep of the machine every connection has been there for all of these minutes.
        while self.second < second:
            self.second += 1
            phase = self.phase = self.second % 60
            for figures in self.routes.values():
                figures.minutes += figures.phases[phase]

    def flush(self, now: float) -> None:
        """Tell the handler what has changed; to be called every FLUSH seconds while there is a handler."""
        send = self._worker.tell_handler
        turn = self._turn
        if not turn:
            turn.extend(self.routes)
        for _ in range(min(ROUTES_MAX, len(turn))):
            figures = self.routes[turn.popleft()]
            news = figures.take()
            if news is not None:
                send((FIGURES, figures.route, *news))
                self.collect(figures)
        if self.watching:
            events = self._events
            if self._all is not None:
                some = list(islice(self._all, SLICE))
                events += [event for event in some if event is not None]
                if len(some) < SLICE:
                    self._all = None
            events += [self._live[key] for key in self._rounds.due(now, FLUSH)]
            if events:
                send((CONNECTIONS, events))
                self._events = []

    def watch(self, on: bool) -> None:
        """The handler wants to know of each connection, or does not; asked again, all present are told again."""
        on = on and self._worker.config.globals.stats_connection_send
        if not on:
            self._live, self._events, self._all = {}, [], None
            self._rounds.clear()
        else:
            # Those that were told, and those that were there before; some of these were perhaps not found yet when
            # the next one asks, as does who subscribes to several kinds.
            self._all = chain((self._live.get(key) for key in list(self._live)), self._present())
        self.watching = on

    def anew(self) -> None:
        """There is a new handler, which knows of no connections."""
        self.watch(False)
        for figures in self.routes.values():
            figures.told = 0

    # --- connections, while they are told

    def _tell(self, key: Key, event: Present) -> None:
        self._live[key] = event
        self._rounds.said(key, self._worker.clock())
        self._events.append(event)

    def _gone(self, key: Key) -> None:
        event = self._live.pop(key, None)
        if event is not None:
            self._rounds.gone(key)
            self._events.append(event[:2])

    def _present(self) -> Iterator[Present | None]:
        """All that are present now, as long as they are: those that begin later tell it themselves."""
        worker = self._worker
        for client in list(worker.active):
            exchange = client.exchange
            if exchange is not None and exchange.figures is not NOBODY and _key(exchange) not in self._live:
                yield self._found(_key(exchange), self._of_exchange(exchange, exchange.figures.route))
        for hold in list(worker.held.values()):
            if not hold.over and hold.serial not in self._live:
                client = cast("ClientConnection", hold.outlet)
                cid = worker.connection_id(hold.serial)
                yield self._found(hold.serial, (cid, hold.rate_key, False, *client.logical()))
        for session in list(worker.sockets.values()):
            if not session.over and session.cid not in self._live:
                socket = cast("WebSocketClient", session.outlet)
                peer = socket.peer or address(socket.transport)
                secure = session.uri.startswith(b"wss:")
                yield self._found(session.cid, (session.cid, session.rate_key, True, peer, secure))

    def _found(self, key: Key, event: Present) -> Present:
        self._live[key] = event
        self._rounds.said(key, self._worker.clock())
        return event

    def _of_exchange(self, exchange: Exchange | Opening, route: bytes) -> Present:
        key = _key(exchange)
        cid = key if isinstance(key, bytes) else self._worker.connection_id(key)
        peer = self.peer(exchange.request, exchange.client.peer(), exchange.trusted)
        return (cid, route, isinstance(key, bytes), peer, exchange.secure)

    def peer(self, request: Request, peer: bytes, trusted: bool = False) -> bytes:
        """Return the address a client is known by in the statistics (docs/grip.md §2.2), empty if it has none.

        ``peer`` is its own; ``trusted``: it is a trusted GRIP proxy.
        """
        values = all_of(request.headers, b"x-forwarded-for")
        if not values:
            return peer
        settings = self._worker.forward_settings
        return logical_peer(values, peer, settings.forwarded_for_trusted if trusted else settings.forwarded_for)


def _key(exchange: Exchange | Opening) -> Key:
    return exchange.serial if exchange.request.upgrade is None else cast("Opening", exchange).cid
