"""Traffic of instances, by their ``report``, ``activity`` and ``counts`` events.

A report is about the time since the one before (``duration``). Its figures count in the bucket that contains the middle
of that time. Figures of one instance and bucket add up over its routes; ``connections`` is the largest number of one
report, per instance and route, and is not given for all of them together: the largest numbers need not be from one
time. A bucket without reports has no row. That does not mean zero: see :mod:`~spark_stats.reports.gaps`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_stats.reports.bucket import grouped
from spark_stats.reports.events import Events
from spark_stats.schema import REPORT

__all__ = ["FIGURES", "KEYS", "SETS", "course", "middle"]

KEYS: Final = ("instance", "route")
SETS: Final = ((), ("instance",), ("route",), KEYS)

FIGURES: Final = tuple(name.replace("-", "_") for name in REPORT if name not in {"connections", "duration"})
"""Figures of a report that add up."""


def middle() -> Column:
    """Return the middle of the time that a report is about."""
    return F.timestamp_micros(F.unix_micros("received_at") - F.coalesce("duration", F.lit(0)) * 500)


def course(events: Events) -> DataFrame:
    """Return traffic over time.

    Args:
        events: events of the span.

    Returns:
        ``reports``, ``connections_max`` and the sums of :data:`FIGURES`; ``activity`` and ``requests`` from the events
        of that kind, ``requests`` per instance only.
    """
    known = F.col("instance").isNotNull()
    reports = events.within("report").where(known).withColumn("at", middle())
    reports = reports.select(
        *KEYS, "at", "connections", *FIGURES, F.lit(1).alias("reports"), *_nothing("activity", "requests")
    )
    activity = events.within("activity").where(known).select(
        *KEYS, F.col("received_at").alias("at"), *_nothing("connections", *FIGURES, "reports"),
        F.col("count").alias("activity"), *_nothing("requests"),
    )  # fmt: skip
    counts = events.within("counts").where(known).select(
        "instance", F.lit("").alias("route"), F.col("received_at").alias("at"),
        *_nothing("connections", *FIGURES, "reports", "activity"), F.col("requests_received").alias("requests"),
    )  # fmt: skip
    sums = ("reports", *FIGURES, "activity", "requests")
    totals = [F.sum(name).alias(name) for name in sums]
    minutes = reports.unionByName(activity).unionByName(counts)
    minutes = minutes.where(F.col("at") >= F.lit(events.span.since)).groupBy(
        *KEYS, F.date_trunc("minute", "at").alias("at")
    ).agg(F.max("connections").alias("connections_max"), *totals)  # fmt: skip
    made = grouped(minutes, "at", KEYS, SETS, [F.max("connections_max").alias("connections_max"), *totals])
    alone = F.col("by") == "+".join(KEYS)
    return made.withColumn("connections_max", F.when(alone, F.col("connections_max")))


def _nothing(*names: str) -> list[Column]:
    return [F.lit(None).cast("bigint").alias(name) for name in names]
