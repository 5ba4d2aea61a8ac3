"""What is counted per route id for the reports (docs/grip.md §9): plain ints, raised where things happen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gripproxy.grip.item import Item
from gripproxy.grip.stats import FIGURES, RECOVERY, blocks, contents
from gripproxy.pipe import RESPONSE, SOCKET

__all__ = ["PHASES", "Figures", "Ledger"]

PHASES: Final = 64
"""A connection's number ends with the second of its minute at which it began, so that its minutes can be counted
without anything kept for it. 60 would do, but the number is put together and taken apart with bits."""

CLASSES: Final = 10
"""First digits of a status."""

_COUNTED: Final = tuple(name.replace("-", "_") for name in FIGURES)


class Figures:
    """Counters of one route id since they were last told, named as in FIGURES; and its present connections.

    ``now`` are there, ``peak`` were there at the same time at most; ``phases`` are they by the second they began.
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
        """What the handler knows of ``now``."""
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
        """A piece of a WebSocket client's message, the last one if ``fin``."""
        self.client_content_bytes_received += size
        self.client_messages_received += fin
        if passed_on:
            self.server_content_bytes_sent += size
            self.server_messages_sent += fin

    def from_server(self, size: int, fin: bool) -> None:
        """A piece of a backend's message to a WebSocket."""
        self.server_content_bytes_received += size
        self.server_messages_received += fin

    def to_client(self, size: int, fin: bool = True) -> None:
        """A message, or a piece of one, is sent to a WebSocket client."""
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


class Ledger:
    """The figures of one process: one ``Figures`` for each route id the operator gave, one for all other routes.

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
        self.others = Figures()
        self.routes: dict[bytes, Figures] = {b"": self.others}
        self.routed: dict[object, dict[bytes, list[int]]] = {}
        """Sessions by mode of each route id, for channels that have any of a route with one (also those without)."""
        self.unsent: dict[str, int] = {}
        """Deliveries that were not made, by reason."""
        self.gaps = 0
        """Times a session noticed that it had missed something."""
        self.recoveries = 0
        """Times a session had its backend asked for what it may have missed."""
        self.questions = 0
        """Requests to backends for that by WebSockets."""
        self.recovery: dict[tuple[bytes, int], list[int]] = {}
        """By route id and mode, since it was last told: numbers in the order of RECOVERY."""
        self.responses: dict[tuple[bytes, int, str], int] = {}
        """By route id, first digit of the status and reason, since it was last told: responses to clients."""

    def of(self, route: bytes) -> Figures:
        """Return the figures of a route id; empty: of all routes without one."""
        figures = self.routes.get(route)
        if figures is None:
            figures = self.routes[route] = Figures(route)
        return figures

    def responded(self, figures: Figures, code: int, reason: str, counted: list[int] | None = None) -> None:
        """A response that is not simply the backend's, nor an instruct's.

        Args:
            figures: those of its route.
            code: the status.
            reason: one of gripproxy.grip.stats.ANSWERS.
            counted: the list in ``figures`` by which it is counted as well, if it is: there it is taken out.
        """
        kind = code // 100
        if counted is not None:
            counted[kind] -= 1
        key = (figures.route, kind, reason)
        self.responses[key] = self.responses.get(key, 0) + 1

    def collect(self, figures: Figures) -> None:
        """Move what ``figures`` counted of responses to ``responses``."""
        for reason, counts in (("backend", figures.answered), ("held", figures.held)):
            if any(counts):
                for kind, count in enumerate(counts):
                    if count:
                        key = (figures.route, kind, reason)
                        self.responses[key] = self.responses.get(key, 0) + count
                        counts[kind] = 0

    def gap(self, route: bytes, mode: int) -> None:
        """A session noticed that it has missed something."""
        self.gaps += 1
        self._recovery(route, mode)[0] += 1

    def recovering(self, route: bytes, mode: int) -> None:
        """A session has its backend asked for what it may have missed."""
        self.recoveries += 1
        self._recovery(route, mode)[1] += 1

    def asked(self, route: bytes, mode: int) -> None:
        """A request for held clients goes to a backend."""
        self._recovery(route, mode)[2] += 1

    def slow(self, route: bytes, mode: int) -> None:
        """A client is cut off because it does not read."""
        self._recovery(route, mode)[3] += 1

    def _recovery(self, route: bytes, mode: int) -> list[int]:
        key = (route, mode)
        numbers = self.recovery.get(key)
        if numbers is None:
            numbers = self.recovery[key] = [0] * len(RECOVERY)
        return numbers

    def dropped(self, reason: str, count: int = 1) -> None:
        """Deliveries were not made."""
        self.unsent[reason] = self.unsent.get(reason, 0) + count

    def joined(self, channel: object, route: bytes, mode: int, by: int, before: tuple[int, int, int]) -> None:
        """A session of a route came to a channel (``by`` 1) or left it (-1).

        To be called for routes with an id, and for all while the channel is in ``routed``; ``before`` are its
        sessions by mode without this change.
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
        """An item is for the sessions of a channel: ``counts`` by mode (docs/grip.md §9: before filters and limits)."""
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
        """An item of ``size`` bytes was written to so many plain sessions of a channel."""
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

    def _written(self, figures: Figures, mode: int, sessions: int, size: int) -> None:
        figures.client_content_bytes_sent += sessions * size
        if mode == SOCKET:
            figures.client_messages_sent += sessions
