"""Recoveries: items that clients missed and requests to backends for them, by gripproxy's ``recovery`` events.

- **gaps**: items that a session noticed it had missed, by the next one's ``prev-id``, or because its client did not
  read;
- **recoveries**: times that a session had its backend queried for items it may have missed: behind a gap, for a doubt,
  or because it was quiet for long;
- **requests**: requests to backends for held clients. One may serve many sessions, so there are often fewer of them
  than of recoveries; long-polls have no recoveries and only repeat their request;
- **slow_clients**: clients that were cut off because they did not read.

An event is about at most a second or so before it, and counts in the bucket that it arrived in. A bucket without any of
them has no row. Pushpin has no such events.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_stats.reports.bucket import by_sets, named, per_bucket
from spark_stats.reports.events import Events
from spark_stats.schema import MAX_FIGURE

__all__ = ["FIGURES", "KEYS", "SETS", "course"]

KEYS: Final = ("instance", "route", "transport")
SETS: Final = ((), ("instance",), ("route",), ("transport",), KEYS)
"""Sets of keys that figures are given for."""

FIGURES: Final = ("gaps", "recoveries", "requests", "slow_clients")


def course(events: Events) -> DataFrame:
    """Return the sums of :data:`FIGURES` over time, from the ``recovery`` events among ``events``."""
    rows = events.within("recovery").where(F.col("instance").isNotNull())
    rows = rows.withColumn("fields", F.from_json("extra", "map<string,string>"))
    rows = rows.select(
        "instance",
        "route",
        F.coalesce("transport", F.lit("")).alias("transport"),
        F.date_trunc("minute", "received_at").alias("at"),
        *[_number(name) for name in FIGURES],
    )
    sums = [F.sum(name).alias(name) for name in FIGURES]
    minutes = rows.groupBy(*KEYS, "at").agg(*sums)
    made = per_bucket(by_sets(minutes, KEYS, SETS), "at").groupBy("per", "start", "by", *KEYS).agg(*sums)
    return named(made, SETS)


def _number(name: str) -> Column:
    """Field of a figure, 0 if it is missing or no number that makes sense."""
    number = F.expr(f"try_cast(fields['{name.replace('_', '-')}'] AS bigint)")
    return F.when(number.between(0, MAX_FIGURE), number).otherwise(0).alias(name)
