"""A number that changes at moments and holds in between, such as connections at a time: its peak and average.

The **average** of a bucket is exact: the time that each one was there in the bucket, summed up, divided by the bucket's
length. The **peak** is the largest number that there was at the end of a second in the bucket: what comes and goes
within a second does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_stats.reports.bucket import PERS, bounded, by_sets, per_bucket
from spark_stats.reports.span import Span

__all__ = ["levels"]

DAY: Final = PERS["day"]


def levels(
    changes: DataFrame,
    keys: Sequence[str],
    sets: Sequence[Sequence[str]],
    values: Sequence[str],
    span: Span,
    sums: Sequence[str] = (),
) -> DataFrame:
    """Return the course of some numbers.

    Arguments:
        changes: ``keys``, the time ``at``, and for each of the ``values`` by how much it changes then. What was before
            the span sums up to how it begins.
        keys, sets: see :mod:`~spark_stats.reports.bucket`.
        sums: numbers that are not levels, but added up.

    Returns:
        ``per``, ``start``, ``by``, ``keys``, and for each value ``<value>_peak``, ``<value>_average`` and
        ``<value>_last``, at the end of the bucket, and the ``sums``. Buckets in which all are 0 throughout are left
        out.
    """
    since, until = F.lit(span.since), F.lit(span.until)
    clipped = changes.where(F.col("at") < until).withColumn("at", F.greatest("at", since))
    second = F.date_trunc("second", "at")
    # Few rows from here on, however many events there were: one per second and keys at most. `moment` is when, in µs
    # since midnight, weighted with the change.
    moment = F.unix_micros("at") % (DAY * 1_000_000)
    parts = [*values, *[f"{value}_moment" for value in values], *sums]
    seconds = clipped.groupBy(*keys, second.alias("at")).agg(
        *[F.sum(value).alias(value) for value in values],
        *[F.sum(F.col(value) * moment).alias(f"{value}_moment") for value in values],
        *[F.sum(name).alias(name) for name in sums],
    )
    summed = by_sets(seconds, keys, sets).groupBy("by", *keys, "at").agg(*[F.sum(part).alias(part) for part in parts])
    # Sorting by one number first is much cheaper than by all the keys.
    group = ["_hash", "by", *keys]
    order = Window.partitionBy(*group).orderBy("at").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    hashed = summed.withColumn("_hash", F.xxhash64("by", *keys))
    running = hashed.withColumns({f"{value}_now": F.sum(value).over(order) for value in values})
    adding = [F.sum(part).alias(part) for part in parts]
    minutes = running.groupBy(*group, F.date_trunc("minute", "at").alias("minute")).agg(
        F.min("at").alias("first_change"),
        F.max("at").alias("at"),
        *[F.max(f"{value}_now").alias(f"{value}_peak") for value in values],
        *[F.max_by(f"{value}_now", "at").alias(f"{value}_last") for value in values],
        *adding,
    )
    buckets = (
        per_bucket(minutes, "minute")
        .groupBy(*group, "per", "start")
        .agg(
            F.min("first_change").alias("first_change"),
            *[F.max(f"{value}_peak").alias(f"{value}_peak") for value in values],
            *[F.max_by(f"{value}_last", "at").alias(f"{value}_last") for value in values],
            *adding,
        )
    )
    return _filled(buckets, group, keys, values, span, sums)


def _filled(
    buckets: DataFrame,
    group: Sequence[str],
    keys: Sequence[str],
    values: Sequence[str],
    span: Span,
    sums: Sequence[str],
) -> DataFrame:
    """Add buckets in which nothing changes but there is something, and what each bucket begins with."""
    order = Window.partitionBy(*group, "per").orderBy("start")
    length = F.element_at(F.create_map(*[F.lit(x) for pair in PERS.items() for x in pair]), F.col("per"))
    following = F.coalesce(F.lead(F.unix_seconds("start")).over(order), F.lit(int(span.until.timestamp())))
    before = {f"{value}_before": F.coalesce(F.lag(f"{value}_last").over(order), F.lit(0)) for value in values}
    holds = F.lit(False)
    for value in values:
        holds = holds | (F.col(f"{value}_last") != 0)
    begin = F.unix_seconds("start")
    last = F.when(
        holds, F.greatest(begin, begin + F.floor((F.col("following") - begin - 1) / length) * length)
    ).otherwise(begin)
    spread = (
        buckets.withColumns({"following": following, **before})
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
        # What each change makes of the rest of the bucket.
        since_midnight = end - (begin - begin % DAY)
        rest = F.col(value) * since_midnight * 1_000_000 - F.col(f"{value}_moment")
        area = F.when(own, rest / 1e6 + at_first * seconds).otherwise(now * seconds)
        made.append((area / seconds).alias(f"{value}_average"))
        made.append(now.alias(f"{value}_last"))
    made += [F.when(own, F.col(name)).otherwise(F.lit(0)).alias(name) for name in sums]
    shown = F.lit(False)
    for value in values:
        shown = shown | (F.col(f"{value}_peak") != 0) | (F.col(f"{value}_average") != 0)
    for name in sums:
        shown = shown | (F.col(name) != 0)
    return spread.select("per", "start", "by", *keys, *made).where(shown)
