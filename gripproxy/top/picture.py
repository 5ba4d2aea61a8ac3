"""What the events of all stats sockets add up to: what is there, and how much happens.

No sockets and no clock: messages come in with the time (monotonic seconds), snapshots go out. Nothing here grows
without a bound, whoever publishes: beside each bound stands what happens to what is too much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from gripproxy.top.channel import MAX_CHANNELS, MODES, TRANSPORTS, Channels
from gripproxy.top.event import MAX_NAME, Malformed, flag, name, number, read, word
from gripproxy.top.instance import FOREVER, Instance, Subscription
from gripproxy.top.snapshot import EndpointRow, EventRow, Figure, InstanceRow, Outcome, RouteRow, Snapshot

__all__ = ["MAX_EVENTS", "MAX_INSTANCES", "MAX_PRESENT", "SETTLING", "SILENCE", "Picture"]

MAX_INSTANCES: Final = 100
"""Instances kept in mind; the one that was silent longest goes for a new one, with all it has."""
MAX_PRESENT: Final = 200_000
"""Connections, and subscriptions, kept in mind over all instances; figures of further ones are too low, and say so."""
MAX_EVENTS: Final = 300
"""Last events kept, so many characters of each."""
MAX_TEXT: Final = 300
MAX_KEPT: Final = 4096
"""Bytes of a message whose fields are kept until they are looked at."""
MAX_OUTCOMES: Final = 50
"""Fields of ``delivery``, and of ``recovery``, that are kept; further ones are left out. There are some ten."""
HISTORY: Final = 60
"""Snapshots whose rates are kept."""

SETTLING: Final = 1.0
"""Seconds behind a new connection to a stats socket in which connections that are told of may have been there before:
gripproxy tells at once. They do not count as new."""
SILENCE: Final = 15.0
"""Seconds without an event after which a socket counts as silent, or STALE times the duration of its reports."""
FORGET: Final = 300.0
"""Seconds without an event after which an instance goes that has nothing there."""

RECOVERY: Final = {"requests": "recovery-requests"}
"""Names of fields of ``recovery`` among those of ``delivery``."""

_KINDS: Final = ("http", "ws")


_Outcome = tuple[int, int, float | None]
"""In all, in the last event, and when there last was something."""


@dataclass(slots=True)
class _Endpoint:
    """A stats socket: whether it is connected, and since when it is as it is (seconds)."""

    since: float
    connected: bool = False
    was_connected: bool = False
    last: float | None = None
    why: str = ""
    overruns: int = 0


@dataclass(slots=True)
class _Totals:
    """Counts since the view began."""

    events: int = 0
    requests: int = 0
    new: int = 0
    gone: int = 0
    items: int = 0
    deliveries: int = 0
    activity: int = 0


@dataclass(slots=True)
class _Counts:
    """Counts of something told apart, and as they were at the last snapshot."""

    totals: dict[str, int] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)

    def add(self, key: str, count: int) -> None:
        self.totals[key] = self.totals.get(key, 0) + count

    def figures(self, seconds: float) -> dict[str, Figure]:
        before, self.before = self.before, dict(self.totals)
        return {key: Figure((total - before.get(key, 0)) / seconds, total) for key, total in self.totals.items()}


class Picture:
    """Everything seen since it was made at ``now``, over the ``endpoints``.

    ``channels``: how many are kept in mind; ``present``: how many connections, and how many subscriptions.
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
        """By instances that are forgotten."""
        self._events: deque[tuple[float, str, str, Mapping[str, Any]]] = deque(maxlen=MAX_EVENTS)
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
        }

    # --- sockets

    def connected(self, endpoint: str, now: float) -> None:
        """A stats socket answers (again)."""
        state = self._endpoints[endpoint]
        state.connected = state.was_connected = True
        state.since, state.last, state.why = now, None, ""

    def disconnected(self, endpoint: str, now: float) -> None:
        """Its connection broke: what comes next may be from another instance."""
        state = self._endpoints[endpoint]
        if state.connected:
            state.connected, state.since = False, now
        for instance in self._instances.values():
            if instance.endpoint == endpoint:
                instance.lost_sight()

    def hindered(self, endpoint: str, why: str) -> None:
        """It cannot be connected to, for that reason."""
        self._endpoints[endpoint].why = why

    def overrun(self, endpoint: str) -> None:
        """So much waited to be read that something may have been dropped."""
        self._endpoints[endpoint].overruns += 1

    # --- events

    def take(self, endpoint: str, message: bytes, now: float) -> None:
        """Take in one message of a stats socket, of any content."""
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
        # Behind a broken connection there is somebody else now.
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
        """There are so many more subscribers of a channel."""
        self._by_mode[mode] += step
        channel = self._channels.get(name)
        if channel is not None:
            channel.subscribers[MODES.index(mode)] += step

    def _subscribers(self, name: str) -> list[int]:
        """Return how many subscribers a channel has, by mode, over all instances."""
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
        self._became(self._outcomes, fields, now)

    def _recovery(self, instance: Instance, fields: Mapping[str, Any], now: float) -> None:
        self._became(self._recoveries, {RECOVERY.get(key, key): value for key, value in fields.items()}, now)

    def _became(self, known: dict[str, _Outcome], fields: Mapping[str, Any], now: float) -> None:
        for key, count in {key: number(fields, key) for key, value in fields.items() if type(value) is int}.items():
            total, _, at = known.get(key, (0, 0, None))
            if key in known or (len(known) < MAX_OUTCOMES and len(key) <= MAX_NAME):
                known[key] = total + count, count, now if count else at

    # --- the picture

    def snapshot(self, now: float) -> Snapshot:
        """Return all figures of now, with rates since the snapshot before."""
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
        kinds = dict.fromkeys(_KINDS, 0)
        for instance in instances:
            for (_, kind), count in instance.present.items():
                kinds[kind] += count
        return Snapshot(
            seconds=seconds,
            watched=now - self._began,
            endpoints=[self._endpoint_row(endpoint, now) for endpoint in self._endpoints],
            routes=self._route_rows(now, seconds),
            instances=[_instance_row(instance, now, seconds) for instance in instances],
            channels=channels,
            events=[
                EventRow(now - at, source, kind, _words(fields)) for at, source, kind, fields in reversed(self._events)
            ],
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
            sent_bytes=sum(r.rate("client-header-bytes-sent", "client-content-bytes-sent") for r in reports)
            if reports
            else None,
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

    def _all_outcomes(self, now: float) -> dict[str, Outcome]:
        found = dict(self._outcomes)
        for key, outcome in self._recoveries.items():
            # Slow clients are told by both: sooner by the one, and by the other also those without route and mode.
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
        """Return how long it may still take until all that is there was told of."""
        left = 0.0
        for instance in self._instances.values():
            state = self._endpoints[instance.endpoint]
            if state.connected and not instance.tells_all_at_once:
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
    """Return the fields of an event as text, without zeros, which reports are full of."""
    words = " ".join(f"{key}={value}" for key, value in fields.items() if key != "from" and value != 0)
    return words[:MAX_TEXT]
