"""A clock set by the test, events, and the rows of a record."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any

import orjson
import pyarrow.dataset as ds
import tnetstring

from spark_stats.directory import Directory
from spark_stats.recording import Clock, Limits, Recording

SECOND = 1_000_000
NOON = int(datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC).timestamp()) * SECOND


class FakeClock(Clock):
    """Both clocks in µs, moved by hand."""

    def __init__(self, wall: int = NOON) -> None:
        self._wall = wall
        self._steady = 5 * SECOND

    def wall(self) -> int:
        return self._wall

    def steady(self) -> int:
        return self._steady

    def forward(self, seconds: float) -> None:
        self._wall += int(seconds * SECOND)
        self._steady += int(seconds * SECOND)

    def jump(self, seconds: float) -> None:
        self._wall += int(seconds * SECOND)


def tnet(event: str, **fields: Any) -> bytes:
    """A message with a tnetstring; ``_`` in names stands for ``-``, text becomes bytes."""
    plain = {
        name.strip("_").replace("_", "-").encode(): value.encode() if type(value) is str else value
        for name, value in fields.items()
    }
    return event.encode() + b" T" + bytes(tnetstring.dumps(plain))


def json(event: str, **fields: Any) -> bytes:
    """Return an event with its fields as JSON."""
    plain = {name.strip("_").replace("_", "-"): value for name, value in fields.items()}
    return event.encode() + b" J" + orjson.dumps(plain)


def opened(root: pathlib.Path) -> Directory:
    directory = Directory(root)
    directory.lock()
    return directory


def recording(
    root: pathlib.Path, clock: Clock | None = None, *, size: int = 1 << 30, age: float = 1e9, sync: float | None = None
) -> Recording:
    """A recording that has begun."""
    made = Recording(opened(root), Limits(size, age, sync), clock or FakeClock())
    made.begin(["tcp://there"])
    return made


def rows(root: pathlib.Path, *types: str) -> list[dict[str, Any]]:
    """The rows of all segments in order, without the columns that are null; only of ``types`` if any is named."""
    if not list(root.glob("date=*")):
        return []
    table = ds.dataset(root, format="parquet", partitioning="hive").to_table()
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in sorted(table.to_pylist(), key=lambda row: (row["received_at"], row["seq"]))
        if not types or row["type"] in types
    ]
