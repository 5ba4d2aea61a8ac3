"""Items and deliveries.

An **item** here is one ``message`` event: an item that was published, at one instance and for one transport, with
somebody
subscribed. Its **fan-out** is the number of subscribers it was addressed to, and **deliveries** are the sum of that.
It is counted before filters and limits of the rate, and what became of it is not in it: see
:mod:`~spark_stats.reports.outcomes`. Items that nobody had subscribed to have no such event: ``received`` of
:mod:`~spark_stats.reports.traffic` has them. **Blocks** are there if the instance counts them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_stats.reports.bucket import by_sets, rolled_up
from spark_stats.reports.events import Events
from spark_stats.reports.quantile import cut, quantiles

__all__ = ["KEYS", "SETS", "course", "minutes"]

KEYS: Final = ("instance", "channel", "transport")
SETS: Final = ((), ("instance",), ("transport",), ("channel",), ("instance", "transport"))


def minutes(events: Events) -> DataFrame:
    """Return items per minute (``at``), :data:`KEYS` and ``fanout``, cut to three digits: ``items``, ``deliveries``,
    ``blocks``, ``fanout_max``."""
    known = F.col("instance").isNotNull() & F.col("channel").isNotNull()
    rows = events.within("message").where(known).withColumn("transport", F.coalesce("transport", F.lit("")))
    count = F.coalesce("count", F.lit(0)).cast("bigint")
    return rows.groupBy(*KEYS, F.date_trunc("minute", "received_at").alias("at"), cut(count).alias("fanout")).agg(
        F.count("*").alias("items"),
        F.sum(count).alias("deliveries"),
        F.sum("blocks").alias("blocks"),
        F.max(count).alias("fanout_max"),
    )


def course(by_minute: DataFrame) -> DataFrame:
    """Return ``items``, ``deliveries``, ``blocks``, ``fanout_median``, ``fanout_p95``, ``fanout_max`` over time."""
    keys = ["per", "start", "by", *KEYS]
    sums = ["items", "deliveries", "blocks"]
    spread = by_sets(rolled_up(by_minute, [*KEYS, "fanout"], sums, ["fanout_max"]), KEYS, SETS)
    return quantiles(spread, keys, "fanout", "items", ["deliveries", "blocks"], ["fanout_max"])
