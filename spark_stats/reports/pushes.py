"""Pushes: answers of receivers, and messages that wait for them, by the ``push`` events of the hub.

- **acks** and **nacks**: deliveries that receivers have acknowledged, and others; **late** of these had no answer
  within the deadline, **unreachable** no connection;
- **latency**: sum of the milliseconds to all of them, acknowledged or not;
- **backlog_max**, **oldest_max**: the most messages of one subscription that were not acknowledged, and the greatest
  age of one of them, in milliseconds.

The ``channel`` of the events is the name of the subscription, ``PROJECT/ID``. A bucket without events has no row.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_stats.reports.bucket import grouped
from spark_stats.reports.events import Events
from spark_stats.schema import MAX_FIGURE

__all__ = ["FIGURES", "KEYS", "SETS", "course"]

KEYS: Final = ("instance", "subscription")
SETS: Final = ((), ("subscription",), KEYS)
"""Sets of keys that figures are given for."""

NACKS: Final = ("deadline-exceeded", "invalid", "remote-server-4xx", "remote-server-5xx", "unreachable")
"""Classes of deliveries that were not acknowledged, as the events have them."""

SUMS: Final = ("acks", "nacks", "late", "unreachable", "latency")
MOST: Final = ("backlog_max", "oldest_max")
FIGURES: Final = (*SUMS, *MOST)


def course(events: Events) -> DataFrame:
    """Return the :data:`FIGURES` over time, from the ``push`` events among ``events``."""
    rows = events.within("push").where(F.col("instance").isNotNull() & F.col("channel").isNotNull())
    rows = rows.withColumn("fields", F.from_json("extra", "map<string,string>"))
    nacks = sum((_number(name) for name in NACKS[1:]), _number(NACKS[0]))
    rows = rows.select(
        "instance",
        F.col("channel").alias("subscription"),
        F.date_trunc("minute", "received_at").alias("at"),
        _number("ack").alias("acks"),
        nacks.alias("nacks"),
        _number("deadline-exceeded").alias("late"),
        _number("unreachable").alias("unreachable"),
        _number("latency").alias("latency"),
        _number("backlog").alias("backlog_max"),
        _number("oldest").alias("oldest_max"),
    )
    figures = [*[F.sum(name).alias(name) for name in SUMS], *[F.max(name).alias(name) for name in MOST]]
    minutes = rows.groupBy(*KEYS, "at").agg(*figures)
    return grouped(minutes, "at", KEYS, SETS, figures)


def _number(name: str) -> Column:
    """Field of a figure, 0 if it is missing or no number that makes sense."""
    number = F.expr(f"try_cast(fields['{name}'] AS bigint)")
    return F.when(number.between(0, MAX_FIGURE), number).otherwise(0)
