"""Tables of minutes that have become final, made by the functions that make the report's.

A report reads the hour before its range for the state at its beginning. Here the rounds before have kept that state: of
each connection that is there its first and last event, of each subscription the last one, and the times at which
endpoints were connected. It is **carried** from round to round as events like others.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterable
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_stats.reports import connections, deliveries, outcomes, recoveries, responses, subscriptions, traffic
from spark_stats.reports.bucket import by_sets, named
from spark_stats.reports.events import DDL, Events, escaped, prepared, summary
from spark_stats.reports.inventory import Inventory, Seen
from spark_stats.reports.position import Round, Segment
from spark_stats.reports.span import LOOK_BACK, Span
from spark_stats.schema import COLUMNS, OWN, STRING

__all__ = ["TABLES", "Minutes", "late"]

TABLES: Final = (
    "connections",
    "connection_time",
    "subscriptions",
    "deliveries",
    "traffic",
    "outcomes",
    "recoveries",
    "responses",
    "events",
)
"""Tables of minutes; those with a name of the report's have its columns."""

KNOWN: Final = "carried_known"
"""A column of carried events: of the first one of a connection, whether it was the first of all."""

FIELDS: Final = (*[(column.name, column.kind) for column in COLUMNS], ("date", "date"), ("type", STRING))
"""Names and types of a record's columns, folders included."""


def read(spark: SparkSession, root: pathlib.Path, segments: Iterable[Segment]) -> DataFrame:
    """Return the events of some segments, with columns named as reports name them.

    Args:
        spark: session.
        root: folder of the record.
        segments: segments to read.
    """
    paths = [escaped(root / segment.path) for segment in segments]
    if not paths:
        # Rows of Python's would need a process of Python's to read them.
        nothing = [F.lit(None).cast(kind).alias(name) for name, kind in FIELDS]
        return prepared(spark.range(0).select(*nothing))
    return prepared(spark.read.schema(DDL).option("basePath", str(root.absolute())).parquet(*paths))


