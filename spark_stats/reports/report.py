"""Batch job: all tables over a range of time, and the page that shows them."""

from __future__ import annotations

import concurrent.futures
import datetime
import functools
import pathlib
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_stats.reports import (
    channels,
    clients,
    connections,
    deliveries,
    files,
    gaps,
    outcomes,
    pushes,
    recoveries,
    responses,
    subscriptions,
    traffic,
)
from spark_stats.reports.events import Events, escaped
from spark_stats.reports.inventory import Inventory
from spark_stats.reports.progress import Progress
from spark_stats.reports.span import Span

__all__ = ["MEMORY", "SETTINGS", "TABLES", "Made", "make"]

SELDOM: Final = pathlib.Path(__file__).with_name("seldom.json")
"""Directives for Java: methods that are left to its first compiler."""

_JAVA: Final = (
    # Options that another Java, or a Java elsewhere than on Linux, does not have are passed over.
    "-XX:+IgnoreUnrecognizedVMOptions",
    # Most objects in the heap are garbage soon: the more room for new ones, the less is copied to keep the others.
    "-XX:+UseSerialGC",
    "-XX:NewRatio=1",
    # Memory by 2 MB instead of 4 KB at a time, where Linux lets programs ask for it, as by default. Where not, Java
    # would print a warning.
    "-XX:+UseTransparentHugePages",
    "-Xlog:pagesize=off",
    # Java's compilers take a fifth of the processors: by default longer than a small report itself. Both are tuned for
    # programs that run longer. Not the first one alone, which takes a third more time in all for millions of events.
    "-XX:Tier3InvocationThreshold=400",
    "-XX:Tier3MinInvocationThreshold=200",
    "-XX:Tier3CompileThreshold=4000",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
    # Expensive for them, with little gain: loops copied, and methods put into one another without end.
    "-XX:MaxInlineLevel=9",
    "-XX:InlineSmallCode=1500",
    "-XX:LoopUnrollLimit=10",
    "-XX:LoopMaxUnroll=2",
    # There is room for all they make: none of it is looked for to be thrown away.
    "-XX:-UseCodeCacheFlushing",
    # Methods that are left to the first one. The last option keeps Java from reporting that it has read the file.
    "-XX:+UnlockDiagnosticVMOptions",
    f'-XX:CompilerDirectivesFile="{SELDOM}"',
    "-XX:-DisplayVMOutput",
)
SETTINGS: Final = {
    "spark.driver.extraJavaOptions": " ".join(_JAVA),
    # Small parts, so that the rows sorted at a time fit into the memory, however long the range is; where there is
    # little, Spark joins them.
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    "spark.sql.files.maxPartitionBytes": "24m",
    "spark.sql.files.openCostInBytes": "2m",
    # Not a file for each part of each task.
    "spark.shuffle.sort.bypassMergeThreshold": "0",
    # Groups whose values are kept in tables before Spark sorts all rows by group instead.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "65536",
    # Adds up once where rows are in one place already.
    "spark.sql.execution.combineAdjacentAggregation": "true",
    # Tables that are kept to be read a second time soon are not worth compressing.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Rows that are sorted and added up are not in the heap, where each garbage collection would copy them.
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "384m",
}
"""Of Spark, for this job."""
MEMORY: Final = "1100m"
"""Heap for this job, beside which there is the memory of :data:`SETTINGS`."""

TABLES: Final = (
    "connections",
    "connection_time",
    "subscriptions",
    "deliveries",
    "channels",
    "clients",
    "traffic",
    "responses",
    "outcomes",
    "recoveries",
    "pushes",
    "gaps",
    "coverage",
)
"""All tables but ``present``, which is made when it is asked for."""

_KEYS: Final = ("instance", "channel", "route", "mode", "transport", "outcome", "subscription", "class", "reason")
"""Columns by which tables are sorted, after the bucket."""
_CHAINS: Final = (
    ("connections", "connection_time", "present"),
    ("subscriptions", "deliveries", "channels"),
    ("clients",),
    ("traffic", "responses"),
    ("outcomes",),
    ("recoveries", "pushes"),
    ("gaps", "coverage"),
)
"""Tables that are made one after the other, because one needs the result of the one before; the longest first."""


PART: Final = 400_000
"""Events in the record for each part of a shuffle: few enough for the memory in which they are sorted."""


@dataclass(frozen=True, slots=True)
class Made:
    """Summary of a report: the ``span``, ``rows`` per table, and ``events`` in the segments that were read."""

    span: Span
    rows: dict[str, int]
    events: int


