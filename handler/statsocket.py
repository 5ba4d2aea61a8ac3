"""The stats socket: events for whoever subscribes (docs/grip.md §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import zmq

from gripproxy.grip.stats import encode
from gripproxy.log import log

from .drain import Drain
from .endpoints import bind
from .exchange import Exchange
from .stats import BEAT, KINDS

__all__ = ["StatsSocket", "kinds_of"]

MAX_WAITING: Final = 200_000
"""Events that wait for one subscriber; one more is lost to it, as with any PUB socket."""

MAX_PREFIXES: Final = 1000
"""Different subscriptions that are told apart. With more of them everything counts as wanted."""

WORK: Final = 0.005
"""Seconds between two slices of what is too much for one turn."""


def kinds_of(prefixes: set[bytes]) -> frozenset[str]:
    """Return the kinds of events that somebody gets who subscribes with these prefixes."""
    heads = [f"{kind} ".encode() for kind in KINDS]
    return frozenset(
        kind
        for kind, head in zip(KINDS, heads, strict=True)
        if any(head.startswith(prefix) or prefix.startswith(head) for prefix in prefixes)
    )


class StatsSocket:
    """An XPUB socket: a PUB that knows whether somebody listens, and to what.

    Arguments: ``exchange`` has the statistics; ``json``: events are JSON, else tnetstrings; ``delivery()`` returns the
    figures of our own event.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        exchange: Exchange,
        json: bool,
        delivery: Callable[[], Mapping[str, int]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._exchange = exchange
        self._stats = exchange.stats
        self._json = json
        self._delivery = delivery
        self._prefixes: set[bytes] = set()
        self._crowded = False
        self._drain: Drain | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._working: asyncio.TimerHandle | None = None
        self._report_at = self._loop.time() + self._stats.settings.report_interval
        sock = self._sock = context.socket(zmq.XPUB)
        sock.setsockopt(zmq.SNDHWM, MAX_WAITING)
        # Also further subscribers of the same are told: each gets at once what is present.
        sock.setsockopt(zmq.XPUB_VERBOSE, 1)
        sock.setsockopt(zmq.IPV6, 1)

    def open(self, spec: str, mode: int | None = None) -> str:
        """Bind and begin; return the address. ``mode``: ipc_file_mode. Raises BindError."""
        address = bind(self._sock, spec, "stats_spec", mode)
        self._drain = Drain(self._sock, self._take)
        self._stats.emit = self._send
        self._timer = self._loop.call_later(BEAT, self._beat)
        return address

    def close(self) -> None:
        """Send what is due, and close the socket."""
        if self._drain is not None:
            now = self._loop.time()
            self._stats.beat(now)
            if self._stats.settings.report_interval:
                self._stats.report(self._exchange.counters.taken, self._delivery(), now)
            self._drain.close()
            self._drain = None
        for timer in (self._timer, self._working):
            if timer is not None:
                timer.cancel()
        self._sock.close(linger=100)

    def _take(self) -> int:
        message = self._sock.recv(zmq.NOBLOCK)
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
            return len(message)
        kinds = frozenset(KINDS) if self._crowded else kinds_of(self._prefixes)
        fresh = kinds_of({prefix}) if message[:1] == b"\1" else frozenset()
        log.debug("stats: %s", ", ".join(sorted(kinds)) or "nobody listens")
        self._stats.listen(kinds, fresh, self._exchange.directory.channels)
        self._work_on()
        return len(message)

    def _send(self, kind: str, fields: Mapping[str, Any]) -> None:
        drain = self._drain
        if drain is not None:
            self._sock.send(encode(kind, fields, self._json), zmq.NOBLOCK)
            self._stats.sent += 1
            drain.look()

    def _beat(self) -> None:
        self._timer = self._loop.call_later(BEAT, self._beat)
        now = self._loop.time()
        self._stats.beat(now)
        interval = self._stats.settings.report_interval
        if interval and now >= self._report_at:
            self._report_at = max(self._report_at + interval, now)
            self._stats.report(self._exchange.counters.taken, self._delivery(), now)
        self._work_on()

    def _work_on(self) -> None:
        if self._stats.busy and self._working is None:
            self._working = self._loop.call_later(WORK, self._work)

    def _work(self) -> None:
        self._working = None
        self._stats.work()
        self._work_on()
