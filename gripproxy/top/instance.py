"""One instance, as its events show it: connections, subscriptions, reports, and how much of what it sent arrived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gripproxy.top.event import Malformed, flag, name, number, word

__all__ = ["FOREVER", "MAX_ROUTES", "Connection", "Instance", "Report", "Subscription"]

MAX_ROUTES: Final = 500
"""Route ids told apart; the routes file has them, so that more is somebody's mistake. Further ones count as OTHERS."""
OTHERS: Final = "(others)"

STALE: Final = 2.5
"""A report stands for the present until so many times its own duration have passed, and at least STALE_MIN seconds."""
STALE_MIN: Final = 5.0

FOREVER: Final = float("inf")


class Connection(NamedTuple):
    """A connection that is there, until it is said again or ``until`` (seconds) has come."""

    kind: str
    route: str
    tls: bool
    until: float


class Subscription(NamedTuple):
    """Subscribers of one mode of one channel, until that is said again or ``until`` (seconds) has come."""

    subscribers: int
    until: float


class Report(NamedTuple):
    """The last report of a route id: its figures, and when it came."""

    values: Mapping[str, int]
    at: float

    def current(self, now: float) -> bool:
        """Whether it says something of the present."""
        return now - self.at <= max(STALE_MIN, STALE * self.values["duration"] / 1000)

    def rate(self, *keys: str) -> float:
        """Return figures of it, added up, per second."""
        return sum(self.values.get(key, 0) for key in keys) * 1000 / max(1, self.values["duration"])


class Instance:
    """One instance, heard through ``endpoint`` since ``now`` (seconds, as everywhere)."""

    def __init__(self, source: str, endpoint: str, now: float) -> None:
        self.source = source
        self.endpoint = endpoint
        self.last = now
        """When its last event came."""
        self.doubtful = False
        """The connection broke since: it may not be there any more."""
        self.events = self.deliveries = 0
        self.before = (0, 0)
        self.connections: dict[str, Connection] = {}
        """By id, in the order in which they were said last."""
        self.present: dict[tuple[str, str], int] = {}
        """How many connections there are by route and kind."""
        self.tls = 0
        self.ttl = 0
        """Of connections; 0: they are not said again."""
        self.subscriptions: dict[tuple[str, str], Subscription] = {}
        """By mode and channel, in the order in which they were said last."""
        self.reports: dict[str, Report] = {}
        self.missed: int | None = None
        self._sent: int | None = None
        self._arrived = 0
        self._routes: set[str] = set()

    @property
    def tells_all_at_once(self) -> bool:
        """Whether whoever subscribes is told at once what is there, and not only in the course of its ttl."""
        return self.source.startswith("gripproxy")

    def route(self, fields: Mapping[str, Any]) -> str:
        """Return the route id of an event, empty if it has none. Raises Malformed."""
        route = word(fields, "route")
        if route in self._routes or not route:
            return route
        if len(self._routes) >= MAX_ROUTES:
            return OTHERS
        self._routes.add(route)
        return route

    # --- connections

    def connection(self, cid: str, fields: Mapping[str, Any], now: float) -> bool:
        """A connection is there. Returns whether it was unknown. Raises Malformed."""
        kind, tls, ttl = name(fields, "type"), flag(fields, "ssl"), number(fields, "ttl", 0)
        self.ttl = ttl
        if kind not in ("http", "ws"):
            raise Malformed("'type' in it is neither http nor ws")
        route = self.route(fields)
        old = self.connections.pop(cid, None)
        if old is not None:
            # Pushpin 1.36 leaves the route out as soon as the connection is held.
            route = route or old.route
            self._count(old, -1)
        new = self.connections[cid] = Connection(kind, route, tls, now + ttl if ttl else FOREVER)
        self._count(new, 1)
        return old is None

    def ended(self, cid: str) -> bool:
        """A connection is over. Returns whether it was known."""
        old = self.connections.pop(cid, None)
        if old is not None:
            self._count(old, -1)
        return old is not None

    def _count(self, connection: Connection, step: int) -> None:
        key = connection.route, connection.kind
        count = self.present.get(key, 0) + step
        if count:
            self.present[key] = count
        else:
            self.present.pop(key, None)
        self.tls += step * connection.tls

    def expired(self, now: float) -> tuple[list[str], list[tuple[str, str]]]:
        """Return ids of connections, and modes and channels, whose time is over without having been said again."""
        cids, keys = [], []
        # Those said longest ago stand first, and one instance has one ttl of each kind.
        for cid, connection in self.connections.items():
            if connection.until > now:
                break
            cids.append(cid)
        for key, subscription in self.subscriptions.items():
            if subscription.until > now:
                break
            keys.append(key)
        return cids, keys

    # --- reports

    def report(self, fields: Mapping[str, Any], now: float) -> Report:
        """Take in a report. Raises Malformed."""
        values = {key: number(fields, key) for key, value in fields.items() if type(value) is int}
        values["duration"] = number(fields, "duration")
        route = self.route(fields)
        report = self.reports[route] = Report(values, now)
        if not route and "events-sent" in values:
            self._compare(values["events-sent"])
        return report

    def _compare(self, sent: int) -> None:
        """It says how many events it has sent; this one is among them."""
        arrived, self._arrived = self._arrived, self.events
        before, self._sent = self._sent, sent
        if before is None or sent < before:
            self.missed = self.missed or 0
        else:
            self.missed = (self.missed or 0) + max(0, sent - before - (self.events - arrived))

    def lost_sight(self) -> None:
        """The connection broke: what was sent meanwhile was not for us."""
        self.doubtful = True
        self._sent = None
