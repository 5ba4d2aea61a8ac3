"""Live model: the state of a service that the events of its stats sockets add up to, and the rates of its events.

Sans-I/O: messages come in with the time (monotonic seconds), snapshots go out. Publishers are not trusted: each
collection has a bound, with its policy beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from gripproxy.live.channel import MAX_CHANNELS, MODES, TRANSPORTS, Channels
from gripproxy.live.event import MAX_NAME, Malformed, flag, name, number, read, word
from gripproxy.live.instance import FOREVER, Instance, Subscription
from gripproxy.live.snapshot import EndpointRow, EventRow, Figure, InstanceRow, LogRow, Outcome, RouteRow, Snapshot

__all__ = ["MAX_EVENTS", "MAX_INSTANCES", "MAX_LOGGED", "MAX_PRESENT", "SETTLING", "SILENCE", "LiveModel"]

MAX_INSTANCES: Final = 100
"""Greatest number of instances; for a new one the instance that was silent longest is dropped with all it has."""
MAX_PRESENT: Final = 200_000
"""Greatest number of connections, and of subscriptions, over all instances; further ones are not counted."""
MAX_LOGGED: Final = 20
"""Greatest number of warnings and errors of the log that are kept: the last ones."""

CLASSES: Final = frozenset({"none", "1xx", "2xx", "3xx", "4xx", "5xx", "6xx", "7xx", "8xx", "9xx"})
"""Classes of responses; ``none``: the client left before."""

MAX_EVENTS: Final = 300
"""Number of last events kept."""
MAX_TEXT: Final = 300
"""Characters of the text of an event."""
MAX_KEPT: Final = 4096
"""Bytes of a message up to which its fields are kept for the text; of a longer one its length is."""
MAX_OUTCOMES: Final = 50
"""Greatest number of fields of ``delivery``, and of ``recovery``; further ones are ignored. There are some ten."""
HISTORY: Final = 60
"""Number of snapshots whose rates are kept."""

SETTLING: Final = 1.0
"""Seconds after connecting to a stats socket in which reported connections may be older: gripproxy sends the present
ones immediately. They do not count as new."""
SILENCE: Final = 15.0
"""Seconds without an event after which a socket counts as silent, at least; 2.5 times the duration of its reports."""
FORGET: Final = 300.0
"""Seconds without an event after which an instance without connections and subscriptions is dropped."""

RECOVERY: Final = {"requests": "recovery-requests"}
"""Names of fields of ``recovery`` where they are shown among those of ``delivery``."""

_KINDS: Final = ("http", "ws")


_Outcome = tuple[int, int, float | None]
"""Total, number in the last event, and time of the last event with a number above 0 (seconds; None: there was none)."""


@dataclass(slots=True)
class _Endpoint:
    """State of a stats socket, and the time since which it holds (seconds)."""

    since: float
    connected: bool = False
    was_connected: bool = False
    last: float | None = None
    why: str = ""
    overruns: int = 0


@dataclass(slots=True)
class _Totals:
    """Counts since the start of the view."""

    events: int = 0
    requests: int = 0
    new: int = 0
    gone: int = 0
    items: int = 0
    deliveries: int = 0
    activity: int = 0


@dataclass(slots=True)
class _Counts:
    """Counts by key, now and at the last snapshot."""

    totals: dict[str, int] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)

    def add(self, key: str, count: int) -> None:
        self.totals[key] = self.totals.get(key, 0) + count

    def figures(self, seconds: float) -> dict[str, Figure]:
        before, self.before = self.before, dict(self.totals)
        return {key: Figure((total - before.get(key, 0)) / seconds, total) for key, total in self.totals.items()}


class LiveModel:
    """State and counts of a service since ``now``.

    Args:
        endpoints: addresses of the stats sockets.
        now: time of the start in seconds.
        channels: greatest number of channels.
        present: greatest number of connections, and of subscriptions.
    """

    def __init__(
        self, endpoints: Sequence[str], now: float, channels: int = MAX_CHANNELS, present: int = MAX_PRESENT
    ) -> None:
        self._began = self._last = now
        self._endpoints = {endpoint: _Endpoint(now) for endpoint in endpoints}
        self._instances: dict[str, Instance] = {}
        self._channels = Channels(self._subscribers, channels)
        self._most = present
        self._connections = self._subscriptions = 0
        self._by_mode = dict.fromkeys(MODES, 0)
        self._totals = _Totals()
        self._before = _Totals()
        self._new_by_kind = dict.fromkeys(_KINDS, 0)
        self._by_transport = _Counts(dict.fromkeys(TRANSPORTS, 0))
        self._activity = _Counts()
        self._received = 0
        self._outcomes: dict[str, _Outcome] = {}
        self._recoveries: dict[str, _Outcome] = {}
        self._malformed = self._unknown = 0
        self._malformed_why = ""
        self._missed = 0
        """Missed events of instances that were dropped."""
        self._events: deque[tuple[float, str, str, Mapping[str, Any]]] = deque(maxlen=MAX_EVENTS)
        self._logged: deque[tuple[float, str, str, str, str]] = deque(maxlen=MAX_LOGGED)
        self._requests_history: deque[float] = deque(maxlen=HISTORY)
        self._deliveries_history: deque[float] = deque(maxlen=HISTORY)
        self._take: dict[str, Callable[[Instance, Mapping[str, Any], float], None]] = {
            "conn": self._conn,
            "sub": self._sub,
            "message": self._message,
            "activity": self._active,
            "counts": self._counts,
            "report": self._report,
            "delivery": self._delivery,
            "recovery": self._recovery,
            "responses": self._responses,
            "log": self._log,
        }

    # --- sockets

    def connected(self, endpoint: str, now: float) -> None:
        """Note that a stats socket is connected.

        Args:
            endpoint: its address.
            now: time in seconds.
        """
        state = self._endpoints[endpoint]
        state.connected = state.was_connected = True
        state.since, state.last, state.why = now, None, ""

    def disconnected(self, endpoint: str, now: float) -> None:
        """Note that the connection to a stats socket has ended: the next events may be of another instance.

        Args:
            endpoint: its address.
            now: time in seconds.
        """
        state = self._endpoints[endpoint]
        if state.connected:
            state.connected, state.since = False, now
        for instance in self._instances.values():
            if instance.endpoint == endpoint:
                instance.disconnected()

    def hindered(self, endpoint: str, why: str) -> None:
        """Note the reason why a stats socket cannot be connected."""
        self._endpoints[endpoint].why = why

    def overrun(self, endpoint: str) -> None:
        """Note that events of a stats socket may have been dropped because they were not read in time."""
        self._endpoints[endpoint].overruns += 1

    # --- events

    def take(self, endpoint: str, message: bytes, now: float) -> None:
        """Process a message of a stats socket.

        Args:
            endpoint: address of the socket.
            message: the message, which may be malformed.
            now: time in seconds.
        """
        state = self._endpoints[endpoint]
        state.last = now
        try:
            kind, fields = read(message)
            instance = self._instance(name(fields, "from"), endpoint, now)
            instance.last = now
            instance.events += 1
            self._totals.events += 1
            take = self._take.get(kind)
            if take is None:
                self._unknown += 1
            else:
                take(instance, fields, now)
            kept = fields if len(message) <= MAX_KEPT else {"bytes": len(message)}
            self._events.append((now, instance.source, kind, kept))
        except Malformed as e:
            self._malformed += 1
            self._malformed_why = str(e)

    def _instance(self, source: str, endpoint: str, now: float) -> Instance:
        instance = self._instances.get(source)
        if instance is not None:
            if instance.doubtful or instance.endpoint != endpoint:
                instance.doubtful, instance.endpoint = False, endpoint
            return instance
        # An unknown instance on a socket that was disconnected has replaced the former ones.
        for other in [one for one in self._instances.values() if one.doubtful and one.endpoint == endpoint]:
            self._forget(other)
        if len(self._instances) >= MAX_INSTANCES:
            self._forget(min(self._instances.values(), key=lambda one: one.last))
        instance = self._instances[source] = Instance(source, endpoint, now)
        return instance

    def _forget(self, instance: Instance) -> None:
        del self._instances[instance.source]
        self._connections -= len(instance.connections)
        for (mode, channel), subscription in instance.subscriptions.items():
            self._subscribed(mode, channel, -subscription.subscribers)
        self._subscriptions -= len(instance.subscriptions)
        self._missed += instance.missed or 0

    def _conn(self, instance: Instance, fields: Mapping[str, Any], now: float) -> None:
        cid = name(fields, "id")
        if flag(fields, "unavailable"):
            self._totals.gone += 1
            self._connections -= instance.ended(cid)
            return
        if self._connections >= self._most and cid not in instance.connections:
            return
        if not instance.connection(cid, fields, now):
            return
        self._connections += 1
        if now - self._endpoints[instance.endpoint].since >= SETTLING:
            self._totals.new += 1
            self._new_by_kind[instance.connections[cid].kind] += 1

    def _sub(self, instance: Instance, fields: Mapping[str, Any], now: float) -> None:
        mode, channel = name(fields, "mode"), name(fields, "channel")
        if mode not in MODES:
            raise Malformed("'mode' in it is neither response, stream nor ws")
        key, count = (mode, channel), 0
        if flag(fields, "unavailable"):
            old = instance.subscriptions.pop(key, None)
            self._subscriptions -= old is not None
        else:
            count, ttl = number(fields, "subscribers"), number(fields, "ttl", 0)
            if key not in instance.subscriptions and self._subscriptions >= self._most:
                return
            old = instance.subscriptions.pop(key, None)
            self._subscriptions += old is None
            instance.subscriptions[key] = Subscription(count, now + ttl if ttl else FOREVER)
        if count and self._channels.get(channel) is None:
            self._channels.need(channel, now)
            self._by_mode[mode] += count - (old.subscribers if old is not None else 0)
        else:
            self._subscribed(mode, channel, count - (old.subscribers if old is not None else 0))

    def _subscribed(self, mode: str, name: str, step: int) -> None:
        """Add ``step`` to the subscribers of a channel."""
        self._by_mode[mode] += step
        channel = self._channels.get(name)
        if channel is not None:
            channel.subscribers[MODES.index(mode)] += step

    def _subscribers(self, name: str) -> list[int]:
        """Return the numbers of subscribers of a channel by mode, over all instances."""
        counts = [0, 0, 0]
        for instance in self._instances.values():
            for place, mode in enumerate(MODES):
                subscription = instance.subscriptions.get((mode, name))
                if subscription is not None:
                    counts[place] += subscription.subscribers
        return counts

    def _message(self, instance: Instance, fields: Mapping[str, Any], now: float) -> None:
        transport, count = name(fields, "transport"), number(fields, "count")
        place = TRANSPORTS.get(transport)
        if place is None:
            raise Malformed("'transport' in it is none of those known")
        channel = self._channels.need(name(fields, "channel"), now)
        self._totals.items += channel.message(word(fields, "item-id"), place, count, now)
        self._totals.deliveries += count
        self._by_transport.add(transport, count)
        instance.deliveries += count

    def _active(self, instance: Instance, fields: Mapping[str, Any], now: float) -> None:
        count = number(fields, "count")
        self._totals.activity += count
        self._activity.add(instance.route(fields), count)

    def _counts(self, instance: Instance, fields: Mapping[str, Any], now: float) -> None:
        self._totals.requests += number(fields, "requests-received", 0)

    def _report(self, instance: Instance, fields: Mapping[str, Any], now: float) -> None:
        self._received += instance.report(fields, now).values.get("received", 0)

    def _delivery(self, instance: Instance, fields: Mapping[str, Any], now: float) -> None:
        self._add_outcomes(self._outcomes, fields, now)

    def _recovery(self, instance: Instance, fields: Mapping[str, Any], now: float) -> None:
        self._add_outcomes(self._recoveries, {RECOVERY.get(key, key): value for key, value in fields.items()}, now)

    def _add_outcomes(self, known: dict[str, _Outcome], fields: Mapping[str, Any], now: float) -> None:
        for key, count in {key: number(fields, key) for key, value in fields.items() if type(value) is int}.items():
            total, _, at = known.get(key, (0, 0, None))
            if key in known or (len(known) < MAX_OUTCOMES and len(key) <= MAX_NAME):
                known[key] = total + count, count, now if count else at

    def _responses(self, instance: Instance, fields: Mapping[str, Any], now: float) -> None:
        kind = name(fields, "class")
        if kind not in CLASSES:
            raise Malformed("'class' in it is none of those known")
        self._add_outcomes(self._recoveries, {f"responses-{kind}": number(fields, "count")}, now)

    def _log(self, instance: Instance, fields: Mapping[str, Any], now: float) -> None:
        process, level, text = (name(fields, key) for key in ("process", "level", "text"))
        self._logged.append((now, instance.source, process, level, text))

    # --- snapshots

    def snapshot(self, now: float) -> Snapshot:
        """Return all figures, with rates since the last snapshot.

        Args:
            now: time in seconds.
        """
        seconds = max(now - self._last, 0.001)
        self._last = now
        self._expire(now)
        totals, before = self._totals, self._before
        self._before = _Totals(**{key: getattr(totals, key) for key in _Totals.__slots__})

        def figure(key: str) -> Figure:
            total = getattr(totals, key)
            return Figure((total - getattr(before, key)) / seconds, total)

        requests, deliveries = figure("requests"), figure("deliveries")
        self._requests_history.append(requests.rate)
        self._deliveries_history.append(deliveries.rate)
        channels = self._channels.snapshot(now, seconds)
        instances = self._instances.values()
        reports = [r for one in instances for r in one.reports.values() if r.current(now)]
        wholes = [r for one in instances for route, r in one.reports.items() if not route and r.current(now)]
        kinds = self._kinds()
        sent = ("client-header-bytes-sent", "client-content-bytes-sent")
        return Snapshot(
            seconds=seconds,
            elapsed=now - self._began,
            endpoints=[self._endpoint_row(endpoint, now) for endpoint in self._endpoints],
            routes=self._route_rows(now, seconds),
            instances=[_instance_row(instance, now, seconds) for instance in instances],
            channels=channels,
            events=self._event_rows(now),
            logged=[LogRow(now - at, *rest) for at, *rest in reversed(self._logged)],
            http=kinds["http"],
            ws=kinds["ws"],
            tls=sum(instance.tls for instance in instances),
            connections_full=self._connections >= self._most,
            peak=sum(report.values.get("connections", 0) for report in reports) if reports else None,
            subscribers=dict(self._by_mode),
            subscribed=sum(1 for row in channels if row.subscribers),
            subscriptions_full=self._subscriptions >= self._most,
            channels_left_out=self._channels.left_out,
            settling=self._settling(now),
            requests=requests,
            new=figure("new"),
            new_by_kind=dict(self._new_by_kind),
            gone=figure("gone"),
            items=figure("items"),
            deliveries=deliveries,
            deliveries_by_transport=self._by_transport.figures(seconds),
            activity=figure("activity"),
            received=sum(report.rate("received") for report in wholes) if wholes else None,
            sent_bytes=sum(report.rate(*sent) for report in reports) if reports else None,
            received_total=self._received,
            outcomes=self._all_outcomes(now),
            all_events=figure("events"),
            malformed=self._malformed,
            malformed_why=self._malformed_why,
            unknown=self._unknown,
            missed=self._missed + sum(instance.missed or 0 for instance in instances),
            overruns=sum(endpoint.overruns for endpoint in self._endpoints.values()),
            requests_history=list(self._requests_history),
            deliveries_history=list(self._deliveries_history),
        )

    def _kinds(self) -> dict[str, int]:
        """Return the numbers of open connections by kind, over all instances."""
        kinds = dict.fromkeys(_KINDS, 0)
        for instance in self._instances.values():
            for (_, kind), count in instance.present.items():
                kinds[kind] += count
        return kinds

    def _event_rows(self, now: float) -> list[EventRow]:
        return [EventRow(now - at, source, kind, _words(fields)) for at, source, kind, fields in reversed(self._events)]

    def _all_outcomes(self, now: float) -> dict[str, Outcome]:
        found = dict(self._outcomes)
        for key, outcome in self._recoveries.items():
            # Both events count slow clients: ``recovery`` sooner, ``delivery`` also those without route and mode.
            found[key] = max(outcome, found.get(key, outcome), key=itemgetter(0))
        return {key: Outcome(total, n, None if at is None else now - at) for key, (total, n, at) in found.items()}

    def _expire(self, now: float) -> None:
        for instance in list(self._instances.values()):
            cids, keys = instance.expired(now)
            for cid in cids:
                instance.ended(cid)
            self._connections -= len(cids)
            for key in keys:
                self._subscribed(*key, -instance.subscriptions.pop(key).subscribers)
            self._subscriptions -= len(keys)
            if now - instance.last >= FORGET and not instance.connections and not instance.subscriptions:
                self._forget(instance)

    def _settling(self, now: float) -> float:
        """Return the seconds in which instances may still report connections that are older than the view."""
        left = 0.0
        for instance in self._instances.values():
            state = self._endpoints[instance.endpoint]
            if state.connected and not instance.reports_present_state:
                left = max(left, state.since + 0.75 * instance.ttl - now)
        return left

    def _endpoint_row(self, endpoint: str, now: float) -> EndpointRow:
        state = self._endpoints[endpoint]
        if not state.connected:
            return EndpointRow(endpoint, "lost" if state.was_connected else "waiting", now - state.since, state.why)
        if state.last is None:
            return EndpointRow(endpoint, "connected", now - state.since, "")
        intervals = [
            report.values["duration"] / 1000
            for instance in self._instances.values()
            if instance.endpoint == endpoint
            for report in instance.reports.values()
        ]
        quiet = now - state.last
        patience = min(max(SILENCE, 2.5 * max(intervals, default=0.0)), FORGET)
        return EndpointRow(endpoint, "silent" if quiet >= patience else "live", quiet, "")

    def _route_rows(self, now: float, seconds: float) -> list[RouteRow]:
        active = self._activity.figures(seconds)
        instances = self._instances.values()
        names = {route for one in instances for route, _ in one.present}
        names.update(active, (route for one in instances for route, r in one.reports.items() if r.current(now)))
        rows = []
        for route in sorted(names):
            reports = [one.reports[route] for one in instances if route in one.reports]
            reports = [report for report in reports if report.current(now)]
            http, ws = (sum(one.present.get((route, kind), 0) for one in instances) for kind in _KINDS)

            def bytes_of(side: str, way: str, reports: list[Any] = reports) -> float | None:
                keys = (f"{side}-header-bytes-{way}", f"{side}-content-bytes-{way}")
                return sum(report.rate(*keys) for report in reports) if reports else None

            rows.append(
                RouteRow(
                    route,
                    http,
                    ws,
                    active.get(route, Figure(0.0, 0)),
                    sum(report.values.get("connections", 0) for report in reports) if reports else None,
                    sum(report.rate("sent") for report in reports) if reports else None,
                    bytes_of("client", "sent"),
                    bytes_of("client", "received"),
                    bytes_of("server", "sent"),
                    bytes_of("server", "received"),
                )
            )
        return rows


def _instance_row(instance: Instance, now: float, seconds: float) -> InstanceRow:
    before, instance.before = instance.before, (instance.events, instance.deliveries)
    return InstanceRow(
        instance.source,
        instance.endpoint,
        len(instance.connections),
        len(instance.subscriptions),
        Figure((instance.deliveries - before[1]) / seconds, instance.deliveries),
        Figure((instance.events - before[0]) / seconds, instance.events),
        instance.missed,
        now - instance.last,
        min((now - report.at for report in instance.reports.values()), default=None),
    )


def _words(fields: Mapping[str, Any]) -> str:
    """Return the fields of an event as text, without zeros, of which reports have many."""
    words = " ".join(f"{key}={value}" for key, value in fields.items() if key != "from" and value != 0)
    return words[:MAX_TEXT]
