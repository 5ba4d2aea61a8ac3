"""Counters per route id for the reports (docs/grip.md §9): plain ints, raised where things happen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gripproxy.grip.item import Item
from gripproxy.grip.stats_format import FIGURES, RECOVERY, blocks, contents
from gripproxy.pipe import RESPONSE, SOCKET

__all__ = ["PHASES", "UNCOUNTED", "RouteCounters", "WorkerCounters"]

PHASES: Final = 64
"""A connection's number ends with the second of its minute at which it began, so that its minutes can be counted
without anything kept for it. 60 would do, but the number is put together and taken apart with bits."""

CLASSES: Final = 10
"""First digits of a status."""

_COUNTED: Final = tuple(name.replace("-", "_") for name in FIGURES)


class RouteCounters:
    """Counters of one route id since the last report, named as in FIGURES, and its present connections.

    ``now`` is the number of connections, ``peak`` its maximum; ``phases`` has their number by the second of their
    beginning.

    Args:
        route: route id; empty for all routes without one.
    """

    __slots__ = (
        "activity",
        "answered",
        "blocks_sent",
        "client_content_bytes_received",
        "client_content_bytes_sent",
        "client_header_bytes_received",
        "client_header_bytes_sent",
        "client_messages_received",
        "client_messages_sent",
        "held",
        "http_response_sent",
        "minutes",
        "now",
        "peak",
        "phases",
        "requests_received",
        "route",
        "sent",
        "server_content_bytes_received",
        "server_content_bytes_sent",
        "server_header_bytes_received",
        "server_header_bytes_sent",
        "server_messages_received",
        "server_messages_sent",
        "told",
    )

    def __init__(self, route: bytes = b"") -> None:
        self.route = route
        self.now = self.peak = 0
        self.told = 0
        """Value of ``now`` in the last report to the handler."""
        self.phases = [0] * PHASES
        self.answered = [0] * CLASSES
        """Responses that are the backend's, by the first digit of the status; at 0 requests whose client left."""
        self.held = [0] * CLASSES
        """Those that follow from an instruct: the openings of streams, and the ends of long-polls."""
        self.requests_received = self.activity = self.minutes = 0
        self.sent = self.http_response_sent = self.blocks_sent = 0
        self.client_header_bytes_received = self.client_header_bytes_sent = 0
        self.client_content_bytes_received = self.client_content_bytes_sent = 0
        self.client_messages_received = self.client_messages_sent = 0
        self.server_header_bytes_received = self.server_header_bytes_sent = 0
        self.server_content_bytes_received = self.server_content_bytes_sent = 0
        self.server_messages_received = self.server_messages_sent = 0

    def began(self, phase: int) -> None:
        """A connection is there; ``phase`` is the second of the minute."""
        now = self.now = self.now + 1
        if now > self.peak:
            self.peak = now
        self.minutes += 1
        self.phases[phase] += 1

    def ended(self, phase: int) -> None:
        """A connection that began in ``phase`` is gone."""
        self.now -= 1
        self.phases[phase] -= 1

    def from_client(self, size: int, fin: bool, passed_on: bool) -> None:
        """Count a piece of a message of a WebSocket client.

        Args:
            size: its bytes.
            fin: whether it ends the message.
            passed_on: whether it goes to the backend.
        """
        self.client_content_bytes_received += size
        self.client_messages_received += fin
        if passed_on:
            self.server_content_bytes_sent += size
            self.server_messages_sent += fin

    def from_server(self, size: int, fin: bool) -> None:
        """Count a piece of a backend's message to a WebSocket.

        Args:
            size: its bytes.
            fin: whether it ends the message.
        """
        self.server_content_bytes_received += size
        self.server_messages_received += fin

    def to_client(self, size: int, fin: bool = True) -> None:
        """Count a message, or a piece of one, sent to a WebSocket client.

        Args:
            size: its bytes.
            fin: whether it ends the message.
        """
        self.client_content_bytes_sent += size
        self.client_messages_sent += fin

    def take(self) -> tuple[int, ...] | None:
        """Return (now, peak, counters in the order of FIGURES) and begin anew; None if there is no news."""
        values = tuple([getattr(self, name) for name in _COUNTED])
        if self.now == self.told == self.peak and not any(values):
            return None
        news = (self.now, self.peak, *values)
        self.told = self.peak = self.now
        for name, value in zip(_COUNTED, values, strict=True):
            if value:
                setattr(self, name, 0)
        return news

    def restart(self) -> None:
        """Report the number of present connections anew: there is a new handler."""
        self.told = 0


UNCOUNTED: Final = RouteCounters()
"""Sink for requests without a route; never reported."""


