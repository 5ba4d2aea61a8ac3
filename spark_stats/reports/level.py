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

from spark_stats.reports.bucket import MARK, PERS, Unpack, bounded, by_sets, mark, per_bucket
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
    """Return the course of some numbers.

    Arguments:
        changes: ``keys``, the time ``at``, and for each of the ``values`` by how much it changes then. What was before
            the span sums up to how it begins.
        keys, sets: see :mod:`~spark_stats.reports.bucket`.
        sums: numbers that are not levels, but added up.
        many: a key with so many values that there are about as many changes as seconds with one of them.
        unpack: makes the columns of ``changes``, which has ``at`` and others.

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
    summed = by_sets(placed.groupBy(*few, "at").agg(*adding), few, mixed).groupBy("by", *few, "at").agg(*adding)
    for chosen in sets:
        if many in chosen:
            alone = by_sets(_parts(clipped, unpack, keys, values, sums), keys, [chosen])
            summed = alone.unionByName(summed, allowMissingColumns=True)
    # All rows of a second have what there is at its end.
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
    return _filled(buckets, keys, values, span, sums)


def _parts(
    changes: DataFrame, unpack: Unpack, keys: Sequence[str], values: Sequence[str], sums: Sequence[str]
) -> DataFrame:
    """What adds up of changes in a second: what the values change by, that weighted with when, and the ``sums``."""
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
    """Add buckets in which nothing changes but there is something, and what each bucket begins with."""
    order = Window.partitionBy(*MARK, "per").orderBy("start")
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
