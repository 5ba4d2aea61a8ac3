"""A record that is made up: a few events of every type, for a report that is made for the sake of making it."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any, Final

import pyarrow as pa

from spark_stats.directory import Directory
from spark_stats.reports.span import Span
from spark_stats.schema import OWN, SCHEMA
from spark_stats.segment import Segments

__all__ = ["LENGTH", "NOON", "write"]

NOON: Final = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
"""When it begins."""
LENGTH: Final = datetime.timedelta(minutes=20)
"""How long it goes on."""
HALF: Final = datetime.timedelta(minutes=10)
"""Each half has segments of its own."""

_SESSION: Final = "20260101T120000Z-000000000000"
_ENDPOINT: Final = "tcp://127.0.0.1:5569"


def write(root: pathlib.Path) -> Span:
    """Write the record into the folder ``root``, which is made if it is missing; return the range it is about.

    Raises:
        OSError: it cannot be written.
    """
    directory = Directory(root)
    directory.lock()
    try:
        events = _events()
        for number in (0, 1):
            segments = Segments(directory, f"{_SESSION}-{number + 1:06d}")
            kinds: dict[str, list[dict[str, Any]]] = {}
            for seq, (second, kind, fields) in enumerate(events):
                after = datetime.timedelta(seconds=second)
                if after // HALF == number:
                    own = {
                        "session": _SESSION,
                        "seq": seq,
                        "received_at": NOON + after,
                        "elapsed": second * 1_000_000,
                        "endpoint": _ENDPOINT,
                        "event": kind,
                    }
                    kinds.setdefault(kind, []).append(own | fields)
            for kind, rows in kinds.items():
                segments.add(f"{NOON:%Y-%m-%d}", kind, pa.Table.from_pylist(rows, schema=SCHEMA))
            segments.close()
    finally:
        directory.unlock()
    return Span(NOON, NOON + LENGTH)


def _events() -> list[tuple[int, str, dict[str, Any]]]:
    """Seconds since the beginning, type, and fields; by time."""
    made: list[tuple[int, str, dict[str, Any]]] = [
        (0, OWN, {"action": "start", "extra": f'{{"endpoints":["{_ENDPOINT}"]}}'}),
        (0, OWN, {"action": "connected"}),
        (300, OWN, {"action": "disconnected"}),
        (330, OWN, {"action": "connected"}),
        (340, OWN, {"action": "missed-events", "from": "a", "count": 1}),
        (1199, OWN, {"action": "stop"}),
    ]
    for second in range(10, 1199, 10):
        made.append((second, OWN, {"action": "tick", "count": 5}))
        for instance in ("a", "b"):
            facts = {"from": instance, "route": "r"}
            item = {"from": instance, "channel": f"c{second % 3}", "transport": "http-stream"}
            made += [
                (second, "conn", {**facts, "id": f"{second}", "ttl": 60, "conn_type": "http", "transport": "http"}),
                (second + 5, "conn", {**facts, "id": f"{second}", "unavailable": second % 20 > 0}),
                (second, "sub", {**item, "mode": "stream", "ttl": 60, "subscribers": second % 7}),
                (second, "message", {**item, "item_id": f"{second}", "count": second, "blocks": 1}),
                (second, "activity", {**facts, "count": 3}),
                (second, "counts", {"from": instance, "requests_received": 3}),
                (second, "report", {**facts, "connections": 2, "received": 3, "sent": 4, "duration": 10_000}),
                (second, "delivery", {"from": instance, "extra": '{"dropped-slow":1,"written":5}'}),
                (second, "recovery", {**facts, "extra": '{"gaps":1,"recoveries":2,"requests":1,"slow-clients":1}'}),
            ]
    return sorted(made, key=lambda event: event[0])
