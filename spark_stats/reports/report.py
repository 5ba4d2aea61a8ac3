"""The batch job: all tables over a range of time, and the page that shows them."""

from __future__ import annotations

import datetime
import pathlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TextIO

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from spark_stats.reports import channels, connections, deliveries, gaps, outcomes, recoveries, subscriptions, traffic
from spark_stats.reports.events import Events
from spark_stats.reports.files import join
from spark_stats.reports.progress import Progress
from spark_stats.reports.span import Span

__all__ = ["TABLES", "Made", "NoData", "make"]

TABLES: Final = (
    "connections",
    "connection_time",
    "subscriptions",
    "deliveries",
    "channels",
    "traffic",
    "outcomes",
    "recoveries",
    "gaps",
    "coverage",
)
"""All tables but ``present``, which is made when it is asked for."""

_ORDER: Final = ("per", "by", "start")


class NoData(Exception):
    """There are no events in the range; the text says what there is."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a report has: the ``span``, ``rows`` per table, and ``events`` in the segments that were looked at."""

    span: Span
    rows: dict[str, int]
    events: int


def make(
    spark: SparkSession,
    root: pathlib.Path,
    into: pathlib.Path,
    span: Span,
    at: datetime.datetime | None = None,
    out: TextIO | None = None,
) -> Made:
    """Write all tables over a span into the folder ``into``, each as ``<table>.parquet`` and ``<table>.csv``.

    Arguments: ``root``, the record; ``at``, a time in the span: who was connected then is in the table ``present``;
    ``out`` shows the progress.

    Raises:
        NoData: nothing is recorded in the span.
        ValueError: a file in the record is no segment.
        OSError: files cannot be read or written.
    """
    events = Events(spark, root, span)
    names = [*TABLES, *(["present"] if at is not None else [])]
    progress = Progress(len(names) + 1, sys.stderr if out is None else out, spark.sparkContext.statusTracker())
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        """For what more than one table is made of."""
        kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return kept[-1]

    try:
        with progress.step("looking for what is missing"):
            events.look()
            _demand(events)
            known = gaps.find(events)
        resumed = spark.createDataFrame(
            [(endpoint, times) for endpoint, times in known.resumed.items()], "endpoint string, times array<timestamp>"
        )
        spells = keep(connections.connections(events, resumed))
        subscribed = keep(subscriptions.course(subscriptions.changes(events), span))
        by_minute = keep(deliveries.minutes(events))
        tables: dict[str, Callable[[], DataFrame]] = {
            "connections": lambda: connections.course(spells, span),
            "connection_time": lambda: connections.lasting(spells, span),
            "subscriptions": lambda: subscribed,
            "deliveries": lambda: deliveries.course(by_minute),
            "channels": lambda: channels.ranking(by_minute, subscribed),
            "traffic": lambda: traffic.course(events),
            "outcomes": lambda: outcomes.course(events),
            "recoveries": lambda: recoveries.course(events),
            "gaps": lambda: gaps.table(events, known),
            "coverage": lambda: gaps.coverage(events, known),
            "present": lambda: connections.present(spells, at).orderBy("began_at", "instance", "id"),
        }
        into.mkdir(parents=True, exist_ok=True)
        rows = {}
        for name in names:
            with progress.step(name):
                rows[name] = _write(tables[name](), into, name)
    finally:
        for frame in kept:
            frame.unpersist()
    return Made(span, rows, events.rows)


def _demand(events: Events) -> None:
    root = events.root
    days = sorted(path.name.removeprefix("date=") for path in root.glob("date=*") if any(path.glob("type=*/*")))
    if not days:
        raise NoData(f"{root} has no record: `python -m spark_stats record … --into {root}` makes one")
    if not events.rows or events.empty():
        raise NoData(
            f"nothing is recorded from {events.span}; the record in {root} has the days {days[0]} to {days[-1]}"
        )


def _write(frame: DataFrame, into: pathlib.Path, name: str) -> int:
    keys = [key for key in (*_ORDER, "instance", "channel", "route") if key in frame.columns]
    if "start" in keys:
        # Not orderBy: to learn where to cut it calculates everything twice. Tables are small next to the record.
        frame = frame.repartition(1).sortWithinPartitions(*keys)
    parts = into / f".{name}.parts"
    frame.write.mode("overwrite").parquet(str(parts.absolute()))
    return join(parts, into / name)
