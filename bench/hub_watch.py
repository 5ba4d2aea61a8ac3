"""Part of the hub's benchmark: watchers of ranges and of a whole topic, their cost and their deliveries."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from bench import items
from bench.hub_load import KEY
from bench.hub_parts import ITEM, SSE, WARM, WINDOW, Bench, checked, held
from bench.hub_peers import Etcd
from bench.hub_resyncs import resyncs
from bench.hub_site import PREFIX, HubProxy, processors, watch_of
from bench.load import Crowd, Publisher
from bench.programs import BenchError

__all__ = ["SHARE", "Waves", "concerned", "event", "watch", "waves"]

SHARE = 10
"""Watchers whose ranges contain a key."""

RANGES = "?low=k00#####&high=k00#####"
"""Ranges of watchers: that with the number n has the SHARE keys from ``k0…n`` on."""

NARROW = ("events/s", "deliveries/s", "CPU per event, µs", "p50, ms", "p99, ms")
AUDIENCE = ("deliveries/s", "with one event at a time", "CPU of a delivery, µs", "bytes each", "KB each")
MEMORY = ("KB each", "of it workers", "handler", "hub")

FRAME = 7
"""Bytes of the chunk around an event of some hundred bytes: three digits, and two ends of lines."""

QUIET = 0.5
"""Seconds without a delivery after which none is missing that will come."""


def watch(bench: Bench) -> None:
    """Watchers: of ranges and of a whole topic, their memory, and those below the floor.

    Args:
        bench: the run.
    """
    _narrow(bench)
    _audience(bench)
    _memory(bench)
    resyncs(bench)


def event(key: str) -> bytes:
    """Return a batch of one event, with the mark of its time.

    Args:
        key: of the event, or the place of one.
    """
    return json.dumps({"events": [{"content_type": "text/plain", "key": key, "data": ITEM}]}).encode()


def _watchers(site: HubProxy, path: str, query: str = "") -> Crowd:
    """Return watchers to be."""
    target = PREFIX + watch_of(path, query)
    return Crowd(site.programs, site.port, "stream", target, headers=SSE, width=SHARE)


# --- ranges


def concerned(first: int, count: int, keys: int) -> int:
    """Return how many deliveries a number of events makes, whose keys come in turn.

    Args:
        first: number of events before them.
        count: of events.
        keys: number of different keys, and of watchers.
    """
    return sum(min(SHARE, (first + index) % keys + 1) for index in range(count))


@dataclass(frozen=True)
class _Cost:
    """Cost of an event: processor time of the service in seconds, and the time within which 99 of 100 arrived."""

    cpu: float
    p99: float


def _narrow(bench: Bench) -> None:
    """Measure events that concern few watchers, of few and of many in all."""
    scale = bench.scale
    rate = f"{scale.watched:,} events/s, each in the ranges of {SHARE} watchers"
    bench.begin("watch-ranges", f"{rate}, each of a range of its own", NARROW)
    few: _Cost | None = None
    for number in (SHARE, scale.watchers):
        with bench.measuring(f"{number:,} watchers"):
            few = _ranges(bench, number, few)


def _ranges(bench: Bench, number: int, few: _Cost | None) -> _Cost:
    """Measure one number of watchers, and compare it with few of them."""
    scale, rate = bench.scale, bench.scale.watched
    # All ranges of few watchers have the key before the last; with many the keys come in turn.
    key = KEY if number > SHARE else f"k{SHARE - 1:07}"
    with bench.site() as site, contextlib.ExitStack() as stack:
        path = site.topic("ranges")
        crowd = stack.enter_context(contextlib.closing(_watchers(site, path, RANGES)))
        poster = site.poster(path, event(key), connections=64, content_type="application/json", keys=number)
        stack.callback(poster.close)
        crowd.open(number, window=WINDOW)
        time.sleep(scale.settle)  # the work that is left from opening them is no cost of events
        warm = checked(poster.post(seconds=min(WARM, scale.seconds), rate=rate))
        crowd.rest(quiet=QUIET)
        clients, cpu, start = crowd.zero().cpu, site.cpu_by_role(), time.monotonic()
        posted = checked(poster.post(seconds=scale.seconds, rate=rate))
        cpu_after, seconds = site.cpu_by_role(), time.monotonic() - start
        seen = crowd.rest(quiet=QUIET)
    cost = _Cost((sum(cpu_after.values()) - sum(cpu.values())) / posted.taken, seen.latencies.quantile(0.99))
    wanted = concerned(warm.taken, posted.taken, number) if number > SHARE else SHARE * posted.taken
    values = (posted.rate, seen.count / seconds, cost.cpu * 1e6, seen.latencies.quantile(0.5), cost.p99)
    note = processors({"clients": clients, **cpu}, {"clients": seen.cpu, **cpu_after}, seconds)
    if few is not None:
        note = f"CPU {cost.cpu / few.cpu:.2f} times, p99 {cost.p99 / few.p99:.2f} times; {note}"
    failed = seen.count != wanted
    if failed:
        note = f"{seen.count:,} of {wanted:,} deliveries; {note}"
    bench.row(f"{number:,} watchers", dict(zip(NARROW, values, strict=True)), note, failed=failed)
    return cost


# --- the whole topic


@dataclass(frozen=True)
class Waves:
    """Report of events that went to all clients, some at once and then the next.

    Attributes:
        deliveries: to all clients.
        seconds: from sending the first event of each wave to its last delivery, added up.
        bytes: of the deliveries, with their frames.
    """

    deliveries: int
    seconds: float
    bytes: int

    @property
    def rate(self) -> float:
        """Deliveries a second."""
        return self.deliveries / max(1e-9, self.seconds)

    @property
    def size(self) -> float:
        """Bytes of a delivery."""
        return self.bytes / max(1, self.deliveries)


def waves(crowd: Crowd, count: int, send: Callable[[int], int], seconds: float) -> Waves:
    """Send waves of events, each when the one before has been delivered.

    Args:
        crowd: clients that are held.
        count: of events in a wave.
        send: publishes so many, and returns the time of its start, in nanoseconds of the monotonic clock.
        seconds: after which no further wave begins.

    Returns:
        The report.

    Raises:
        BenchError: deliveries are missing.
    """
    deliveries = size = taken = 0
    begun = time.monotonic()
    while not deliveries or time.monotonic() - begun < seconds:
        crowd.zero()
        crowd.expect(count, seconds=90)
        start = send(count)
        seen = crowd.seen(120)
        if seen.count != count * crowd.held:
            raise BenchError(f"{seen.count:,} of {count * crowd.held:,} deliveries came")
        deliveries, size, taken = deliveries + seen.count, size + seen.bytes, taken + seen.last - start
    return Waves(deliveries, taken / 1e9, size)


def _audience(bench: Bench) -> None:
    """Measure watchers of a whole topic next to its followers, a plain channel, and watchers of etcd."""
    scale = bench.scale
    title = f"Events to {scale.audience:,} clients, {scale.wave} at once, and memory (PSS) of each"
    bench.begin("watch-all", title, AUDIENCE)
    with bench.measuring("watchers"):
        watched = _hub_audience(bench, "watchers")
        with bench.measuring("followers"):
            _hub_audience(bench, "followers")
        with bench.measuring("clients of a plain channel"):
            _plain_audience(bench, watched)
    if scale.peers:
        _etcd_audience(bench)


@dataclass(frozen=True)
class _Heard:
    """Reports of many events at once and of one at a time, and what the former cost.

    Attributes:
        many: report of many at once.
        one: report of one at a time.
        cpu: processor time of the server, in seconds.
        used: text about the processors that were taken.
    """

    many: Waves
    one: Waves
    cpu: float
    used: str


def _heard(bench: Bench, crowd: Crowd, send: Callable[[int], int], server: Callable[[], Mapping[str, float]]) -> _Heard:
    """Measure waves to clients, after one that is not measured; ``server``: returns processor time by roles."""
    scale = bench.scale
    waves(crowd, scale.wave, send, 0)
    one = waves(crowd, 1, send, scale.seconds / 2)
    clients, before, start = crowd.look().cpu, server(), time.monotonic()
    many = waves(crowd, scale.wave, send, scale.seconds)
    after, seconds = server(), time.monotonic() - start
    used = processors({"clients": clients, **before}, {"clients": crowd.look().cpu, **after}, seconds)
    return _Heard(many, one, sum(after.values()) - sum(before.values()), used)


def _hub_audience(bench: Bench, name: str) -> _Heard:
    """Measure watchers, or followers, of one topic."""
    with bench.site() as site:
        path = site.topic("all")
        target = PREFIX + (watch_of(path) if name == "watchers" else path)
        poster = site.poster(path, event(KEY), connections=bench.scale.wave, content_type="application/json")
        make = partial(Crowd, site.programs, site.port, "stream", target, headers=SSE)
        with contextlib.closing(poster):
            return _all(bench, name, site, make, lambda count: checked(poster.post(count)).start)


def _plain_audience(bench: Bench, watched: _Heard) -> None:
    """Measure clients of a plain channel, with items as long as the events of watchers."""
    with bench.site() as site:
        # The end of a line belongs to the item.
        message = items.grip_request("stream", size=round(watched.many.size) - FRAME - 1)
        publisher = Publisher(site.programs, site.control, "http", message, connections=bench.scale.wave)
        with contextlib.closing(publisher):
            _all(
                *(bench, "clients of a plain channel", site, partial(site.crowd, "stream")),
                *(lambda count: publisher.send(count).start, watched),
            )


def _all(
    bench: Bench,
    name: str,
    site: HubProxy,
    make: Callable[[], Crowd],
    send: Callable[[int], int],
    watched: _Heard | None = None,
) -> _Heard:
    """Measure clients of the service, and compare watchers with them."""
    scale = bench.scale
    with held(make, scale.audience, site.memory_by_role, scale.settle) as (crowd, grown):
        found = _heard(bench, crowd, send, site.cpu_by_role)
    note = ""
    if watched is not None:
        many, one = watched.many.rate / found.many.rate, watched.one.rate / found.one.rate
        note = f"watchers: {many:.2f} times as many deliveries/s, {one:.2f} times with one event at a time; "
    _row(bench, name, found, sum(grown.values()), f"{note}{found.used}")
    return found


def _etcd_audience(bench: Bench) -> None:
    """Measure as many watch streams of etcd."""
    scale = bench.scale
    if missing := Etcd.missing():
        bench.row("etcd", note=f"not installed: no {missing}; apt-get install {Etcd.package}")
        return
    with bench.measuring("etcd"), bench.peer(Etcd) as peer, contextlib.ExitStack() as stack:
        assert isinstance(peer, Etcd)
        poster = peer.poster(len(ITEM), scale.wave)
        stack.callback(poster.close)
        memory = held(peer.watchers, scale.audience, lambda: {"etcd": peer.memory()}, scale.settle)
        crowd, grown = stack.enter_context(memory)
        found = _heard(bench, crowd, lambda count: checked(poster.post(count)).start, lambda: {"etcd": peer.cpu()})
        note = f"{crowd.held:,} streams of the JSON gateway; {found.used}"
        _row(bench, "etcd", found, sum(grown.values()), note)


def _row(bench: Bench, name: str, found: _Heard, memory: float, note: str) -> None:
    """Add the row of clients, with the memory of each in KB."""
    micros = found.cpu * 1e6 / found.many.deliveries
    values = (found.many.rate, found.one.rate, micros, found.many.size, memory)
    bench.row(name, dict(zip(AUDIENCE, values, strict=True)), note)


# --- memory


def _memory(bench: Bench) -> None:
    """Measure the memory of idle watchers."""
    scale = bench.scale
    bench.begin("watch-memory", f"Memory (PSS) of each of {scale.watchers:,} idle watchers", MEMORY)
    for name, query in (("of the whole topic", ""), ("of a range of its own", RANGES)):
        with bench.measuring(name), bench.site() as site:
            make = partial(_watchers, site, site.topic("idle"), query)
            with held(make, scale.watchers, site.memory_by_role, scale.settle) as (_, grown):
                parts = (grown.get("worker", 0.0), grown.get("handler", 0.0), grown.get("hub", 0.0))
                bench.row(name, dict(zip(MEMORY, (sum(grown.values()), *parts), strict=True)))