def make(
    spark: SparkSession,
    found: Inventory,
    into: pathlib.Path,
    at: datetime.datetime | None = None,
    out: TextIO | None = None,
) -> Made:
    """Write all tables over a span, each as ``<table>.parquet`` and ``<table>.csv``.

    Args:
        spark: session.
        found: inventory of the record, with the span.
        into: folder for the tables.
        at: a time in the span: the connections at that moment are in the table ``present``.
        out: stream that shows the progress; standard error by default.

    Returns:
        Summary of the report.

    Raises:
        ValueError: a file in the record is no segment.
        OSError: files cannot be read or written.
    """
    span = found.span
    names = [*TABLES, *(["present"] if at is not None else [])]
    progress = Progress(len(names) + 1, sys.stderr if out is None else out, spark.sparkContext.statusTracker())
    kept: list[DataFrame] = []
    before: dict[str, str] = {}
    try:
        with progress.step("looking for what is missing"):
            before = _planned(spark, found.rows // PART)
            events = Events(spark, found)
            # Tables of few events, or of events per minute: several parts would cost more than their content.
            aside = spark.newSession()
            _planned(aside, found.rows // PART // 16)
            few = Events(aside, found)
            known = gaps.find(events)

        tables = _recipes(events, few, known, into, at, kept)
        into.mkdir(parents=True, exist_ok=True)
        rows: dict[str, int] = {}
        failed = threading.Event()

        def work(some: Sequence[str]) -> None:
            for name in some:
                if failed.is_set():
                    return
                with progress.step(name):
                    rows[name] = _write(tables[name](), into, name)

        # Two at a time: while Spark plans one table, or ends it with a single task, the other keeps the cores busy.
        with concurrent.futures.ThreadPoolExecutor(2, "tables") as pool:
            jobs = [pool.submit(work, [name for name in chain if name in names]) for chain in _CHAINS]
            try:
                for job in concurrent.futures.as_completed(jobs):
                    job.result()
            except BaseException:
                failed.set()
                raise
    finally:
        for frame in kept:
            frame.unpersist()
        for name, value in before.items():
            spark.conf.set(name, value)
    return Made(span, {name: rows[name] for name in names}, found.rows)


def _recipes(
    events: Events,
    few: Events,
    known: gaps.Gaps,
    into: pathlib.Path,
    at: datetime.datetime | None,
    kept: list[DataFrame],
) -> dict[str, Callable[[], DataFrame | pa.Table]]:
    """Functions that make the tables. Results that several of them use are made once, and added to ``kept``."""
    span = events.span

    @functools.cache
    def silent() -> gaps.Gaps:
        return gaps.silences(few, known)

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    @functools.cache
    def spells() -> connections.Connections:
        resumed = {endpoint: [_micros(time) for time in times] for endpoint, times in known.resumed.items()}
        # Only one table has the ids, which are long.
        made = connections.connections(events, resumed, ids=at is not None)
        # More than one table is made of them.
        keep(made.rows)
        return made

    return {
        "connections": lambda: connections.course(spells(), span),
        "connection_time": lambda: connections.lasting(spells(), span),
        "subscriptions": lambda: subscriptions.course(keep(subscriptions.changes(events)), span),
        "deliveries": lambda: deliveries.course(deliveries.items(events)),
        # Read back: neither calculated again, nor kept in memory.
        "channels": lambda: channels.ranking(
            *[events.spark.read.parquet(escaped(into / f"{name}.parquet")) for name in ("deliveries", "subscriptions")]
        ),
        "clients": lambda: clients.ranking(events),
        "traffic": lambda: traffic.course(few),
        "responses": lambda: responses.course(few),
        "outcomes": lambda: outcomes.course(few),
        "recoveries": lambda: recoveries.course(few),
        "pushes": lambda: pushes.course(few),
        "gaps": lambda: gaps.table(silent(), span),
        "coverage": lambda: gaps.coverage(silent(), span),
        "present": lambda: connections.present(events, spells(), at).orderBy("began_at", "instance", "id"),
    }


def _planned(spark: SparkSession, parts: int) -> dict[str, str]:
    """Make Spark plan tables with ``parts`` parts in a shuffle; return the settings before.

    The number of rows is known, so plans need not be made again after each step by its result, which takes longer than
    a small report itself.
    """
    settings = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(max(spark.sparkContext.defaultParallelism, parts)),
        # Names of segments are known: to ask for each of them is quicker than a job that does.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    return before


def _micros(time: datetime.datetime) -> int:
    return (time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)


def _write(table: DataFrame | pa.Table, into: pathlib.Path, name: str) -> int:
    if isinstance(table, pa.Table):
        return files.write(table, into / name)
    if "start" in table.columns:
        # Not orderBy: to learn where to cut it calculates everything twice. Tables are small next to the record.
        # By one number first, which is much cheaper to compare: the shorter names first, then the earlier times. No two
        # names of a table are equally long.
        place = F.length("per") * F.lit(1 << 52) + F.unix_seconds("start")
        if "by" in table.columns:
            place = place + F.length("by") * F.lit(1 << 40)
        keys = [key for key in _KEYS if key in table.columns]
        table = table.withColumn("_place", place).repartition(1).sortWithinPartitions("_place", *keys).drop("_place")
    parts = into / f".{name}.parts"
    table.write.mode("overwrite").parquet(str(parts.absolute()))
    return files.join(parts, into / name)
