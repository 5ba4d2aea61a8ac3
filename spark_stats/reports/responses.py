"""Responses to clients by route, status class and reason, by gripproxy's ``responses`` events.

- **class**: of the status, ``2xx`` to ``5xx``; ``none`` for a request whose client left before its response;
- **reason**: cause of the status, one of docs/stats.md, "Reasons of responses".

An event is about the time since the report before it, and counts in the bucket that it arrived in. A bucket without any
of them has no row. Pushpin has no such events.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_stats.reports.bucket import by_sets, named, per_bucket
from spark_stats.reports.events import Events
from spark_stats.schema import MAX_FIGURE

__all__ = ["KEYS", "SETS", "course"]

KEYS: Final = ("instance", "route", "class", "reason")
SETS: Final = ((), ("class",), ("class", "reason"), ("route", "class"), KEYS)
"""Sets of keys that figures are given for."""


def course(events: Events) -> DataFrame:
    """Return the ``count`` of responses over time, from the ``responses`` events among ``events``."""
    rows = events.within("responses").where(F.col("instance").isNotNull() & F.col("count").between(0, MAX_FIGURE))
    rows = rows.withColumn("fields", F.from_json("extra", "map<string,string>"))
    rows = rows.select(
        "instance",
        "route",
        *[F.coalesce(F.col("fields")[name], F.lit("")).alias(name) for name in ("class", "reason")],
        F.date_trunc("minute", "received_at").alias("at"),
        "count",
    )
    total = F.sum("count").alias("count")
    minutes = rows.groupBy(*KEYS, "at").agg(total)
    made = per_bucket(by_sets(minutes, KEYS, SETS), "at").groupBy("per", "start", "by", *KEYS).agg(total)
    return named(made, SETS)
