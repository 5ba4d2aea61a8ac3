"""Part of the hub's benchmark: very many watchers below the floor at once, beside those that have their events."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from bench.hub_parts import ITEM, SSE, WARM, WINDOW, Bench, checked
from bench.hub_site import PREFIX, HubProxy, processors, watch_of
from bench.latencies import Latencies
from bench.load import Crowd
from bench.programs import BenchError

__all__ = ["Told", "resyncs"]

COLUMNS = ("all told after, s", "p50, ms", "p99, ms", "live p50, ms", "live p99, ms")

PROCESSES = 2
"""Of the clients: each may have its files."""

EVENTS = 100
"""Events that the topic retains."""

OLDER = 1000
"""Events that it has had before."""

RATE = 100
"""Events a second to those that follow live."""

LASTING = 3
"""Times the duration of a row for which live events go on beside the requests."""

PATIENCE = 60.0
"""Seconds for requests to be answered."""

RESYNC = 'type":"resync'
"""Text of an answer that tells of the loss."""


@dataclass(frozen=True)
class Told:
    """Report of the requests.

    Attributes:
        told: answers that were a resync.
        asked: number of watchers.
        refused: answers that were none; their watchers asked again, when they were told to.
        seconds: until the last of them.
        latencies: of the answers, each from the beginning of its connection.
    """

    told: int
    asked: int
    refused: int
    seconds: float
    latencies: Latencies


def below_the_floor(site: HubProxy, path: str) -> str:
    """Fill a topic until its first event is not retained; return the cursor of that event.

    Args:
        site: the service.
        path: of the events of the topic, which retains EVENTS.

    Raises:
        BenchError: it is still retained after some time.
    """
    site.fill(path, 1)
    cursor: str = site.document(f"{path}?limit=1")["events"][0]["cursor"]
    site.fill(path, OLDER)
    topic, deadline = path.removesuffix("/events"), time.monotonic() + 30
    while int(site.document(topic)["floor"]) < int(cursor.partition(".")[2]):
        if time.monotonic() > deadline:
            raise BenchError("the topic retains more than it should")
        time.sleep(0.1)
    return cursor


def resyncs(bench: Bench) -> None:
    """Requests of watchers below the floor, all within a second: until each is told, and what others feel of it.

    Args:
        bench: the run.
    """
    scale = bench.scale
    title = f"{scale.late:,} watchers below the floor within a second, beside {scale.live:,} live ones"
    bench.begin("watch-resync", title, COLUMNS)
    with bench.measuring("resyncs"), bench.site() as site, contextlib.ExitStack() as stack:
        path = site.topic("retained", events=EVENTS)
        cursor = below_the_floor(site, path)
        target = PREFIX + watch_of(path)
        live = stack.enter_context(contextlib.closing(Crowd(site.programs, site.port, "stream", target, headers=SSE)))
        poster = stack.enter_context(contextlib.closing(site.poster(path, ITEM.encode(), connections=8)))
        live.open(scale.live, window=WINDOW)
        checked(poster.post(seconds=min(WARM, scale.seconds), rate=RATE))
        live.zero()
        checked(poster.post(seconds=scale.seconds, rate=RATE))
        quiet = live.zero().latencies
        bench.row("no others", dict(zip(COLUMNS[3:], _times(quiet), strict=True)))
        poster.begin(scale.seconds * LASTING, rate=RATE)
        cpu, begun = site.cpu_by_role(), time.monotonic()
        late = Crowd(
            *(site.programs, site.port, "once", f"{target}?version={cursor}&low=k00#####&high=k00#####"),
            headers=SSE,
            processes=PROCESSES,
            width=1,
            text=RESYNC,
        )
        with contextlib.closing(late):
            told = _tell(late, scale.late)
            beside = live.zero().latencies
            used = processors(cpu, site.cpu_by_role(), time.monotonic() - begun)
        posted = poster.posted()
        _row(bench, told, quiet, beside, f"{posted.refused:,} live publishes refused; {used}")


def _times(latencies: Latencies) -> tuple[float, float]:
    return latencies.quantile(0.5), latencies.quantile(0.99)


def _tell(late: Crowd, number: int) -> Told:
    """Make all requests, and wait until they are answered."""
    start = time.monotonic_ns()
    seen = late.ask(number, rate=number, seconds=PATIENCE)
    return Told(seen.count, number, seen.refused, (seen.last - start) / 1e9, seen.latencies)


def _row(bench: Bench, told: Told, quiet: Latencies, beside: Latencies, remark: str) -> None:
    """Add the row of the watchers below the floor."""
    values = (told.seconds, *_times(told.latencies), *_times(beside))
    ratio = beside.quantile(0.99) / max(1e-9, quiet.quantile(0.99))
    note = f"live p99 {ratio:.2f} times; {told.refused:,} answers refused; {remark}"
    failed = told.told != told.asked or not len(beside)
    if failed:
        note = f"{told.told:,} of {told.asked:,} were told; {note}"
    bench.row(f"{told.asked:,} others", dict(zip(COLUMNS, values, strict=True)), note, failed=failed)
