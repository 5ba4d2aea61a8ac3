"""Part of the hub's benchmark: events of another store, given to a soft topic with watchers."""

from __future__ import annotations

import contextlib
import json
import time

from bench.hub_load import KEY, MARK, SIZE
from bench.hub_parts import SSE, WARM, WINDOW, Bench, checked
from bench.hub_site import PREFIX, HubProxy, processors, watch_of
from bench.load import Crowd

__all__ = ["ingest", "lines"]

COLUMNS = ("events/s", "deliveries/s", "answer p50, ms", "answer p99, ms", "delivery p50, ms", "delivery p99, ms")

WATCHERS = 10

BATCH = 1000
"""Events of a request, with the progress behind them."""

VERSION = "v###############"
NEWEST = "w###############"
"""Places of a version, and of the newest one of the request."""

LINES = "application/x-ndjson"

QUIET = 2.0
"""Seconds without a delivery after which the rest will not come."""


def lines(number: int) -> bytes:
    """Return a request of an ingester: events with a version each, and progress up to the last of them.

    Args:
        number: of events.
    """
    data = MARK + "x" * (SIZE - len(MARK))
    append = json.dumps({"append": {"key": KEY, "version": VERSION, "data": data}})
    return "".join(f"{line}\n" for line in [append] * number + [json.dumps({"progress": {"version": NEWEST}})]).encode()


def ingest(bench: Bench) -> None:
    """Events given by one ingester: as many as are taken in, and at a rate.

    Args:
        bench: the run.
    """
    scale = bench.scale
    title = f"Events of {SIZE} bytes into a soft topic with {WATCHERS} watchers, {BATCH:,} and progress in each request"
    bench.begin("ingest", title, COLUMNS)
    for rate in (0, scale.ingested):
        name = f"{rate:,} events/s" if rate else "the next request when the last is answered"
        with bench.measuring(name), bench.site() as site:
            _ingested(bench, site, name, rate)


def _ingested(bench: Bench, site: HubProxy, name: str, rate: int) -> None:
    """Measure one rate of events; 0 for as many as are taken in."""
    scale = bench.scale
    path = site.topic("soft", soft=True)
    target = f"{path.removesuffix('/events')}/ingest"
    # One connection: requests of several could overtake each other, and be in conflict with progress.
    poster = site.poster(target, lines(BATCH), connections=1, content_type=LINES)
    crowd = Crowd(site.programs, site.port, "stream", PREFIX + watch_of(path), headers=SSE)
    with contextlib.closing(poster), contextlib.closing(crowd):
        checked(poster.post(1))  # without progress all watchers would be told to resync
        crowd.open(WATCHERS, window=WINDOW)
        requests = -(-rate // BATCH)
        warm = checked(poster.post(seconds=min(WARM, scale.seconds), rate=requests))
        crowd.wait_for(warm.taken * BATCH, quiet=QUIET)
        clients, cpu, start = crowd.zero().cpu, site.cpu_by_role(), time.monotonic()
        posted = checked(poster.post(seconds=scale.seconds, rate=requests))
        cpu_after, seconds = site.cpu_by_role(), time.monotonic() - start
        seen = crowd.wait_for(posted.taken * BATCH, quiet=QUIET)
    events = posted.taken * BATCH
    wanted = events * WATCHERS
    answer, delivery = posted.latencies.quantile, seen.latencies.quantile
    lasting = max(seen.last - posted.start, 1) / 1e9
    values = (posted.rate * BATCH, seen.count / lasting, answer(0.5), answer(0.99), delivery(0.5), delivery(0.99))
    note = processors({"clients": clients, **cpu}, {"clients": seen.cpu, **cpu_after}, seconds)
    if seen.count != wanted:
        note = f"{seen.count:,} of {wanted:,} deliveries, the other watchers had to resync; {note}"
    bench.row(
        name,
        dict(zip(COLUMNS, values, strict=True)),
        note,
        failed=not seen.count or (rate > 0 and seen.count != wanted),
    )
