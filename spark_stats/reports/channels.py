"""Channels over the whole range: the busiest, and the idle ones, which have subscribers and no items."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["ranking"]


def ranking(published: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """Return a row per channel, the most deliveries first.

    Args:
        published: table of :func:`~spark_stats.reports.deliveries.course`.
        subscriptions: table of :func:`~spark_stats.reports.subscriptions.course`.

    Returns:
        ``items``, ``deliveries``, ``fanout_max``, ``last_item`` (the minute), ``subscribers_peak``, ``idle``.
    """
    minutes = published.where((F.col("by") == "channel") & (F.col("per") == "minute"))
    items = minutes.groupBy("channel").agg(
        F.sum("items").alias("items"),
        F.sum("deliveries").alias("deliveries"),
        F.max("fanout_max").alias("fanout_max"),
        F.max("start").alias("last_item"),
    )
    of_channel = subscriptions.where((F.col("by") == "channel") & (F.col("per") == "day"))
    peaks = of_channel.groupBy("channel").agg(F.max("subscribers_peak").alias("subscribers_peak"))
    both = items.join(peaks, "channel", "full").select(
        "channel",
        *[F.coalesce(name, F.lit(0)).alias(name) for name in ("items", "deliveries", "fanout_max")],
        "last_item",
        F.coalesce("subscribers_peak", F.lit(0)).alias("subscribers_peak"),
    )
    # Not orderBy: to learn where to cut it calculates everything twice.
    rows = both.withColumn("idle", F.col("items") == 0).repartition(1)
    return rows.sortWithinPartitions(F.desc("deliveries"), F.desc("items"), "channel")