class Minutes(Events):
    """Minutes of the ``span`` that a round has made final.

    Args:
        spark: session.
        root: folder of the record.
        span: the minutes.
        work: segments to read.
        carried: events carried from the round before, None in the first.
    """

    def __init__(
        self, spark: SparkSession, root: pathlib.Path, span: Span, work: Round, carried: DataFrame | None
    ) -> None:
        super().__init__(spark, Inventory(root, span, repeated=work.repeated))
        self._segments_of: dict[str, list[Segment]] = {}
        for segment in work.segments:
            self._segments_of.setdefault(segment.kind, []).append(segment)
        self._carried = carried
        self._kept: list[DataFrame] = []

    def of(self, kind: str) -> DataFrame:
        """Return the events of the type ``kind``: carried, in the span, and later ones that are here already."""
        found = self._read(kind)
        if self._carried is None:
            return found
        return found.unionByName(self._carried.where(F.col("type") == kind).drop(KNOWN))

    def within(self, kind: str) -> DataFrame:
        """Return the events of the type ``kind`` in the span, and later reports, which are about the time before."""
        found = self._read(kind)
        return found if kind == "report" else found.where(self._final())

    def seen(self, kind: str) -> list[Seen]:
        """Return combinations of fields that events of the type ``kind`` have, carried ones included."""
        return summary(self.of(kind))

    def _read(self, kind: str) -> DataFrame:
        found = read(self.spark, self.root, self._segments_of.get(kind, ())).where(F.col("type") == kind)
        if kind in self.found.repeated:
            found = found.dropDuplicates(["session", "seq"])
        return found.where(F.col("received_at") >= F.lit(self.span.since))

    def _final(self) -> Column:
        return F.col("received_at") < F.lit(self.span.until)

    def tables(self) -> dict[str, Callable[[], DataFrame]]:
        """Return a function for each of :data:`TABLES` that makes it, with more rows than :meth:`final` leaves."""
        return {
            "connections": lambda: connections.course(self.spells, self.span),
            "connection_time": lambda: connections.lasting(self.spells, self.span),
            "subscriptions": lambda: subscriptions.course(subscriptions.changes(self), self.span),
            "deliveries": lambda: deliveries.course(deliveries.items(self)),
            "traffic": lambda: traffic.course(self),
            "outcomes": lambda: outcomes.course(self),
            "recoveries": lambda: recoveries.course(self),
            "responses": lambda: responses.course(self),
            "events": self._events,
        }

    def final(self, table: DataFrame) -> DataFrame:
        """Return the rows of ``table`` for minutes that are final now."""
        start = F.col("start")
        whole = (start >= F.lit(self.span.since)) & (start < F.lit(self.span.until))
        return table.where((F.col("per") == "minute") & whole)

    def _events(self) -> DataFrame:
        """The number of ``events``, by type and instance (``""``: they name none)."""
        keys = ("type", "instance")
        repeated = self.found.repeated
        single = [each for kind, found in self._segments_of.items() if kind not in repeated for each in found]
        every = read(self.spark, self.root, single).select(*keys, "received_at")
        for kind in sorted(repeated):
            every = every.unionByName(self._read(kind).select(*keys, "received_at"))
        every = every.where((F.col("received_at") >= F.lit(self.span.since)) & self._final())
        minutes = every.groupBy(
            "type",
            F.coalesce("instance", F.lit("")).alias("instance"),
            F.date_trunc("minute", "received_at").alias("start"),
        ).agg(F.count("*").alias("events"))
        sets = [("type",), keys]
        made = by_sets(minutes, keys, sets).groupBy("start", "by", *keys).agg(F.sum("events").alias("events"))
        return named(made, sets).select(F.lit("minute").alias("per"), "start", "by", *keys, "events")

    @functools.cached_property
    def spells(self) -> connections.Connections:
        """Connections, as the report has them."""
        own = self.of(OWN).where(F.col("action") == "connected")
        times = own.groupBy("endpoint").agg(F.collect_list(F.unix_micros("received_at")).alias("times"))
        made = connections.connections(self, {row["endpoint"]: row["times"] for row in times.collect()})
        rows = made.rows
        if self._carried is not None:
            # The state at the beginning counts: the times at which the record went on are forgotten.
            before = self._carried.where(F.col(KNOWN).isNotNull()).select(
                F.col("instance").alias("name"),
                "id",
                F.col("received_at").alias("began_at"),
                F.col(KNOWN).alias("before"),
            )
            rows = rows.withColumn("name", made.name("instance")).join(before, ["name", "id", "began_at"], "left")
            rows = rows.withColumn("known", F.coalesce("before", "known")).drop("before", "name")
        return connections.Connections(self._keep(rows), made.names)

    def carry(self) -> DataFrame:
        """Return the state for the next round, as events."""
        since = F.lit(self.span.until)
        long_before = F.lit(self.span.until - LOOK_BACK)
        conn = self.of("conn").where(self._final() & ~F.coalesce("unavailable", F.lit(False)))
        # One that has lapsed may show up again: events were missing.
        there = self.spells.rows.where(
            (F.col("began_at") < since)
            & (F.col("ended_at").isNull() | (F.col("ended_at") >= F.when(F.col("gone"), since).otherwise(long_before)))
        )
        live = self.spells.named(there).select(
            "instance",
            "id",
            "began_at",
            "known",
            F.col("route").alias("_route"),
            F.col("transport").alias("_transport"),
        )
        rows = conn.join(live, ["instance", "id"]).where(F.col("received_at") >= F.col("began_at"))
        place = F.struct("received_at", "session", "seq")
        first = rows.withColumn("_first", F.col("received_at") == F.col("began_at"))
        # Its route and the like need not have been in the first event.
        first = first.withColumn("route", F.when(F.col("_first"), F.col("_route")).otherwise(F.col("route")))
        filled = F.coalesce(F.when(F.col("_transport") != "", F.col("_transport")), F.col("conn_type"))
        first = first.withColumn("conn_type", F.when(F.col("_first"), filled).otherwise(F.col("conn_type")))
        columns = conn.columns
        ends = first.groupBy("instance", "id").agg(
            F.min_by(F.struct(*columns, F.col("known").alias(KNOWN)), place).alias("begin"),
            F.max_by(
                F.struct(*columns, F.lit(None).cast("boolean").alias(KNOWN)),
                F.struct(F.unix_micros("received_at") + F.coalesce("ttl", F.lit(connections.TTL)) * 1_000_000, place),
            ).alias("last"),
        )
        same = (F.col("begin.session") == F.col("last.session")) & (F.col("begin.seq") == F.col("last.seq"))
        both = F.when(same, F.array("begin")).otherwise(F.array("begin", "last"))
        made = ends.select(F.explode(both).alias("event")).select("event.*")
        nothing = F.lit(None).cast("boolean").alias(KNOWN)
        sub = self.of("sub").where(self._final())
        last = sub.groupBy("instance", F.coalesce("mode", F.lit("")).alias("_mode"), "channel").agg(
            F.max_by(F.struct(*sub.columns), place).alias("event")
        )
        last = last.select("event.*").where(
            ~F.coalesce("unavailable", F.lit(False))
            & (
                F.unix_micros("received_at") + F.coalesce("ttl", F.lit(subscriptions.TTL)) * 1_000_000
                >= F.unix_micros(since)
            )
        )
        own = self.of(OWN).where(
            (F.col("action") == "connected") & self._final() & (F.col("received_at") >= long_before)
        )
        return made.unionByName(last.select("*", nothing)).unionByName(own.select("*", nothing))

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return self._kept[-1]

    def forget(self) -> None:
        """Free the memory of kept tables."""
        for frame in self._kept:
            frame.unpersist()


def late(spark: SparkSession, root: pathlib.Path, work: Round, known: Iterable[Segment], since: object) -> DataFrame:
    """Return the number of late events, which are in no other table.

    Args:
        spark: session.
        root: folder of the record.
        work: segments of the round.
        known: segments read before: an event that one of these has as well is not late, but a copy.
        since: begin of the first minute that was not final.

    Returns:
        ``events`` per minute (``start``), ``type`` and ``instance`` that arrived when their minute was final.
    """
    frames = read(spark, root, work.late)
    at = F.when(F.col("type") == "report", traffic.middle()).otherwise(F.col("received_at"))
    copied = F.lit(False)
    for each in known:
        if any(new.overlaps(each) for new in work.late):
            of_it = (F.col("type") == each.kind) & (F.col("session") == each.session)
            copied = copied | (of_it & F.col("seq").between(each.first, each.last))
    rows = frames.where((at < F.lit(since)) & ~copied).dropDuplicates(["type", "session", "seq"])
    name = F.coalesce("instance", F.lit("")).alias("instance")
    made = rows.groupBy(F.date_trunc("minute", at).alias("start"), "type", name).agg(F.count("*").alias("events"))
    return made.select(F.lit("minute").alias("per"), "start", "type", "instance", "events")
