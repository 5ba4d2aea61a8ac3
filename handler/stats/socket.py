"""The stats socket, and the timers and subscriptions of its events (docs/grip.md §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import zmq

from gripproxy.grip.stats_format import encode
from gripproxy.process.endpoints import bind
from gripproxy.process.log import log
from gripproxy.process.zmq_reader import ZmqReader

from .aggregator import BEAT, KINDS, ChannelCounts, StatsAggregator
from .counters import Counters

__all__ = ["StatsFeed", "StatsSocket", "kinds_of"]

MAX_WAITING: Final = 200_000
"""Events queued for a subscriber; further ones are dropped for it, as by any PUB socket."""

MAX_PREFIXES: Final = 1000
"""Greatest number of different prefixes that are tracked. With more of them all kinds of events are made."""

WORK: Final = 0.005
"""Seconds between two slices of a backlog."""


def kinds_of(prefixes: set[bytes]) -> frozenset[str]:
    """Return the kinds of events that a subscriber of these prefixes receives."""
    heads = [f"{kind} ".encode() for kind in KINDS]
    return frozenset(
        kind
        for kind, head in zip(KINDS, heads, strict=True)
        if any(head.startswith(prefix) or prefix.startswith(head) for prefix in prefixes)
    )


class StatsSocket:
    """The XPUB socket: a PUB that receives the subscriptions of its peers. A Sink of StatsAggregator.

    Args:
        context: owner of the ZeroMQ socket.
        json: whether events are JSON; else they are tnetstrings.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], json: bool) -> None:
        self._json = json
        self.sent = 0
        self._reader: ZmqReader | None = None
        sock = self._sock = context.socket(zmq.XPUB)
        sock.setsockopt(zmq.SNDHWM, MAX_WAITING)
        # Further subscriptions with a known prefix arrive too: each new subscriber is sent the present state.
        sock.setsockopt(zmq.XPUB_VERBOSE, 1)
        sock.setsockopt(zmq.IPV6, 1)

    def open(self, spec: str, on_message: Callable[[bytes], None], mode: int | None = None) -> str:
        """Bind the socket and read from it.

        Args:
            spec: ``stats_spec``.
            on_message: called with each message of a peer: 1 (subscribe) or 0 (unsubscribe), then a prefix.
            mode: ``ipc_file_mode``.

        Returns:
            The address.

        Raises:
            BindError: the address cannot be used.
        """

        def take() -> int:
            message = self._sock.recv(zmq.NOBLOCK)
            on_message(message)
            return len(message)

        address = bind(self._sock, spec, "stats_spec", mode)
        self._reader = ZmqReader(self._sock, take)
        return address

    def send(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Send an event, unless the socket is not open."""
        reader = self._reader
        if reader is not None:
            self._sock.send(encode(kind, fields, self._json), zmq.NOBLOCK)
            self.sent += 1
            reader.look()

    def close(self) -> None:
        """Close the socket; events already sent leave within 100 ms."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._sock.close(linger=100)


class Dispatch(Protocol):
    """The part of the handler that the events are about."""

    @property
    def counters(self) -> Counters:
        """Totals of items."""

    @property
    def stats(self) -> StatsAggregator[Any]:
        """Figures of routes, and the events."""

    @property
    def channels(self) -> Mapping[bytes, ChannelCounts]:
        """The subscribed channels."""

    def delivery(self) -> Mapping[str, int]:
        """Return the totals of the event ``delivery``, by field."""

    def send_reporting(self) -> None:
        """Send all workers WATCH."""


class StatsFeed:
    """The timers of StatsAggregator, and the subscriptions to its events.

    Args:
        socket: sink of the stats.
        dispatch: owner of the stats, the channels and the counters.
    """

    def __init__(self, socket: StatsSocket, dispatch: Dispatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket
        self._dispatch = dispatch
        self._stats = dispatch.stats
        self._prefixes: set[bytes] = set()
        self._crowded = False
        self._timer: asyncio.TimerHandle | None = None
        self._working: asyncio.TimerHandle | None = None
        self._report_at = self._loop.time() + self._stats.settings.report_interval

    def open(self, spec: str, mode: int | None = None) -> str:
        """Bind the socket and start the timers.

        Args:
            spec: ``stats_spec``.
            mode: ``ipc_file_mode``.

        Returns:
            The address.

        Raises:
            BindError: the address cannot be used.
        """
        address = self._socket.open(spec, self._subscription, mode)
        self._timer = self._loop.call_later(BEAT, self._beat)
        return address

    def close(self) -> None:
        """Send the last events and reports, and close the socket."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            now = self._loop.time()
            self._stats.beat(now)
            if self._stats.settings.report_interval:
                self._report(now)
        if self._working is not None:
            self._working.cancel()
        self._socket.close()

    def _subscription(self, message: bytes) -> None:
        prefix = message[1:]
        if message[:1] == b"\1":
            if len(self._prefixes) >= MAX_PREFIXES and prefix not in self._prefixes:
                self._crowded = True
            else:
                self._prefixes.add(prefix)
        elif message[:1] == b"\0":
            self._prefixes.discard(prefix)
            self._crowded = self._crowded and bool(self._prefixes)
        else:
            return
        kinds = frozenset(KINDS) if self._crowded else kinds_of(self._prefixes)
        fresh = kinds_of({prefix}) if message[:1] == b"\1" else frozenset()
        log.debug("stats subscriptions changed", events=", ".join(sorted(kinds)) or "nobody listens")
        if self._stats.listen(kinds, fresh, self._dispatch.channels):
            self._dispatch.send_reporting()
        self._work_on()

    def _report(self, now: float) -> None:
        self._stats.report(self._dispatch.counters.taken, self._dispatch.delivery(), now)

    def _beat(self) -> None:
        self._timer = self._loop.call_later(BEAT, self._beat)
        now = self._loop.time()
        self._stats.beat(now)
        self._stats.logged([(log.process, *report) for report in log.reports.take()])
        interval = self._stats.settings.report_interval
        if interval and now >= self._report_at:
            self._report_at = max(self._report_at + interval, now)
            self._report(now)
        self._work_on()

    def _work_on(self) -> None:
        if self._stats.busy and self._working is None:
            self._working = self._loop.call_later(WORK, self._work)

    def _work(self) -> None:
        self._working = None
        self._stats.work()
        self._work_on()
