"""Statistics of one worker: counters by route, connection minutes, latencies of backends (docs/grip.md §9).

``WorkerStats`` is raised where things happen. Every 100 ms the changes go to the handler; every second the minutes of
connections are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from gripproxy.pipe import CONNECTIONS, FIGURES, Message
from gripproxy.stats.connection_events import ConnectionReporter, Key, Reported
from gripproxy.stats.counters import PHASES, UNCOUNTED, RouteCounters, WorkerCounters
from gripproxy.stats.latencies import Latencies

__all__ = ["FLUSH", "ROUTES_MAX", "SERIAL_STEP", "WorkerStats"]

FLUSH: Final = 0.1
"""Seconds between two reports to the handler."""

ROUTES_MAX: Final = 500
"""Route ids looked at per flush; with more of them each has its turn a little later."""

SERIAL_STEP: Final = PHASES
"""Distance between the serials of two requests: the bits below are the second of the minute at which one began."""

_PHASE: Final = PHASES - 1


class WorkerStats(WorkerCounters):
    """Counters of one worker.

    Args:
        clock: Time in seconds.
        reporter: Connection events.
        block_size: Bytes of a block of messages (``message_block_size``); 0: blocks are not counted.
    """

    __slots__ = (
        "_advanced", "_lag", "_turn", "deliveries", "holding", "holds", "latencies", "phase", "repeats", "reporter",
        "second",
    )  # fmt: skip

    def __init__(self, clock: Callable[[], float], reporter: ConnectionReporter, block_size: int) -> None:
        super().__init__(block_size)
        self.reporter = reporter
        self._advanced = clock()
        self.second = int(self._advanced)
        """Second of the worker's clock."""
        self.phase = self.second % 60
        """Second of the minute, in the low bits of new serials."""
        self.latencies = Latencies()
        """Times from requests to the heads of backends' responses."""
        self.deliveries = Latencies()
        """Times from the release of items by the handler until all sessions here had them."""
        self.holds = [0, 0]
        """Requests held so far, by mode."""
        self.holding = [0, 0]
        """Requests held now, by mode."""
        self.repeats = 0
        """Requests to backends for held clients, link requests not included."""
        self._lag = 0.0
        self._turn: deque[bytes] = deque()

    # --- connections

    def request(self, request: Reported, serial: int, route: bytes, head: int, body: int = 0) -> RouteCounters:
        """Count a request that has a route, or a WebSocket: from now on it is a connection.

        Args:
            request: The request or handshake.
            serial: Its serial.
            route: The route's id if the operator gave it one, else empty.
            head: Bytes of the request's head.
            body: Bytes of the request's body so far.

        Returns:
            The counters of the route.
        """
        figures = self.of(route) if route else self.others
        figures.requests_received += 1
        figures.activity += 1
        figures.client_header_bytes_received += head
        if body:
            figures.client_content_bytes_received += body
        figures.began(serial & _PHASE)
        reporter = self.reporter
        if reporter.watching:
            reporter.began(request.key, request.present(route))
        return figures

    def ended(self, request: Reported, serial: int, figures: RouteCounters) -> None:
        """Count the end of a request or handshake, if it was counted as a connection.

        Args:
            request: The request or handshake.
            serial: Its serial.
            figures: Result of ``request`` for it, or UNCOUNTED.
        """
        if figures is not UNCOUNTED:
            figures.ended(serial & _PHASE)
            reporter = self.reporter
            if reporter.watching:
                reporter.ended(request.key)

    def left(self, key: Key, serial: int, route: bytes) -> None:
        """Count the end of a held request or a WebSocket.

        Args:
            key: Its key in connection events.
            serial: Its serial.
            route: The route's id or empty.
        """
        self.of(route).ended(serial & _PHASE)
        if self.reporter.watching:
            self.reporter.ended(key)

    def held(self, serial: int, mode: int) -> None:
        """Count a request that is held from now on; its connection is reported once more, as Pushpin does.

        Args:
            serial: Its serial.
            mode: RESPONSE or STREAM.
        """
        self.holds[mode] += 1
        self.holding[mode] += 1
        if self.reporter.watching:
            self.reporter.again(serial)

    def repeated(self, serial: int, route: bytes, mode: int) -> RouteCounters:
        """Count a held request that is sent to the backend again; its connection is reported once more.

        Args:
            serial: Its serial.
            route: The route's id or empty.
            mode: RESPONSE or STREAM.

        Returns:
            The counters of the route.
        """
        figures = self.of(route)
        figures.activity += 1
        self.repeats += 1
        self.asked(route, mode)
        self.reporter.again(serial)
        return figures

    def answered(self, seconds: float) -> None:
        """Count a response of a backend; ``seconds``: time from the request to the response's head."""
        self.latencies.add(seconds)

    # --- time

    def advance(self, now: float, tick: float) -> bool:
        """Count minutes of connections, and measure the lag of the event loop.

        Args:
            now: Time in seconds.
            tick: Seconds between two calls.

        Returns:
            Whether a new second has begun.
        """
        self._lag = max(self._lag, now - self._advanced - tick)
        self._advanced = now
        second = int(now)
        if self.second >= second:
            return False
        # After a long sleep of the machine every connection has been open for all of these minutes.
        while self.second < second:
            self.second += 1
            phase = self.phase = self.second % 60
            for figures in self.routes.values():
                figures.minutes += figures.phases[phase]
        return True

    def take_lag(self) -> float:
        """Return the longest lag of the event loop in seconds since the last call."""
        lag, self._lag = self._lag, 0.0
        return max(0.0, lag)

    # --- reports

    def flush(self, now: float, send: Callable[[Message], None]) -> None:
        """Report changes to the handler; to be called every FLUSH seconds while there is one.

        Args:
            now: Time in seconds.
            send: Sends a message to the handler.
        """
        turn = self._turn
        if not turn:
            turn.extend(self.routes)
        for _ in range(min(ROUTES_MAX, len(turn))):
            figures = self.routes[turn.popleft()]
            delta = figures.take()
            if delta is not None:
                send((FIGURES, figures.route, *delta))
                self.collect(figures)
        if self.reporter.watching:
            events = self.reporter.take(now, FLUSH)
            if events:
                send((CONNECTIONS, events))

    def by_route(self) -> dict[str, Any]:
        """Return recoveries and responses counted by route since the last call, reported beside the totals."""
        delta: dict[str, Any] = {}
        if self.recovery:
            recovery, self.recovery = self.recovery, {}
            delta["recovery"] = [(*key, tuple(numbers)) for key, numbers in recovery.items()]
        if self.responses:
            responses, self.responses = self.responses, {}
            delta["responses"] = [(*key, count) for key, count in responses.items() if count]
        return delta

    def restart(self) -> None:
        """Reset the reported values: a new handler knows of no connections."""
        for figures in self.routes.values():
            figures.restart()
