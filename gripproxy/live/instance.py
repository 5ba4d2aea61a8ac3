"""Instance: the state of a gripproxy or Pushpin by its events: connections, subscriptions, reports, missed events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gripproxy.live.event import Malformed, flag, name, number, word

__all__ = ["FOREVER", "MAX_ROUTES", "Connection", "Instance", "Report", "Subscription"]

MAX_ROUTES: Final = 500
"""Greatest number of route ids, which are those of the routes file; further ones count as OTHERS."""
OTHERS: Final = "(others)"

STALE: Final = 2.5
"""Age of a report, in multiples of its duration, up to which it counts as current."""
STALE_MIN: Final = 5.0
"""Age of a report in seconds up to which it counts as current in any case."""

FOREVER: Final = float("inf")


class Connection(NamedTuple):
    """An open connection; it expires at ``until`` (seconds) unless it is reported again."""

    kind: str
    route: str
    tls: bool
    until: float


class Subscription(NamedTuple):
    """Subscribers of a mode of a channel; expires at ``until`` (seconds) unless it is reported again."""

    subscribers: int
    until: float


class Report(NamedTuple):
    """The last report of a route id: its figures, and its time of arrival in seconds."""

    values: Mapping[str, int]
    at: float

    def current(self, now: float) -> bool:
        """Return whether the report is recent enough to count as current.

        Args:
            now: time in seconds.
        """
        return now - self.at <= max(STALE_MIN, STALE * self.values["duration"] / 1000)

    def rate(self, *keys: str) -> float:
        """Return the sum of the figures named ``keys``, per second."""
        return sum(self.values.get(key, 0) for key in keys) * 1000 / max(1, self.values["duration"])


class Instance:
    """State of one instance.

    Args:
        source: its name, the field ``from``.
        endpoint: address of its stats socket.
        now: time of its first event in seconds.
    """

    def __init__(self, source: str, endpoint: str, now: float) -> None:
        self.source = source
        self.endpoint = endpoint
        self.last = now
        """Time of its last event in seconds."""
        self.doubtful = False
        """True once its stats socket was disconnected, until its next event: it may have ended."""
        self.events = self.deliveries = 0
        self.before = (0, 0)
        self.connections: dict[str, Connection] = {}
        """Open connections by id, in order of their last event."""
        self.present: dict[tuple[str, str], int] = {}
        """Numbers of open connections by route and kind."""
        self.tls = 0
        self.ttl = 0
        """Seconds after which a connection is reported again at the latest; 0: never."""
        self.subscriptions: dict[tuple[str, str], Subscription] = {}
        """Subscriptions by mode and channel, in order of their last event."""
        self.reports: dict[str, Report] = {}
        self.missed: int | None = None
        self._sent: int | None = None
        self._arrived = 0
        self._routes: set[str] = set()

    @property
    def reports_present_state(self) -> bool:
        """True if it sends its present state to new subscribers immediately, and not in the course of the ttl."""
        return self.source.startswith("gripproxy")

    def route(self, fields: Mapping[str, Any]) -> str:
        """Return the route id of an event, empty if it has none.

        Args:
            fields: of the event.

        Raises:
            Malformed: the route is not text.
        """
        route = word(fields, "route")
        if route in self._routes or not route:
            return route
        if len(self._routes) >= MAX_ROUTES:
            return OTHERS
        self._routes.add(route)
        return route

    # --- connections

    def connection(self, cid: str, fields: Mapping[str, Any], now: float) -> bool:
        """Add or renew an open connection.

        Args:
            cid: its id.
            fields: of the event ``conn``.
            now: time in seconds.

        Returns:
            Whether the connection was unknown.

        Raises:
            Malformed: a field is missing or has a wrong value.
        """
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
        """Return whether the connection ``cid`` was known, and remove it: it has ended."""
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
        """Return the expired connections (ids) and subscriptions (modes and channels).

        Args:
            now: time in seconds.
        """
        cids, keys = [], []
        # In order of their last event, and an instance has one ttl of each kind: the first ones expire first.
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
        """Set the last report of a route.

        Args:
            fields: of the event ``report``.
            now: time in seconds.

        Returns:
            The report.

        Raises:
            Malformed: a field is missing or has a wrong value.
        """
        values = {key: number(fields, key) for key, value in fields.items() if type(value) is int}
        values["duration"] = number(fields, "duration")
        route = self.route(fields)
        report = self.reports[route] = Report(values, now)
        if not route and "events-sent" in values:
            self._compare(values["events-sent"])
        return report

    def _compare(self, sent: int) -> None:
        """Compare the events that the instance has sent, the last report included, with those that arrived."""
        arrived, self._arrived = self._arrived, self.events
        before, self._sent = self._sent, sent
        if before is None or sent < before:
            self.missed = self.missed or 0
        else:
            self.missed = (self.missed or 0) + max(0, sent - before - (self.events - arrived))

    def disconnected(self) -> None:
        """Note that its stats socket was disconnected: events sent meanwhile do not count as missed."""
        self.doubtful = True
        self._sent = None
