"""Outcomes of deliveries: written to clients, or dropped and why, by gripproxy's ``delivery`` events.

The fields of these events are taken unchanged (``written``, ``dropped-…``, and those that a later version adds): each
is an **outcome**, whose counts add up. ``slow-clients`` among them are clients and not deliveries: those cut off
because they did not read. Pushpin has no such events, and its drops leave no trace.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_stats.reports.bucket import grouped
from spark_stats.reports.events import Events
from spark_stats.schema import MAX_FIGURE

__all__ = ["KEYS", "SETS", "course"]

KEYS: Final = ("instance", "outcome")
SETS: Final = (("outcome",), KEYS)


def course(events: Events) -> DataFrame:
    """Return the ``count`` of each outcome over time, from the ``delivery`` events among ``events``."""
    told = events.within("delivery").where(F.col("instance").isNotNull() & F.col("extra").isNotNull())
    fields = F.from_json("extra", "map<string,string>")
    rows = told.select("instance", "received_at", F.explode(fields).alias("outcome", "text"))
    # No count is below 0, nor so large that one of them would spoil all sums.
    rows = rows.withColumn("count", F.expr("try_cast(text AS bigint)")).where(F.col("count").between(0, MAX_FIGURE))
    minutes = rows.groupBy(*KEYS, F.date_trunc("minute", "received_at").alias("at")).agg(F.sum("count").alias("count"))
    return grouped(minutes, "at", KEYS, SETS, [F.sum("count").alias("count")])
