"""A number that changes at moments and holds in between, such as connections at a time: its peak and average.

The **average** of a bucket is exact: the time that each one was there in the bucket, summed up, divided by the bucket's
length. The **peak** is the largest number that there was at the end of a second in the bucket: what comes and goes
within a second does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_stats.reports.bucket import PERS, bounded, by_sets, per_bucket
from spark_stats.reports.span import Span

__all__ = ["levels"]


def levels(
    changes: DataFrame, keys: Sequence[str], sets: Sequence[Sequence[str]], values: Sequence[str], span: Span
) -> DataFrame:
    """Return the course of some numbers.

    Arguments:
        changes: ``keys``, the time ``at``, and for each of the ``values`` by how much it changes then. What was before
            the span sums up to how it begins.
        keys, sets: see :mod:`~spark_stats.reports.bucket`.

    Returns:
        ``per``, ``start``, ``by``, ``keys``, and for each value ``<value>_peak``, ``<value>_average`` and
        ``<value>_last``, at the end of the bucket. Buckets in which all values are 0 throughout are left out.
    """
    since, until = F.lit(span.since), F.lit(span.until)
    clipped = changes.where(F.col("at") < until).withColumn("at", F.greatest("at", since))
    second = F.date_trunc("second", "at")
    # Few rows from here on, however many events there were: one per second and keys at most. `late` is the part of
    # the second that had passed, in µs, weighted with the change.
    late = F.unix_micros("at") - F.unix_micros(second)
    seconds = clipped.groupBy(*keys, second.alias("at")).agg(
        *[F.sum(value).alias(value) for value in values],
        *[F.sum(F.col(value) * late).alias(f"{value}_late") for value in values],
    )
    parts = [*values, *[f"{value}_late" for value in values]]
    summed = by_sets(seconds, keys, sets).groupBy("by", *keys, "at").agg(*[F.sum(part).alias(part) for part in parts])
    order = Window.partitionBy("by", *keys).orderBy("at").rowsBetween(Window.unboundedPreceding, 0)
    running = summed.select("*", *[F.sum(value).over(order).alias(f"{value}_now") for value in values])
    end = bounded(span)[1]
    left = end - F.unix_seconds("at")
    buckets = (
        per_bucket(running, "at")
        .groupBy("per", "by", *keys, "start")
        .agg(
            F.min("at").alias("first_change"),
            *[F.max(f"{value}_now").alias(f"{value}_peak") for value in values],
            *[F.max_by(f"{value}_now", "at").alias(f"{value}_last") for value in values],
            *[
                F.sum(F.col(value) * left * 1_000_000 - F.col(f"{value}_late")).alias(f"{value}_area")
                for value in values
            ],
        )
    )
    return _filled(buckets, keys, values, span)


def _filled(buckets: DataFrame, keys: Sequence[str], values: Sequence[str], span: Span) -> DataFrame:
    """Add buckets in which nothing changes but there is something, and what each bucket begins with."""
    order = Window.partitionBy("per", "by", *keys).orderBy("start")
    length = F.element_at(F.create_map(*[F.lit(x) for pair in PERS.items() for x in pair]), F.col("per"))
    following = F.coalesce(F.lead(F.unix_seconds("start")).over(order), F.lit(int(span.until.timestamp())))
    before = [F.coalesce(F.lag(f"{value}_last").over(order), F.lit(0)).alias(f"{value}_before") for value in values]
    holds = F.lit(False)
    for value in values:
        holds = holds | (F.col(f"{value}_last") != 0)
    begin = F.unix_seconds("start")
    last = F.when(
        holds, F.greatest(begin, begin + F.floor((F.col("following") - begin - 1) / length) * length)
    ).otherwise(begin)
    spread = (
        buckets.select("*", following.alias("following"), *before)
        .withColumn("own", F.col("start"))
        .withColumn("start", F.explode(F.sequence(begin, last, length)))
        .withColumn("start", F.timestamp_seconds("start"))
    )
    first, end = bounded(span)
    seconds = end - first
    own = F.col("start") == F.col("own")
    # Nothing changed in the first second: what there was before is what there was at its end.
    quiet_first = F.unix_seconds("first_change") > first
    made = []
    for value in values:
        now, at_first = F.col(f"{value}_last"), F.col(f"{value}_before")
        peak = F.greatest(f"{value}_peak", F.when(quiet_first, at_first))
        made.append(F.when(own, peak).otherwise(now).alias(f"{value}_peak"))
        area = F.when(own, F.col(f"{value}_area") / 1e6 + at_first * seconds).otherwise(now * seconds)
        made.append((area / seconds).alias(f"{value}_average"))
        made.append(now.alias(f"{value}_last"))
    shown = F.lit(False)
    for value in values:
        shown = shown | (F.col(f"{value}_peak") != 0) | (F.col(f"{value}_average") != 0)
    return spread.select("per", "start", "by", *keys, *made).where(shown)
