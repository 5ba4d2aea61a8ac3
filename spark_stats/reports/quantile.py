"""Median and 95th percentile of whole numbers: the value at that place of the sorted ones, not one between two.

Exact to three digits: larger numbers are cut after the third, so that there are few different ones to count, however
many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_stats.reports.bucket import MARK, by_sets, grouped, mark

__all__ = ["cut", "distributions", "quantiles"]

LONGEST: Final = 19
"""Digits of the largest bigint."""


def cut(value: Column) -> Column:
    """Return a whole number, 0 or more, with its digits after the third made 0."""
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
    apart: bool = False,
) -> DataFrame:
    """Return :func:`quantiles` over time, for each of the ``sets`` of ``keys``.

    ``rows`` have the time ``at``, and else what :func:`quantiles` wants, but may have a value many times. ``apart``:
    nearly all values of a minute differ, the keys have few values, and the count of a row is 1, or 0 without a value.
    """
    figures = [*[F.sum(name).alias(name) for name in (count, *sums)], *[F.max(name).alias(name) for name in maxima]]
    # Most values are apart from each other in minutes, so there are about as many rows as before. All of a minute are
    # brought to one place, once: all that follows is done there.
    placed = rows.withColumn("start", F.date_trunc("minute", "at")).drop("at").repartition("start")
    minutes = placed.groupBy("start", *keys, value).agg(*figures)
    hours = minutes.groupBy(F.date_trunc("hour", "start").alias("at"), *keys, value).agg(*figures)
    longer = grouped(hours, "at", keys, sets, figures, [value], ("hour", "day"))
    if apart:
        # Each group's values in a table of its own cost less than all of them sorted.
        made = by_sets(placed, keys, sets).groupBy("start", "by", *keys).agg(*_percentiles(value), *figures)
    else:
        made = quantiles(by_sets(minutes, keys, sets), ["start", "by", *keys], value, count, sums, maxima)
    return made.select(F.lit("minute").alias("per"), *made.columns).unionByName(
        quantiles(longer, ["per", "start", "by", *keys], value, count, sums, maxima)
    )


def _percentiles(value: str) -> list[Column]:
    """The same quantiles as aggregates of rows with a value each."""
    return [
        F.expr(f"CAST(percentile_disc({q}) WITHIN GROUP (ORDER BY {value}) AS bigint)").alias(f"{value}_{name}")
        for name, q in (("median", "0.5D"), ("p95", "0.95D"))
    ]


def quantiles(
    counted: DataFrame,
    keys: Sequence[str],
    value: str,
    count: str,
    sums: Sequence[str] = (),
    maxima: Sequence[str] = (),
) -> DataFrame:
    """Return ``keys``, the sum of ``count``, ``<value>_median``, ``<value>_p95``, and sums and maxima of other columns.

    ``counted`` has the ``keys``, of which one is ``start``, a ``value``, which may be there several times, and how
    often it is there (``count``). Null is no value, and has count 0.

    The quantile q of n values is the smallest one that at least q*n of them are not above.
    """
    rest = [*[F.sum(name).alias(name) for name in (count, *sums)], *[F.max(name).alias(name) for name in maxima]]
    # One window is cheaper than two. With the start, which minutes are together by already.
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
