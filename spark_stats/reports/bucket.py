"""Buckets of time, and the sets of keys that figures are given for.

Every table that is a course over time has the columns ``per`` (``minute``, ``hour``, ``day``; days are UTC's),
``start``
of the bucket, and ``by``: which of the keys the row is for, joined with ``+``, or ``all``. Keys that it is not for are
null. A bucket at the edge of the range counts with the part that is in the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_stats.reports.span import Span

__all__ = ["PERS", "bounded", "by_sets", "per_bucket", "rolled_up"]

PERS: Final = {"minute": 60, "hour": 3600, "day": 86400}
"""Lengths of buckets in seconds, by name."""


def by_sets(rows: DataFrame, keys: Sequence[str], sets: Sequence[Sequence[str]]) -> DataFrame:
    """Repeat every row for each set of keys: adds the column ``by`` and makes the other ``keys`` null."""
    copies = [
        F.struct(
            F.lit("+".join(chosen) or "all").alias("by"),
            *[(F.col(key) if key in chosen else F.lit(None).cast("string")).alias(key) for key in keys],
        )
        for chosen in sets
    ]
    rest = [column for column in rows.columns if column not in keys]
    return rows.select(*rest, F.explode(F.array(*copies)).alias("_set")).select("_set.*", *rest)


def per_bucket(rows: DataFrame, at: str) -> DataFrame:
    """Repeat every row for minute, hour and day: adds ``per`` and ``start`` of the bucket with the time ``at``."""
    copies = [F.struct(F.lit(per).alias("per"), F.date_trunc(per, at).alias("start")) for per in PERS]
    return rows.select(F.explode(F.array(*copies)).alias("_bucket"), *rows.columns).select("_bucket.*", *rows.columns)


def rolled_up(minutes: DataFrame, keys: Sequence[str], sums: Sequence[str], maxima: Sequence[str] = ()) -> DataFrame:
    """The same as :func:`per_bucket` of the time ``at``, which is cut to minutes, but with rows of a bucket and
    ``keys`` added up, hours from minutes and days from hours: few rows where there are few different keys."""
    figures = [*[F.sum(name).alias(name) for name in sums], *[F.max(name).alias(name) for name in maxima]]
    rows = minutes.withColumnRenamed("at", "start")
    made = rows.withColumn("per", F.lit("minute"))
    for per in ("hour", "day"):
        rows = rows.withColumn("start", F.date_trunc(per, "start")).groupBy("start", *keys).agg(*figures)
        made = made.unionByName(rows.withColumn("per", F.lit(per)))
    return made


def bounded(span: Span) -> tuple[Column, Column]:
    """Begin and end of the bucket of a row (``per``, ``start``) within the span, in seconds since 1970."""
    start = F.unix_seconds("start")
    length = F.element_at(F.create_map(*[F.lit(x) for pair in PERS.items() for x in pair]), F.col("per"))
    return (
        F.greatest(start, F.lit(int(span.since.timestamp()))),
        F.least(start + length, F.lit(int(span.until.timestamp()))),
    )
