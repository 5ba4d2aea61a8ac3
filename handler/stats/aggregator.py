"""Aggregator of statistics: the figures of all workers, and the events made of them (docs/grip.md §9).

Sans-I/O: figures come in with the time, events go out through a ``Sink``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from gripproxy.grip.item import Item
from gripproxy.grip.stats_format import FIGURES, RECOVERY, Rounds, blocks, contents
from gripproxy.pipe import RESPONSE, SOCKET, STREAM
from handler.stats.response_counts import OTHERS, ROUTES_MAX, ResponseCounts, class_name

__all__ = ["BEAT", "KINDS", "ChannelCounts", "NoSink", "Sink", "StatsAggregator", "StatsSettings"]

BEAT: Final = 0.1
"""Seconds between two calls of ``beat``."""

SETTLE: Final = 0.9
"""Seconds after which a changed number of subscribers is reported; the protocol requires about one."""

SLICE: Final = 1000
"""Events sent in a turn of the loop when there are many: a few milliseconds."""

KINDS: Final = ("conn", "sub", "message", "activity", "counts", "report", "delivery", "recovery", "responses", "log")
"""Types of events. The last four are extensions: outcomes of deliveries, recoveries of sessions, responses by reason,
and warnings and errors of the log."""

MODES: Final = {RESPONSE: b"response", STREAM: b"stream", SOCKET: b"ws"}
TRANSPORTS: Final = {RESPONSE: b"http-response", STREAM: b"http-stream", SOCKET: b"ws-message"}

REPORTED: Final = FIGURES[2:]
"""Figures of a report; the first two of FIGURES have their own events."""

Fields = dict[str, Any]

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class StatsSettings:
    """Settings of the statistics.

    Attributes:
        source: the field ``from``.
        connection_ttl: ``stats_connection_ttl`` in seconds.
        subscription_ttl: ``stats_subscription_ttl`` in seconds.
        report_interval: ``stats_report_interval`` in seconds; 0 for no reports.
        block_size: ``message_block_size`` in bytes; 0 for no blocks.
    """

    source: bytes = b"gripproxy-handler"
    connection_ttl: int = 120
    subscription_ttl: int = 60
    report_interval: int = 10
    block_size: int = 0


class ChannelCounts(Protocol):
    """The subscriptions of one channel."""

    @property
    def workers(self) -> Mapping[Any, tuple[int, int, int]]:
        """Numbers of responses, streams and sockets, by worker."""

    @property
    def linger_until(self) -> float:
        """Time until which the channel stays subscribed without sessions, in seconds of the caller's clock."""


class Sink(Protocol):
    """Receiver of events."""

    sent: int
    """Events sent so far."""

    def send(self, kind: str, fields: Fields) -> None:
        """Send one event.

        Args:
            kind: one of KINDS.
            fields: values are bytes, ints and True.
        """


class NoSink:
    """A sink that drops all events: no stats socket is configured."""

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = 0

    def send(self, kind: str, fields: Fields) -> None:
        """Drop the event."""


class _Account:
    """Figures of a route id since its last report, and the number of connections of each worker."""

    __slots__ = ("now", "peak", "since", "values", "workers")

    def __init__(self, since: float) -> None:
        self.since = since
        self.values = [0] * len(FIGURES)
        self.workers: dict[Any, int] = {}
        self.now = self.peak = 0

    def report(self, worker: Any, present: int, peak: int) -> None:
        """Set the number of connections of a worker, and raise the peak."""
        others = self.now - self.workers.get(worker, 0)
        self.peak = max(self.peak, others + peak)
        self.now = others + present
        if present:
            self.workers[worker] = present
        else:
            self.workers.pop(worker, None)

    def lost(self, worker: Any) -> None:
        """Remove the connections of a worker."""
        self.now -= self.workers.pop(worker, 0)

    def restart(self, now: float) -> None:
        """Begin the next interval of reports."""
        self.values = [0] * len(FIGURES)
        self.peak = self.now
        self.since = now


class _Reported:
    """Subscribers of a mode on a channel: their number, and the one reported last; both 0 while the channel lingers."""

    __slots__ = ("count", "reported")

    def __init__(self, count: int) -> None:
        self.count = count
        self.reported = 0


