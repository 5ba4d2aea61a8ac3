"""Part of the hub's benchmark: reading the snapshot of a topic with very many keys."""

from __future__ import annotations

import time

from bench.hub_load import SIZE, History
from bench.hub_parts import Bench
from bench.hub_site import PREFIX, processors

__all__ = ["snapshots"]

COLUMNS = ("keys/s", "seconds")

ENDS = 2
"""Lines of a snapshot that are no events: its version, and that it is complete."""


def snapshots(bench: Bench) -> None:
    """Read a whole snapshot, on the hub's own socket and through the proxy.

    Args:
        bench: the run.
    """
    keys = bench.scale.snapshot
    bench.begin("snapshot", f"Snapshot of {keys:,} keys, values of {SIZE} bytes", COLUMNS)
    with bench.measuring("snapshot"), bench.site() as site:
        path = site.topic("table")
        # Each key has two events: the older ones are not in the snapshot.
        for _ in range(2):
            site.fill(path, keys, keys=keys)
        target = f"{path.removesuffix('/events')}/snapshot"
        for direct in (True, False):
            name = "its own socket" if direct else "through the proxy"
            with bench.measuring(name):
                cpu = {"client": time.process_time(), **site.cpu_by_role()}
                read = History(site.socket, target) if direct else History(site.port, PREFIX + target)
                seen = read.read()
                found = seen.events - ENDS
                note = processors(cpu, {"client": time.process_time(), **site.cpu_by_role()}, seen.seconds)
                if found != keys:
                    note = f"{found:,} keys; {note}"
                values = (found / seen.seconds, seen.seconds)
                bench.row(name, dict(zip(COLUMNS, values, strict=True)), note, failed=found != keys)