class WorkerCounters:
    """The figures of one process: one ``RouteCounters`` for each route id the operator gave, one for all other routes.

    ``block_size`` in bytes; 0: blocks are not counted.
    """

    __slots__ = (
        "block_size",
        "gaps",
        "others",
        "questions",
        "recoveries",
        "recovery",
        "responses",
        "routed",
        "routes",
        "unsent",
    )

    def __init__(self, block_size: int = 0) -> None:
        self.block_size = block_size
        self.others = RouteCounters()
        self.routes: dict[bytes, RouteCounters] = {b"": self.others}
        self.routed: dict[object, dict[bytes, list[int]]] = {}
        """Sessions by mode of each route id, for channels that have any of a route with one (also those without)."""
        self.unsent: dict[str, int] = {}
        """Deliveries that were not made, by reason."""
        self.gaps = 0
        """Times a session noticed that it had missed something."""
        self.recoveries = 0
        """Recoveries: times a session may have missed something and queried its backend."""
        self.questions = 0
        """Requests to backends for that by WebSockets."""
        self.recovery: dict[tuple[bytes, int], list[int]] = {}
        """By route id and mode, since the last report: numbers in the order of RECOVERY."""
        self.responses: dict[tuple[bytes, int, str], int] = {}
        """By route id, first digit of the status and reason, since the last report: responses to clients."""

    def of(self, route: bytes) -> RouteCounters:
        """Return the figures of a route id; empty: of all routes without one."""
        figures = self.routes.get(route)
        if figures is None:
            figures = self.routes[route] = RouteCounters(route)
        return figures

    def responded(self, figures: RouteCounters, code: int, reason: str, counted: list[int] | None = None) -> None:
        """A response that is not simply the backend's, nor an instruct's.

        Args:
            figures: those of its route.
            code: the status.
            reason: one of gripproxy.grip.stats_format.ANSWERS.
            counted: the list in ``figures`` by which it is counted as well, if it is: there it is taken out.
        """
        kind = code // 100
        if counted is not None:
            counted[kind] -= 1
        key = (figures.route, kind, reason)
        self.responses[key] = self.responses.get(key, 0) + 1

    def collect(self, figures: RouteCounters) -> None:
        """Move the responses counted in ``figures`` to ``responses``."""
        for reason, counts in (("backend", figures.answered), ("held", figures.held)):
            if any(counts):
                for kind, count in enumerate(counts):
                    if count:
                        key = (figures.route, kind, reason)
                        self.responses[key] = self.responses.get(key, 0) + count
                        counts[kind] = 0

    def gap(self, route: bytes, mode: int) -> None:
        """Count a gap that a session of ``route`` and ``mode`` noticed."""
        self.gaps += 1
        self._recovery(route, mode)[0] += 1

    def recovering(self, route: bytes, mode: int) -> None:
        """Count a recovery that a session of ``route`` and ``mode`` begins."""
        self.recoveries += 1
        self._recovery(route, mode)[1] += 1

    def asked(self, route: bytes, mode: int) -> None:
        """Count a request to a backend for held clients of ``route`` and ``mode``."""
        self._recovery(route, mode)[2] += 1

    def slow(self, route: bytes, mode: int) -> None:
        """Count a client of ``route`` and ``mode`` that is cut off because it does not read."""
        self._recovery(route, mode)[3] += 1

    def _recovery(self, route: bytes, mode: int) -> list[int]:
        key = (route, mode)
        numbers = self.recovery.get(key)
        if numbers is None:
            numbers = self.recovery[key] = [0] * len(RECOVERY)
        return numbers

    def dropped(self, reason: str, count: int = 1) -> None:
        """Add ``count`` deliveries that were not made, for ``reason``."""
        self.unsent[reason] = self.unsent.get(reason, 0) + count

    def joined(self, channel: object, route: bytes, mode: int, by: int, before: tuple[int, int, int]) -> None:
        """Count a session that joins or leaves a channel.

        To be called for routes with an id, and for all while the channel is in ``routed``.

        Args:
            channel: the channel.
            route: route id of the session.
            mode: mode of the session.
            by: 1 if it joins, -1 if it leaves.
            before: sessions of the channel by mode, without this change.
        """
        routes = self.routed.get(channel)
        if routes is None:
            routes = self.routed[channel] = {}
            if any(before):
                # All of them are of routes without an id, or the channel would be known.
                routes[b""] = list(before)
        counts = routes.setdefault(route, [0, 0, 0])
        counts[mode] += by
        if not any(counts):
            del routes[route]
            if not routes or (len(routes) == 1 and b"" in routes):
                del self.routed[channel]

    def addressed(self, channel: object, counts: tuple[int, int, int], item: Item) -> None:
        """Count an item for the sessions of a channel (docs/grip.md §9: before filters and limits).

        Args:
            channel: the channel.
            counts: its sessions by mode.
            item: the item.
        """
        routes: Mapping[bytes, list[int] | tuple[int, int, int]] = self.routed.get(channel) or {b"": counts}
        for route, of_route in routes.items():
            figures = self.of(route)
            for mode, content in enumerate(contents(item)):
                sessions = of_route[mode]
                if content is None or not sessions:
                    continue
                figures.sent += sessions
                if mode == RESPONSE:
                    figures.http_response_sent += sessions
                if self.block_size:
                    figures.blocks_sent += sessions * blocks(item, content, self.block_size)

    def written(self, channel: object, mode: int, sessions: int, size: int) -> None:
        """Count an item written to plain sessions of a channel.

        Args:
            channel: the channel.
            mode: mode of the sessions.
            sessions: their number.
            size: bytes of the item.
        """
        routes = self.routed.get(channel)
        if routes is None:
            figures = self.others
        elif len(routes) == 1:
            figures = self.of(next(iter(routes)))
        else:
            # Which of them are plain is not known by route; shares of all are as near as counting gets.
            total = sum(counts[mode] for counts in routes.values())
            left = sessions
            for route, counts in routes.items():
                part = sessions * counts[mode] // total
                self._written(self.of(route), mode, part, size)
                left -= part
            figures = self.of(next(iter(routes)))
            sessions = left
        self._written(figures, mode, sessions, size)

    def _written(self, figures: RouteCounters, mode: int, sessions: int, size: int) -> None:
        figures.client_content_bytes_sent += sessions * size
        if mode == SOCKET:
            figures.client_messages_sent += sessions