class StatsAggregator(Generic[W]):
    """Statistics of all workers. ``W`` stands for a worker, compared by identity.

    Events of kinds without subscribers are not sent.

    Args:
        settings: identity, times and block size.
        sink: where events go; by default they are dropped.
        clock: the time in seconds.
    """

    def __init__(
        self,
        settings: StatsSettings,
        sink: Sink | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._sink = sink or NoSink()
        self._emit = self._sink.send
        self.wanted: frozenset[str] = frozenset()
        """Kinds of events that have a subscriber."""
        self.totals = dict.fromkeys(FIGURES, 0)
        """Figures of all routes and workers since the handler started."""
        self.blocks_received = 0
        """Blocks of items received since the last report."""
        self._received = 0
        self._accounts: dict[bytes, _Account] = {}
        self._requests = 0
        self._activity: dict[bytes, int] = {}
        self._connections: dict[W, dict[bytes, bytes]] = {}
        self._subscribers: dict[tuple[int, bytes], _Reported] = {}
        self._rounds: Rounds[tuple[int, bytes]] = Rounds(settings.subscription_ttl)
        self._changed: dict[tuple[int, bytes], float] = {}
        self._backlog: deque[Iterator[bool]] = deque()
        self._delivery: dict[str, int] = {}
        self._sent_then = 0
        self._recovery: dict[tuple[bytes, int], list[int]] = {}
        self.requests: dict[bytes, int] = {}
        """Requests and WebSockets by route id since the start; ROUTES_MAX of them, then OTHERS."""
        self.responses = ResponseCounts()
        """Responses to clients since the handler started, by route id, then by first digit of the status and reason."""

    # --- subscribers of events

    def listen(self, kinds: Set[str], fresh: Set[str], channels: Mapping[bytes, ChannelCounts]) -> bool:
        """Set the kinds of events that have subscribers, and report the present state to new ones.

        Args:
            kinds: all kinds that have subscribers.
            fresh: kinds that have a new subscriber; the present state of these is sent in the next turns.
            channels: all subscribed channels.

        Returns:
            Whether WATCH has to be sent to the workers, with ``reporting``.
        """
        before = self.reporting
        self.wanted = frozenset(kinds)
        if "sub" in fresh:
            self._backlog.append(self._present(channels))
        elif "sub" not in kinds:
            self._subscribers.clear()
            self._rounds.clear()
            self._changed.clear()
        if "conn" not in self.wanted:
            self._connections.clear()
        return self.reporting != before or not fresh.isdisjoint(("conn", "sub"))

    @property
    def reporting(self) -> tuple[bool, bool]:
        """Arguments of WATCH: whether workers report each connection, and whether they report counts immediately."""
        return "conn" in self.wanted, not self.wanted.isdisjoint(("sub", "message"))

    # --- workers

    def figures(self, worker: W, message: tuple[Any, ...], now: float) -> None:
        """Add the FIGURES of a worker.

        Args:
            worker: the sender.
            message: the message.
            now: time in seconds.

        Raises:
            ValueError: the message has the wrong shape.
        """
        _, route, present, peak, *values = message
        if len(values) != len(FIGURES):
            raise ValueError(f"{len(values)} figures, expected {len(FIGURES)}")
        account = self._accounts.get(route)
        if account is None:
            if not peak and not any(values):
                return
            account = self._accounts[route] = _Account(now)
        account.report(worker, present, peak)
        totals, sums = self.totals, account.values
        for place, value in enumerate(values):
            if value:
                sums[place] += value
                totals[FIGURES[place]] += value
        if values[0]:
            self._requests += values[0]
            known = self.requests
            name = route if route in known or len(known) < ROUTES_MAX else OTHERS
            known[name] = known.get(name, 0) + values[0]
        if values[1]:
            self._activity[route] = self._activity.get(route, 0) + values[1]

    @property
    def connections(self) -> int:
        """Number of open connections, over all routes."""
        return sum(account.now for account in self._accounts.values())

    def connection_events(self, worker: W, events: Iterable[tuple[Any, ...]]) -> None:
        """Add the CONNECTIONS of a worker.

        Args:
            worker: the sender.
            events: (id, route) of closed connections; (id, route, WebSocket?, peer, TLS?) of open ones.

        Raises:
            ValueError: an event has the wrong shape.
            TypeError: an event has the wrong shape.
        """
        if "conn" not in self.wanted:
            return
        known = self._connections.setdefault(worker, {})
        for event in events:
            if len(event) == 2:
                if known.pop(event[0], None) is not None:
                    self._gone(*event)
                continue
            cid, route, socket, peer, tls = event
            known[cid] = route
            fields = self._fields(route)
            fields["id"] = cid
            fields["type"] = b"ws" if socket else b"http"
            if peer:
                fields["peer-address"] = peer
            if tls:
                fields["ssl"] = True
            fields["ttl"] = self.settings.connection_ttl
            self._emit("conn", fields)

    def left(self, worker: W) -> None:
        """Remove a worker whose connection has ended, and report its client connections as closed."""
        for account in self._accounts.values():
            account.lost(worker)
        known = self._connections.pop(worker, None)
        if known:
            self._backlog.append(self._all_gone(known))

    def _gone(self, cid: bytes, route: bytes) -> None:
        self._emit("conn", {**self._fields(route), "id": cid, "unavailable": True})

    def _fields(self, route: bytes = b"") -> Fields:
        if route:
            return {"from": self.settings.source, "route": route}
        return {"from": self.settings.source}

    # --- items

    def received(self, item: Item) -> None:
        """Count the blocks of a received item; called if ``block_size`` is set."""
        self.blocks_received += max(
            blocks(item, content or b"", self.settings.block_size) for content in contents(item)
        )

    def released(self, item: Item, entry: ChannelCounts) -> None:
        """Send the events of an item that is sent to workers; called if ``message`` is in ``wanted``.

        Args:
            item: the item.
            entry: subscribers of its channel.
        """
        for mode, content in enumerate(contents(item)):
            count = 0 if content is None else sum(counts[mode] for counts in entry.workers.values())
            if content is None or not count:
                continue
            fields = self._fields()
            fields["channel"] = item.channel
            if item.id is not None:
                fields["item-id"] = item.id
            fields["transport"] = TRANSPORTS[mode]
            fields["count"] = count
            if self.settings.block_size:
                fields["blocks"] = count * blocks(item, content, self.settings.block_size)
            self._emit("message", fields)

    # --- recoveries

    def recovered(self, deltas: Iterable[tuple[bytes, int, Iterable[int]]]) -> None:
        """Add the recoveries reported by a worker.

        Args:
            deltas: route id, mode, and numbers in the order of RECOVERY.

        Raises:
            ValueError: a delta has the wrong shape.
            TypeError: a delta has the wrong shape.
        """
        for route, mode, numbers in deltas:
            sums = self._recovery.setdefault((route, mode), [0] * len(RECOVERY))
            for place, number in zip(range(len(RECOVERY)), numbers, strict=True):
                sums[place] += number

    # --- log

    def logged(self, reports: Iterable[tuple[str, str, str, str]]) -> None:
        """Send the event ``log`` for warnings and errors of processes.

        Args:
            reports: name of the process, level, name of the event, and text of each.

        Raises:
            ValueError: a report has the wrong shape.
        """
        for process, level, event, text in reports:
            if "log" in self.wanted:
                fields: Fields = {**self._fields(), "process": process.encode(), "level": level.encode()}
                self._emit("log", fields | {"event": event.encode(), "text": text.encode("utf-8", "replace")})

    # --- subscriptions

    def changed(self, channel: bytes, entry: ChannelCounts) -> None:
        """Compare the subscribers of a channel with the reported ones, and send due events.

        Called if ``sub`` is in ``wanted``.

        Args:
            channel: the channel.
            entry: its subscribers.
        """
        now = self._clock()
        for mode in MODES:
            count = sum(counts[mode] for counts in entry.workers.values())
            key = (mode, channel)
            known = self._subscribers.get(key)
            if known is None:
                if count:
                    self._subscribers[key] = _Reported(count)
                    self._subscribed(key, now)
            elif count:
                known.count = count
                if not known.reported:
                    # The first subscriber since the channel lingers.
                    self._subscribed(key, now)
                elif count != known.reported:
                    self._changed.setdefault(key, now)
            elif mode == RESPONSE and entry.linger_until > now:
                known.count = known.reported = 0
            else:
                del self._subscribers[key]
                self._changed.pop(key, None)
                self._rounds.gone(key)
                self._emit("sub", self._unsubscribed(key))

    def _subscribed(self, key: tuple[int, bytes], now: float) -> None:
        known = self._subscribers[key]
        known.reported = known.count
        self._changed.pop(key, None)
        self._rounds.said(key, now)
        fields = self._fields()
        fields["mode"], fields["channel"] = MODES[key[0]], key[1]
        fields["ttl"] = self.settings.subscription_ttl
        fields["subscribers"] = known.count
        self._emit("sub", fields)

    def _unsubscribed(self, key: tuple[int, bytes]) -> Fields:
        fields = self._fields()
        fields["mode"], fields["channel"] = MODES[key[0]], key[1]
        fields["unavailable"] = True
        return fields

    # --- time

    def beat(self, now: float) -> None:
        """Send the events that are due; called every BEAT seconds.

        Args:
            now: time in seconds.
        """
        wanted = self.wanted
        activity, self._activity = self._activity, {}
        requests, self._requests = self._requests, 0
        if "activity" in wanted:
            for route, count in activity.items():
                self._emit("activity", {**self._fields(route), "count": count})
        if "counts" in wanted and requests:
            self._emit("counts", {**self._fields(), "requests-received": requests})
        if self._recovery:
            recovery, self._recovery = self._recovery, {}
            if "recovery" in wanted:
                for (route, mode), numbers in recovery.items():
                    fields = {**self._fields(route), "transport": TRANSPORTS[mode]}
                    self._emit("recovery", {**fields, **dict(zip(RECOVERY, numbers, strict=True))})
        if "sub" in wanted:
            settled = now - SETTLE
            for key in [key for key, since in self._changed.items() if since <= settled]:
                del self._changed[key]
                known = self._subscribers[key]
                if known.count != known.reported:
                    self._subscribed(key, now)
            for key in self._rounds.due(now, BEAT):
                self._subscribed(key, now)

    def report(self, received: int, delivery: Mapping[str, int], now: float) -> None:
        """Send the reports; called every ``report_interval`` seconds.

        Args:
            received: items received since the start, without duplicates.
            delivery: totals of the event ``delivery``, by field.
            now: time in seconds.
        """
        reported, self._delivery = self._delivery, dict(delivery)
        deltas = {name: total - reported.get(name, 0) for name, total in delivery.items()}
        if "delivery" in self.wanted and any(deltas.values()):
            self._emit("delivery", {**self._fields(), **deltas})
        responses = self.responses.take()
        if "responses" in self.wanted:
            for each in responses:
                fields = {"class": class_name(each.kind).encode(), "reason": each.reason.encode(), "count": each.number}
                self._emit("responses", self._fields(each.route) | fields)
        items, self._received = received - self._received, received
        # The report without route has the number of events sent, so it follows any other event.
        others = self._accounts.pop(b"", None)
        if others is None and (items or self.blocks_received or self._accounts or self._sink.sent != self._sent_then):
            others = _Account(now - self.settings.report_interval)
        if others is not None:
            self._accounts[b""] = others
        for route, account in list(self._accounts.items()):
            received, blocks_received = (0, 0) if route else (items, self.blocks_received)
            if "report" in self.wanted:
                self._emit("report", self._report(route, account, received, blocks_received, now))
            if account.peak or received or any(account.values):
                account.restart(now)
            else:
                del self._accounts[route]
        self.blocks_received = 0
        self._sent_then = self._sink.sent

    def _report(self, route: bytes, account: _Account, received: int, blocks_received: int, now: float) -> Fields:
        values = dict(zip(FIGURES, account.values, strict=True))
        fields = self._fields(route)
        fields["connections"] = account.peak
        fields["received"] = received
        if blocks_received:
            fields["blocks-received"] = blocks_received
        fields["duration"] = max(0, round((now - account.since) * 1000))
        for name in REPORTED:
            if values[name] or name != "blocks-sent":
                fields[name] = values[name]
        if not route:
            fields["events-sent"] = self._sink.sent + 1
        return fields

    # --- events in slices

    @property
    def busy(self) -> bool:
        """True while ``work`` has events to send."""
        return bool(self._backlog)

    def work(self) -> None:
        """Send up to SLICE events of the backlog; called again while ``busy``."""
        if self._backlog:
            events = self._backlog[0]
            for _ in range(SLICE):
                if not next(events, False):
                    self._backlog.popleft()
                    return

    def _all_gone(self, known: dict[bytes, bytes]) -> Iterator[bool]:
        for cid, route in known.items():
            if "conn" not in self.wanted:
                return
            self._gone(cid, route)
            yield True

    def _present(self, channels: Mapping[bytes, ChannelCounts]) -> Iterator[bool]:
        for channel in list(channels):
            if "sub" not in self.wanted:
                return
            entry = channels.get(channel)
            if entry is not None:
                for mode in MODES:
                    if (mode, channel) in self._subscribers:
                        self._subscribed((mode, channel), self._clock())
                self.changed(channel, entry)
            yield True
