"""Median and 95th percentile of whole numbers: the value at that place of the sorted ones, not one between two.

Exact to three digits: larger numbers are cut after the third, so that there are few different ones to count, however
many there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["cut", "quantiles"]


def cut(value: Column) -> Column:
    """Return a whole number with its digits after the third made 0."""
    digits = F.greatest(F.length(value.cast("string")) - 3, F.lit(0))
    return value - value % F.pow(F.lit(10.0), digits).cast("bigint")


def quantiles(
    counted: DataFrame,
    keys: Sequence[str],
    value: str,
    count: str,
    sums: Sequence[str] = (),
    maxima: Sequence[str] = (),
) -> DataFrame:
    """Return ``keys``, the sum of ``count``, ``<value>_median``, ``<value>_p95``, and sums and maxima of other columns.

    ``counted`` has the ``keys``, a ``value`` and how often it is there (``count``). Null is no value, and has count 0.

    The quantile q of n values is the smallest one that at least q*n of them are not above.
    """
    rest = [*[F.sum(name).alias(name) for name in (count, *sums)], *[F.max(name).alias(name) for name in maxima]]
    once = counted.groupBy(*keys, value).agg(*rest)
    group = Window.partitionBy(*keys)
    upto = F.sum(count).over(group.orderBy(value).rowsBetween(Window.unboundedPreceding, 0))
    placed = once.withColumn("_upto", upto).withColumn("_total", F.sum(count).over(group))
    # In whole numbers: 0.95 * n is not exact.
    return placed.groupBy(*keys).agg(
        F.min(F.when(F.col("_upto") * 2 >= F.col("_total"), F.col(value))).alias(f"{value}_median"),
        F.min(F.when(F.col("_upto") * 20 >= F.col("_total") * 19, F.col(value))).alias(f"{value}_p95"),
        *rest,
    )
