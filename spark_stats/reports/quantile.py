"""Median and 95th percentile of whole numbers: the value at that place of the sorted ones, not one between two.

Exact to three digits: larger numbers are cut after the third, so that there are few different ones to count, however
many numbers there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_stats.reports.bucket import MARK, PERS, Unpack, by_sets, mark, named, per_bucket

__all__ = ["cut", "distributions", "quantiles"]

LONGEST: Final = 19
"""Digits of the largest bigint."""


def cut(value: Column) -> Column:
    """Return ``value``, a whole number from 0, with its digits after the third made 0."""
    made = F.when(value < 1000, value)
    for digits in range(4, LONGEST):
        made = made.when(value < 10**digits, value - value % 10 ** (digits - 3))
    return made.otherwise(value - value % 10 ** (LONGEST - 3))


def distributions(
    rows: DataFrame,
    keys: Sequence[str],
    sets: Sequence[Sequence[str]],
    value: str,
    count: str,
    sums: Sequence[str] = (),
    maxima: Sequence[str] = (),
    many: str | None = None,
    unpack: Unpack = lambda rows: rows,
) -> DataFrame:
    """Return quantiles over time, for each set of keys.

    Args:
        rows: rows with the time ``at`` and columns of which ``unpack`` makes the others.
        keys: columns that quantiles may be given by.
        sets: sets of these keys.
        value: column with the numbers, null for none.
        count: column with 1, or 0 where there is no value.
        sums: columns that are added up.
        maxima: columns of which the largest value is kept.
        many: a key with so many values, and never null, that it is alone in its set.
        unpack: makes the keys, ``value``, ``count``, ``sums`` and ``maxima`` of the columns of ``rows``.

    Returns:
        The columns of :func:`quantiles`, with ``per``, ``start`` and ``by``.
    """
    figures = [*[F.sum(name).alias(name) for name in (count, *sums)], *[F.max(name).alias(name) for name in maxima]]
    placed = unpack(rows.withColumn("start", F.date_trunc("minute", "at")).drop("at").repartition("start"))
    few = [key for key in keys if key != many]
    if many is not None:
        # Two kinds of rows, which are not mixed: for the other keys together, and for that one. Made in one pass:
        # separately, Spark would read the record twice.
        placed = by_sets(placed, keys, [few, [many]]).drop("by")
    # Most values of a minute differ: they are sorted as they are, all of a group in one array of numbers, which costs a
    # tenth of rows sorted by group. All of a minute are brought to one place, once. Over hours and days values are
    # counted first, so that there is no end to how many.
    arrays = [F.collect_list(value).alias("_values"), *figures]
    mixed = [chosen for chosen in sets if many not in chosen]
    together = placed if many is None else placed.where(F.col(many).isNull())
    made = by_sets(together.groupBy("start", *keys).agg(*arrays), keys, sets, mixed)
    made = made.groupBy("start", "by", *keys).agg(F.flatten(F.collect_list("_values")).alias("_values"), *figures)
    if many is not None:
        having = [chosen for chosen in sets if many in chosen]
        alone = placed.where(F.col(many).isNotNull()).groupBy("start", *keys).agg(*arrays)
        made = made.unionByName(by_sets(alone, keys, sets, having))
    group = ["start", "by", *keys]
    made = made.withColumn("_values", F.sort_array("_values")).select(
        F.lit(list(PERS).index("minute")).alias("per"),
        *group,
        _placed("_values", 1, 2).alias(f"{value}_median"),
        _placed("_values", 19, 20).alias(f"{value}_p95"),
        *[name for name in made.columns if name not in (*group, "_values")],
    )
    # All of a value to one place: each row is there ten times from here on.
    hours = placed.groupBy(F.date_trunc("hour", "start").alias("at"), *keys, value).agg(*figures).repartition(value)
    longer = per_bucket(by_sets(hours, keys, sets, many=many), "at", ("hour", "day"))
    counted = longer.groupBy("per", "start", "by", *keys, value).agg(*figures)
    return named(made.unionByName(quantiles(counted, ["per", "start", "by", *keys], value, count, sums, maxima)), sets)


def _placed(values: str, of: int, among: int) -> Column:
    """Quantile ``of/among`` of a sorted array; in whole numbers: 0.95 * n is not exact. Null if it is empty."""
    return F.get(values, F.expr(f"(size({values}) * {of} + {among - 1}) div {among} - 1").cast("int"))


def quantiles(
    counted: DataFrame,
    keys: Sequence[str],
    value: str,
    count: str,
    sums: Sequence[str] = (),
    maxima: Sequence[str] = (),
) -> DataFrame:
    """Return the median and 95th percentile of counted values.

    The quantile q of n values is the smallest one that at least q*n of them are not above.

    Args:
        counted: rows with the ``keys``, a ``value``, which may occur in several rows, and its ``count``.
        keys: columns to group by, ``start`` among them.
        value: column with the numbers; null is no value, and has count 0.
        count: column with the number of occurrences.
        sums: columns that are added up.
        maxima: columns of which the largest value is kept.

    Returns:
        ``keys``, the sum of ``count``, ``<value>_median``, ``<value>_p95``, sums and maxima.
    """
    rest = [*[F.sum(name).alias(name) for name in (count, *sums)], *[F.max(name).alias(name) for name in maxima]]
    # One window is cheaper than two.
    group = Window.partitionBy(*MARK, "start").orderBy(value)
    upto = F.sum(count).over(group.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    total = F.sum(count).over(group.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    placed = counted.select("*", *mark(*keys)).withColumns({"_upto": upto, "_total": total})
    # In whole numbers: 0.95 * n is not exact.
    made = placed.groupBy(*MARK, *keys).agg(
        F.min(F.when(F.col("_upto") * 2 >= F.col("_total"), F.col(value))).alias(f"{value}_median"),
        F.min(F.when(F.col("_upto") * 20 >= F.col("_total") * 19, F.col(value))).alias(f"{value}_p95"),
        *rest,
    )
    return made.drop(*MARK)
