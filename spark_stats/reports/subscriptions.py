"""Subscriptions: channels with subscribers, and their number.

A **subscription** is one mode (``response``, ``stream``, ``ws``) on one channel at one instance, from the first ``sub``
event to the one that ends it; its **subscribers** are the number in the last event. A change of that number is reported
within about a second. Without another event it lapses when its ttl has passed.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_stats.reports.bucket import MARK, mark, repeated
from spark_stats.reports.events import Events
from spark_stats.reports.level import levels
from spark_stats.reports.span import Span

__all__ = ["KEYS", "SETS", "TTL", "changes", "course"]

TTL: Final = 60
"""Seconds that a subscription is taken to go on after an event without ``ttl``."""

KEYS: Final = ("instance", "mode", "channel")
SETS: Final = ((), ("instance",), ("mode",), ("instance", "mode"), ("channel",))


def changes(events: Events) -> DataFrame:
    """Return the changes of ``subscriptions`` and ``subscribers`` per instance, mode and channel, with time ``at``.

    Args:
        events: events of the span.
    """
    known = F.col("instance").isNotNull() & F.col("channel").isNotNull()
    sub = events.of("sub").where(known).withColumn("mode", F.coalesce("mode", F.lit("")))
    order = Window.partitionBy(*MARK).orderBy("received_at", "session", "seq")
    gone = F.coalesce("unavailable", F.lit(False))
    number = F.when(gone, F.lit(0)).otherwise(F.greatest(F.coalesce("subscribers", F.lit(1)), F.lit(0)))
    end = F.timestamp_micros(F.unix_micros("received_at") + F.coalesce("ttl", F.lit(TTL)) * 1_000_000)
    rows = sub.select(*KEYS, "received_at", "session", "seq", number.alias("number"), end.alias("end"))
    placed = rows.select("*", *mark(*KEYS)).withColumns(
        {
            "following": F.lead("received_at").over(order),
            "last_number": F.lag("number").over(order),
            "last_end": F.lag("end").over(order),
        }
    )
    lapses = (F.col("number") > 0) & (F.col("end") < F.coalesce(F.col("following"), F.lit(events.span.until)))
    over = F.col("last_number").isNull() | (F.col("last_end") < F.col("received_at"))
    told = placed.withColumns(
        {"lapses": lapses, "before": F.when(over, F.lit(0)).otherwise(F.col("last_number"))},
    )
    # The new and the old number: with the event, and when it lapses.
    first = F.col("_which") == 0
    now, was = F.when(first, F.col("number")).otherwise(0), F.when(first, F.col("before")).otherwise(F.col("number"))
    made = told.where(F.col("lapses") | (F.col("number") != F.col("before")))
    return (
        made.select("*", repeated(2).alias("_which"))
        .where(F.when(first, F.col("number") != F.col("before")).otherwise(F.col("lapses")))
        .select(
            *KEYS,
            F.when(first, F.col("received_at")).otherwise(F.col("end")).alias("at"),
            ((now > 0).cast("bigint") - (was > 0).cast("bigint")).alias("subscriptions"),
            (now - was).cast("bigint").alias("subscribers"),
        )
    )


def course(changed: DataFrame, span: Span) -> DataFrame:
    """Return ``subscriptions`` and ``subscribers`` over time, each with ``_peak``, ``_average`` and ``_last``.

    Args:
        changed: rows of :func:`changes`.
        span: range of time of the report.
    """
    # Channels are many.
    return levels(changed, KEYS, SETS, ["subscriptions", "subscribers"], span, many="channel")
