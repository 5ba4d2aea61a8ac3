"""What the handler counts, and which events follow from it and when (docs/grip.md §9).

No sockets and no clock: what happens comes in as calls with the time, events go out through ``Sink``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from gripproxy.grip.item import Item
from gripproxy.grip.stats import ANSWERS, FIGURES, RECOVERY, Rounds, blocks, contents
from gripproxy.pipe import RESPONSE, SOCKET, STREAM

from .directory import Channel

__all__ = ["BEAT", "KINDS", "Counters", "Stats", "StatsSettings"]

MAX_NAMES: Final = 1000
"""Names taken from workers. They are ours, so more than a few dozen means two versions that do not fit together."""


@dataclass(slots=True)
class Counters:
    """Totals since the handler started."""

    received: int = 0
    """Items that parsed, duplicates included."""
    pull: int = 0
    """Of these, by ZeroMQ PULL; by SUB; over HTTP; by command."""
    sub: int = 0
    http: int = 0
    command: int = 0
    invalid: int = 0
    """Items that did not parse, from any intake."""
    duplicates: int = 0
    """Items dropped because their id was seen before (docs/grip.md §5.4)."""
    unheard: int = 0
    """Items on channels without subscription."""
    passed: int = 0
    """Items handed to workers, each worker counted."""
    overflows: int = 0
    """Times a worker's queue was dropped whole because it was full."""
    workers: dict[str, int] = field(default_factory=dict)
    """Totals reported by the workers, by name."""

    @property
    def taken(self) -> int:
        """Items that were not duplicates."""
        return self.received - self.duplicates

    def add(self, deltas: Mapping[object, object]) -> None:
        """Add a worker's deltas: whole numbers by name; what is neither is left to those who know it."""
        totals = self.workers
        for name, delta in deltas.items():
            if type(name) is str and type(delta) is int and (name in totals or len(totals) < MAX_NAMES):
                totals[name] = totals.get(name, 0) + delta


RESPONSE_ROUTES_MAX: Final = 1000
"""Route ids whose responses are told apart, each with at most a few dozen counters; those of more count as OTHERS."""

OTHERS: Final = b"(others)"
"""Stands for the routes beyond RESPONSE_ROUTES_MAX."""

BEAT: Final = 0.1
"""Seconds between two calls of ``beat``."""

SETTLE: Final = 0.9
"""Seconds after which a changed number of subscribers is told: within about one, says the protocol."""

SLICE: Final = 1000
"""Events sent in one go when there are many: a few milliseconds."""

KINDS: Final = ("conn", "sub", "message", "activity", "counts", "report", "delivery", "recovery")
"""Types of events. The last two are our own: what was written and what was not; what was missed, and asked for."""

MODES: Final = {RESPONSE: b"response", STREAM: b"stream", SOCKET: b"ws"}
TRANSPORTS: Final = {RESPONSE: b"http-response", STREAM: b"http-stream", SOCKET: b"ws-message"}

REPORTED: Final = FIGURES[2:]
"""Figures of a report; those before them have events of their own."""

Fields = dict[str, Any]

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class StatsSettings:
    """``source`` is the field ``from``; ttls are in seconds, as is ``report_interval`` (0: no reports)."""

    source: bytes = b"gripproxy-handler"
    connection_ttl: int = 120
    subscription_ttl: int = 60
    report_interval: int = 10
    block_size: int = 0


class _Account:
    """A route id since its last report: figures, and how many connections each worker has."""

    __slots__ = ("now", "peak", "since", "values", "workers")

    def __init__(self, since: float) -> None:
        self.since = since
        self.values = [0] * len(FIGURES)
        self.workers: dict[Any, int] = {}
        self.now = self.peak = 0


class _Subscribers:
    """Of one mode on one channel: how many there are, and how many were told; 0 while it lingers."""

    __slots__ = ("count", "told")

    def __init__(self, count: int) -> None:
        self.count = count
        self.told = 0


