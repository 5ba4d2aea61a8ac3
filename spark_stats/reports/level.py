"""Level: a number that changes at moments and holds in between, such as connections at a time; its peak and average.

The **average** of a bucket is exact: the time that each one was there in the bucket, summed up, divided by the bucket's
length. The **peak** is the largest number at the end of a second in the bucket: changes that are undone within a second
do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_stats.reports.bucket import MARK, PERS, Unpack, bounded, by_sets, length, mark, named, per_bucket
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
    many: str | None = None,
    unpack: Unpack = lambda rows: rows,
) -> DataFrame:
    """Return the course of some levels.

    Args:
        changes: ``keys``, the time ``at``, and for each of the ``values`` the change at that time. Changes before the
            span add up to the level at its beginning.
        keys: columns that levels may be given by; see :mod:`~spark_stats.reports.bucket`.
        sets: sets of these keys.
        values: columns with changes.
        span: range of time of the report.
        sums: columns that are added up, and no levels.
        many: a key with so many values that there are about as many changes as seconds with one of them.
        unpack: makes the columns of ``changes`` from those that it has: ``at`` and others.

    Returns:
        ``per``, ``start``, ``by``, ``keys``, and for each value ``<value>_peak``, ``<value>_average`` and
        ``<value>_last``, at the end of the bucket, and the ``sums``. Buckets in which all are 0 throughout are left
        out.
    """
    since, until = F.lit(span.since), F.lit(span.until)
    clipped = changes.where(F.col("at") < until).withColumn("at", F.greatest("at", since))
    parts = [*values, *[f"{value}_moment" for value in values], *sums]
    adding = [F.sum(part).alias(part) for part in parts]
    # Few rows from here on, however many events there were: one per second and keys at most. Not for the sets of keys
    # with many values, which are not mixed with the others. All of a second are brought to one place, once.
    few = [key for key in keys if key != many]
    mixed = [chosen for chosen in sets if many not in chosen]
    second = F.date_trunc("second", "at")
    placed = _parts((clipped if many is None else clipped.drop(many)).repartition(second), unpack, few, values, sums)
    summed = by_sets(placed.groupBy(*few, "at").agg(*adding), few, sets, mixed).groupBy("by", *few, "at").agg(*adding)
    if many is not None:
        having = [chosen for chosen in sets if many in chosen]
        alone = by_sets(_parts(clipped, unpack, keys, values, sums), keys, sets, having)
        summed = alone.unionByName(summed, allowMissingColumns=True)
    # All rows of a second have the level at its end.
    group = [*MARK, "by", *keys]
    order = Window.partitionBy(*MARK).orderBy("at").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    marked = summed.select("*", *mark("by", *keys))
    running = marked.withColumns({f"{value}_now": F.sum(value).over(order) for value in values})
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
    return named(_filled(buckets, keys, values, span, sums), sets)


def _parts(
    changes: DataFrame, unpack: Unpack, keys: Sequence[str], values: Sequence[str], sums: Sequence[str]
) -> DataFrame:
    """Sums of the changes in a second: of the values, of the values weighted with their time, and of ``sums``."""
    # In µs since midnight.
    moment = F.unix_micros("at") % (DAY * 1_000_000)
    return unpack(changes).select(
        *keys,
        F.date_trunc("second", "at").alias("at"),
        *values,
        *[(F.col(value) * moment).alias(f"{value}_moment") for value in values],
        *sums,
    )


def _filled(
    buckets: DataFrame,
    keys: Sequence[str],
    values: Sequence[str],
    span: Span,
    sums: Sequence[str],
) -> DataFrame:
    """Add buckets without a change and with a level above 0, and the level at the beginning of each bucket."""
    order = Window.partitionBy(*MARK, "per").orderBy("start")
    following = F.coalesce(F.lead(F.unix_seconds("start")).over(order), F.lit(int(span.until.timestamp())))
    before = {f"{value}_before": F.coalesce(F.lag(f"{value}_last").over(order), F.lit(0)) for value in values}
    holds = F.lit(False)
    for value in values:
        holds = holds | (F.col(f"{value}_last") != 0)
    begin = F.unix_seconds("start")
    last = F.when(
        holds, F.greatest(begin, begin + F.floor((F.col("following") - begin - 1) / length()) * length())
    ).otherwise(begin)
    first, end = bounded(span)
    seconds = end - first
    # No change in the first second: the level before it is the level at its end.
    quiet_first = F.unix_seconds("first_change") > first
    figures: dict[str, Column] = {}
    shown = F.lit(False)
    for value in values:
        at_first = F.col(f"{value}_before")
        peak = F.greatest(f"{value}_peak", F.when(quiet_first, at_first))
        # Contribution of each change to the remaining time of the bucket.
        since_midnight = end - (begin - begin % DAY)
        rest = F.col(value) * since_midnight * 1_000_000 - F.col(f"{value}_moment")
        average = (rest / 1e6 + at_first * seconds) / seconds
        figures |= {f"{value}_peak": peak, f"{value}_average": average}
        shown = shown | (peak != 0) | (average != 0)
    for name in sums:
        shown = shown | (F.col(name) != 0)
    own = F.col("_at") == F.col("own")
    # All that is to be calculated is, before a bucket is repeated for those in which nothing changes.
    known = buckets.withColumns({"following": following, **before}).select(
        "per",
        "by",
        *keys,
        begin.alias("own"),
        F.sequence(begin, last, length().cast("bigint")).alias("starts"),
        *[made.alias(name) for name, made in figures.items()],
        *[f"{value}_last" for value in values],
        *sums,
        shown.alias("shown"),
    )
    made = []
    for value in values:
        now = F.col(f"{value}_last")
        made.append(F.when(own, F.col(f"{value}_peak")).otherwise(now).alias(f"{value}_peak"))
        made.append(F.when(own, F.col(f"{value}_average")).otherwise(now.cast("double")).alias(f"{value}_average"))
        made.append(now)
    made += [F.when(own, F.col(name)).otherwise(F.lit(0)).alias(name) for name in sums]
    # None is empty. Of a plain explode, Spark would make sure of it, by calculating them twice.
    spread = known.select("*", F.explode_outer("starts").alias("_at")).where(~own | F.col("shown"))
    return spread.select("per", F.timestamp_seconds("_at").alias("start"), "by", *keys, *made)
