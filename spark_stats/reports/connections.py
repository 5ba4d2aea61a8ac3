"""Connections: from when to when, how many at a time, new and gone ones, how long they lasted.

A **connection** is what ``conn`` events of one instance and id tell of, up to the one that says it is gone. For HTTP
that is a request, held or not; for WebSockets the socket. It

- **begins** with the first event. If the record itself had begun, or the instance's endpoint had been connected,
  shortly before (within the ttl), it may have been there already: its beginning is *unknown*;
- **ends** with the event that says so (``gone``), or when its ttl has passed since the last event (``lapsed``): the
  event that it was gone, or the record, is missing then, and how long it lasted is unknown.

An event that a connection is gone, and none before, is of no use: it is left out.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_stats.reports.bucket import by_sets, per_bucket, rolled_up
from spark_stats.reports.events import Events
from spark_stats.reports.level import levels
from spark_stats.reports.quantile import cut, quantiles
from spark_stats.reports.span import Span

__all__ = ["KEYS", "SETS", "TTL", "connections", "course", "lasting", "present"]

TTL: Final = 120
"""Seconds that a connection is taken to go on after an event without ``ttl``."""

KEYS: Final = ("instance", "route", "transport")
SETS: Final = ((), ("instance",), ("route",), ("transport",), KEYS)
"""Sets of keys that figures are given for."""


def connections(events: Events, resumed: DataFrame) -> DataFrame:
    """Return one row per connection: ``instance``, ``id``, ``route``, ``transport`` (``http`` or ``ws``),
    ``peer_address``, ``began_at``, ``ended_at`` (null: was there at the end of the range), ``end`` (``gone``,
    ``lapsed``, null), ``known`` (whether it really began then).

    ``resumed``: per ``endpoint``, an array ``times`` of when the record of it began or went on.
    """
    conn = events.of("conn").where(F.col("id").isNotNull() & F.col("instance").isNotNull())
    order = Window.partitionBy("instance", "id").orderBy("received_at", "session", "seq")
    gone = F.coalesce("unavailable", F.lit(False))
    # An id that is used again is another connection: the number of ends before tells them apart.
    earlier = F.sum(F.col("gone").cast("int")).over(order.rowsBetween(Window.unboundedPreceding, -1))
    rows = conn.select(
        "instance", "id", "received_at", "session", "seq", "endpoint", "conn_type", "peer_address", "ttl",
        gone.alias("gone"), F.when(F.col("route") != "", F.col("route")).alias("route"),
    ).withColumn("spell", F.coalesce(earlier, F.lit(0)))  # fmt: skip
    here = F.when(~F.col("gone"), F.col("received_at"))
    ttl = F.coalesce("ttl", F.lit(TTL))
    # Not every event has all fields: the first that has it counts.
    place = F.struct("received_at", "session", "seq")
    made = rows.groupBy("instance", "id", "spell").agg(
        F.min(here).alias("began_at"),
        F.max(F.when(~F.col("gone"), F.timestamp_micros(F.unix_micros("received_at") + ttl * 1_000_000))).alias(
            "until"
        ),
        F.max(F.when(F.col("gone"), F.col("received_at"))).alias("gone_at"),
        F.max(F.when(~F.col("gone"), ttl)).alias("ttl"),
        *[
            F.min_by(name, F.when(F.col(name).isNotNull(), place)).alias(name)
            for name in ("route", "conn_type", "peer_address")
        ],
        F.min_by("endpoint", place).alias("endpoint"),
    )
    made = made.where(F.col("began_at").isNotNull()).join(F.broadcast(resumed), "endpoint", "left")
    lapsed = F.col("gone_at").isNull() & (F.col("until") < F.lit(events.span.until))
    since = F.unix_micros("began_at") - F.col("ttl") * 1_000_000
    fresh = F.exists(
        F.coalesce("times", F.array().cast("array<timestamp>")),
        lambda time: (time <= F.col("began_at")) & (F.unix_micros(time) > since),
    )
    return made.select(
        "instance",
        "id",
        F.coalesce("route", F.lit("")).alias("route"),
        F.coalesce("conn_type", F.lit("")).alias("transport"),
        "peer_address",
        "began_at",
        F.coalesce("gone_at", F.when(lapsed, F.col("until"))).alias("ended_at"),
        F.when(F.col("gone_at").isNotNull(), "gone").when(lapsed, "lapsed").alias("end"),
        (~fresh).alias("known"),
    )


def course(made: DataFrame, span: Span) -> DataFrame:
    """Return connections at a time and churn: ``connections_peak``, ``_average`` and ``_last``; ``new``, those whose
    beginning is known; ``gone``, lapsed ones included; ``lapsed``."""
    changes = made.select(
        *KEYS,
        F.explode(
            F.array(
                F.struct(F.col("began_at").alias("at"), F.lit(1).cast("bigint").alias("connections")),
                F.struct(F.col("ended_at").alias("at"), F.lit(-1).cast("bigint").alias("connections")),
            )
        ).alias("_change"),
    ).select(*KEYS, "_change.*")
    at_a_time = levels(changes.where(F.col("at").isNotNull()), KEYS, SETS, ["connections"], span)
    turns = made.select(
        *KEYS,
        F.explode(
            F.array(
                F.struct(F.col("began_at").alias("at"), F.col("known").cast("bigint").alias("new"), *_zeros(2)),
                F.struct(
                    F.col("ended_at").alias("at"),
                    F.lit(0).cast("bigint").alias("new"),
                    F.lit(1).cast("bigint").alias("gone"),
                    (F.col("end") == "lapsed").cast("bigint").alias("lapsed"),
                ),
            )
        ).alias("_turn"),
    ).select(*KEYS, "_turn.*")
    turns = turns.where((F.col("at") >= F.lit(span.since)) & (F.col("at") < F.lit(span.until)))
    sums = [F.sum(name).alias(name) for name in ("new", "gone", "lapsed")]
    minutes = turns.groupBy(*KEYS, F.date_trunc("minute", "at").alias("at")).agg(*sums)
    churn = per_bucket(by_sets(minutes, KEYS, SETS), "at").groupBy("per", "start", "by", *KEYS).agg(*sums)
    churn = churn.where((F.col("new") > 0) | (F.col("gone") > 0))
    both = _joined(at_a_time, churn, ["per", "start", "by", *KEYS])
    names = [name for name in both.columns if name.startswith("connections_")]
    return both.select(
        "per",
        "start",
        "by",
        *KEYS,
        *[F.coalesce(name, F.lit(0)).alias(name) for name in (*names, "new", "gone", "lapsed")],
    )


def _zeros(count: int) -> list[object]:
    return [F.lit(0).cast("bigint").alias(name) for name in ("gone", "lapsed")[:count]]


def _joined(left: DataFrame, right: DataFrame, on: list[str]) -> DataFrame:
    """Full outer join where null equals null."""
    condition = F.lit(True)
    for name in on:
        condition = condition & left[name].eqNullSafe(right[name])
    rest = [
        *[left[name] for name in left.columns if name not in on],
        *[right[name] for name in right.columns if name not in on],
    ]
    return left.join(right, condition, "full").select(
        *[F.coalesce(left[name], right[name]).alias(name) for name in on], *rest
    )


def lasting(made: DataFrame, span: Span) -> DataFrame:
    """Return how long connections lasted that ended in a bucket, in ms: ``ended``, ``lasted_mean``, ``_median``,
    ``_p95``, ``_max``. Only those whose beginning and end are known; ``unknown`` is the number of the others."""
    ended = made.where((F.col("ended_at") >= F.lit(span.since)) & (F.col("ended_at") < F.lit(span.until)))
    sure = F.col("known") & (F.col("end") == "gone")
    lasted = F.floor((F.unix_micros("ended_at") - F.unix_micros("began_at")) / 1000)
    rows = ended.select(
        *KEYS,
        F.date_trunc("minute", "ended_at").alias("at"),
        F.when(sure, lasted).alias("exact"),
        sure.cast("bigint").alias("ended"),
        (~sure).cast("bigint").alias("unknown"),
    )
    counted = rows.groupBy(*KEYS, "at", cut(F.col("exact")).alias("lasted")).agg(
        F.sum("ended").alias("ended"),
        F.sum("unknown").alias("unknown"),
        F.sum("exact").alias("lasted_sum"),
        F.max("exact").alias("lasted_max"),
    )
    sums = ["ended", "unknown", "lasted_sum"]
    spread = by_sets(rolled_up(counted, [*KEYS, "lasted"], sums, ["lasted_max"]), KEYS, SETS)
    keys = ["per", "start", "by", *KEYS]
    placed = quantiles(spread, keys, "lasted", "ended", ["unknown", "lasted_sum"], ["lasted_max"])
    mean = F.when(F.col("ended") > 0, F.col("lasted_sum") / F.col("ended"))
    return placed.withColumn("lasted_mean", mean).drop("lasted_sum")


def present(made: DataFrame, at: object) -> DataFrame:
    """Return the connections that were there at a time."""
    there = (F.col("began_at") <= F.lit(at)) & (F.col("ended_at").isNull() | (F.col("ended_at") > F.lit(at)))
    return made.where(there)