class Stats(Generic[W]):
    """The statistics of all workers. ``W`` stands for a worker, compared by identity.

    ``emit(kind, fields)`` sends an event, and counts it in ``sent``; fields are bytes, ints and True. Nothing is sent
    of a kind that nobody wants. ``watch(connections, counts)`` is called when workers are to tell of each connection
    and of counts at once, or no longer, or all present again. ``clock()`` is the time in seconds.
    """

    def __init__(
        self,
        settings: StatsSettings,
        emit: Callable[[str, Fields], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self.emit: Callable[[str, Fields], None] = emit or _nothing
        self.watch: Callable[[bool, bool], None] = _nobody
        self.wanted: frozenset[str] = frozenset()
        """Kinds of events that somebody gets."""
        self.sent = 0
        """Events sent so far, raised by ``emit``."""
        self.totals = dict.fromkeys(FIGURES, 0)
        """Figures of all routes and workers since the handler started."""
        self.blocks_received = 0
        """Blocks of items taken in since the last report."""
        self._received = 0
        self._accounts: dict[bytes, _Account] = {}
        self._requests = 0
        self._activity: dict[bytes, int] = {}
        self._connections: dict[W, dict[bytes, bytes]] = {}
        self._subscribers: dict[tuple[int, bytes], _Subscribers] = {}
        self._rounds: Rounds[tuple[int, bytes]] = Rounds(settings.subscription_ttl)
        self._changed: dict[tuple[int, bytes], float] = {}
        self._backlog: deque[Iterator[bool]] = deque()
        self._delivery: dict[str, int] = {}
        self._sent_then = 0
        self._recovery: dict[tuple[bytes, int], list[int]] = {}
        self.responses: dict[bytes, dict[tuple[int, str], int]] = {}
        """Responses to clients since the handler started, by route id, then by first digit of the status and reason."""

    # --- who listens

    def listen(self, kinds: Set[str], fresh: Set[str], channels: Mapping[bytes, Channel[W]]) -> None:
        """These kinds of events have somebody who gets them; ``fresh`` ones somebody new, and what is present of them
        is told at once.

        ``channels`` are all that are subscribed to.
        """
        before = self.watching
        self.wanted = frozenset(kinds)
        if "sub" in fresh:
            self._backlog.append(self._present(channels))
        elif "sub" not in kinds:
            self._subscribers.clear()
            self._rounds.clear()
            self._changed.clear()
        if "conn" not in self.wanted:
            self._connections.clear()
        if self.watching != before or not fresh.isdisjoint(("conn", "sub")):
            self.watch(*self.watching)

    @property
    def watching(self) -> tuple[bool, bool]:
        """What workers are told by WATCH."""
        return "conn" in self.wanted, not self.wanted.isdisjoint(("sub", "message"))

    # --- workers

    def figures(self, worker: W, message: tuple[Any, ...], now: float) -> None:
        """Take in FIGURES of a worker. Raises ValueError for a message of the wrong shape."""
        _, route, present, peak, *values = message
        if len(values) != len(FIGURES):
            raise ValueError(f"{len(values)} figures, expected {len(FIGURES)}")
        account = self._accounts.get(route)
        if account is None:
            if not peak and not any(values):
                return
            account = self._accounts[route] = _Account(now)
        others = account.now - account.workers.get(worker, 0)
        account.peak = max(account.peak, others + peak)
        account.now = others + present
        if present:
            account.workers[worker] = present
        else:
            account.workers.pop(worker, None)
        totals, sums = self.totals, account.values
        for place, value in enumerate(values):
            if value:
                sums[place] += value
                totals[FIGURES[place]] += value
        self._requests += values[0]
        if values[1]:
            self._activity[route] = self._activity.get(route, 0) + values[1]

    @property
    def connections(self) -> int:
        """Connections present now, of all routes."""
        return sum(account.now for account in self._accounts.values())

    def told(self, worker: W, events: Iterable[tuple[Any, ...]]) -> None:
        """Take in CONNECTIONS of a worker. Raises ValueError or TypeError for events of the wrong shape."""
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
            self.emit("conn", fields)

    def left(self, worker: W) -> None:
        """A worker is gone, with its connections."""
        for account in self._accounts.values():
            account.now -= account.workers.pop(worker, 0)
        known = self._connections.pop(worker, None)
        if known:
            self._backlog.append(self._all_gone(known))

    def _gone(self, cid: bytes, route: bytes) -> None:
        self.emit("conn", {**self._fields(route), "id": cid, "unavailable": True})

    def _fields(self, route: bytes = b"") -> Fields:
        if route:
            return {"from": self.settings.source, "route": route}
        return {"from": self.settings.source}

    # --- items

    def received(self, item: Item) -> None:
        """An item was taken in; to be called if blocks are counted."""
        self.blocks_received += max(
            blocks(item, content or b"", self.settings.block_size) for content in contents(item)
        )

    def released(self, item: Item, entry: Channel[W]) -> None:
        """An item goes to the workers of its channel; to be called if ``message`` is wanted."""
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
            self.emit("message", fields)

    # --- recoveries

    def recovered(self, news: Iterable[tuple[bytes, int, Iterable[int]]]) -> None:
        """Take in what a worker says of recoveries: route id, mode, numbers in the order of RECOVERY.

        Raises ValueError or TypeError for news of the wrong shape.
        """
        for route, mode, numbers in news:
            sums = self._recovery.setdefault((route, mode), [0] * len(RECOVERY))
            for place, number in zip(range(len(RECOVERY)), numbers, strict=True):
                sums[place] += number

    # --- responses

    def responded(self, news: Iterable[tuple[bytes, int, str, int]]) -> None:
        """Take in what a worker says of responses to clients.

        Args:
            news: route id, first digit of the status (0: the client left), one of ANSWERS, number.

        Raises:
            ValueError or TypeError: news of the wrong shape.
        """
        for route, kind, reason, count in news:
            if not 0 <= kind <= 9:
                raise ValueError(f"{kind!r} is no class of a response")
            if reason not in ANSWERS:
                # Of a worker that is newer than this handler.
                reason = "other"
            known = self.responses.get(route)
            if known is None:
                if len(self.responses) >= RESPONSE_ROUTES_MAX:
                    route = OTHERS
                known = self.responses.setdefault(route, {})
            known[kind, reason] = known.get((kind, reason), 0) + count

    # --- subscriptions

    def changed(self, channel: bytes, entry: Channel[W]) -> None:
        """Something about a channel's subscriptions has changed; to be called if ``sub`` is wanted."""
        now = self._clock()
        for mode in MODES:
            count = sum(counts[mode] for counts in entry.workers.values())
            key = (mode, channel)
            known = self._subscribers.get(key)
            if known is None:
                if count:
                    self._subscribers[key] = _Subscribers(count)
                    self._subscribed(key, now)
            elif count:
                known.count = count
                if not known.told:
                    # Somebody has come back while it lingered.
                    self._subscribed(key, now)
                elif count != known.told:
                    self._changed.setdefault(key, now)
            elif mode == RESPONSE and entry.linger_until > now:
                known.count = known.told = 0
            else:
                del self._subscribers[key]
                self._changed.pop(key, None)
                self._rounds.gone(key)
                self.emit("sub", self._unsubscribed(key))

    def _subscribed(self, key: tuple[int, bytes], now: float) -> None:
        known = self._subscribers[key]
        known.told = known.count
        self._changed.pop(key, None)
        self._rounds.said(key, now)
        fields = self._fields()
        fields["mode"], fields["channel"] = MODES[key[0]], key[1]
        fields["ttl"] = self.settings.subscription_ttl
        fields["subscribers"] = known.count
        self.emit("sub", fields)

    def _unsubscribed(self, key: tuple[int, bytes]) -> Fields:
        fields = self._fields()
        fields["mode"], fields["channel"] = MODES[key[0]], key[1]
        fields["unavailable"] = True
        return fields

    # --- time

    def beat(self, now: float) -> None:
        """Send what is due; to be called every BEAT seconds. Until ``busy`` is over, ``work`` has more to do."""
        wanted = self.wanted
        activity, self._activity = self._activity, {}
        requests, self._requests = self._requests, 0
        if "activity" in wanted:
            for route, count in activity.items():
                self.emit("activity", {**self._fields(route), "count": count})
        if "counts" in wanted and requests:
            self.emit("counts", {**self._fields(), "requests-received": requests})
        if self._recovery:
            recovery, self._recovery = self._recovery, {}
            if "recovery" in wanted:
                for (route, mode), numbers in recovery.items():
                    fields = {**self._fields(route), "transport": TRANSPORTS[mode]}
                    self.emit("recovery", {**fields, **dict(zip(RECOVERY, numbers, strict=True))})
        if "sub" in wanted:
            settled = now - SETTLE
            for key in [key for key, since in self._changed.items() if since <= settled]:
                del self._changed[key]
                known = self._subscribers[key]
                if known.count != known.told:
                    self._subscribed(key, now)
            for key in self._rounds.due(now, BEAT):
                self._subscribed(key, now)

    def report(self, received: int, delivery: Mapping[str, int], now: float) -> None:
        """Send the reports; to be called every ``report_interval`` seconds.

        ``received``: items taken in so far; ``delivery``: totals of our own event by field.
        """
        told, self._delivery = self._delivery, dict(delivery)
        news = {name: total - told.get(name, 0) for name, total in delivery.items()}
        if "delivery" in self.wanted and any(news.values()):
            self.emit("delivery", {**self._fields(), **news})
        items, self._received = received - self._received, received
        # The report without route tells how many events were sent, so it follows whatever was.
        others = self._accounts.pop(b"", None)
        if others is None and (items or self.blocks_received or self._accounts or self.sent != self._sent_then):
            others = _Account(now - self.settings.report_interval)
        if others is not None:
            self._accounts[b""] = others
        for route, account in list(self._accounts.items()):
            received, blocks_received = (0, 0) if route else (items, self.blocks_received)
            if "report" in self.wanted:
                self.emit("report", self._report(route, account, received, blocks_received, now))
            if account.peak or received or any(account.values):
                account.values = [0] * len(FIGURES)
                account.peak = account.now
                account.since = now
            else:
                del self._accounts[route]
        self.blocks_received = 0
        self._sent_then = self.sent

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
            fields["events-sent"] = self.sent + 1
        return fields

    # --- what is too much for one turn

    @property
    def busy(self) -> bool:
        """Whether ``work`` has something to do."""
        return bool(self._backlog)

    def work(self) -> None:
        """Send some of what is sent a little at a time; to be called in every turn of the loop while ``busy``."""
        if self._backlog:
            tell = self._backlog[0]
            for _ in range(SLICE):
                if not next(tell, False):
                    self._backlog.popleft()
                    return

    def _all_gone(self, known: dict[bytes, bytes]) -> Iterator[bool]:
        for cid, route in known.items():
            if "conn" not in self.wanted:
                return
            self._gone(cid, route)
            yield True

    def _present(self, channels: Mapping[bytes, Channel[W]]) -> Iterator[bool]:
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


def _nothing(kind: str, fields: Fields) -> None:
    """Stands in while there is no socket."""


def _nobody(connections: bool, counts: bool) -> None:
    """Stands in while there are no workers to tell."""
