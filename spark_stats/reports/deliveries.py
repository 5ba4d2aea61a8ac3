"""Items and deliveries.

An **item** here is one ``message`` event: an item that was published, at one instance and for one transport, with at
least one subscriber. Its **fan-out** is the number of subscribers it was addressed to, and **deliveries** are the sum
of that, counted before filters and rate limits; their outcome is in :mod:`~spark_stats.reports.outcomes`. Items without
subscribers have no such event: ``received`` of :mod:`~spark_stats.reports.traffic` contains them. **Blocks** are there
if the instance counts them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_stats.reports.events import Events
from spark_stats.reports.quantile import cut, distributions

__all__ = ["KEYS", "SETS", "course", "items"]

KEYS: Final = ("instance", "channel", "transport")
SETS: Final = ((), ("instance",), ("transport",), ("channel",), ("instance", "transport"))


def items(events: Events) -> DataFrame:
    """Return a row per item of ``events``: ``at``, :data:`KEYS`, ``deliveries``, ``blocks``."""
    known = F.col("instance").isNotNull() & F.col("channel").isNotNull()
    return (
        events.within("message")
        .where(known)
        .select(
            F.col("received_at").alias("at"),
            "instance",
            "channel",
            F.coalesce("transport", F.lit("")).alias("transport"),
            F.coalesce("count", F.lit(0)).cast("bigint").alias("deliveries"),
            "blocks",
        )
    )


def course(published: DataFrame) -> DataFrame:
    """Return deliveries over time.

    Args:
        published: rows of :func:`items`.

    Returns:
        ``items``, ``deliveries``, ``blocks``, ``fanout_median``, ``fanout_p95``, ``fanout_max``.
    """
    sums = ["deliveries", "blocks"]
    made = distributions(
        published, KEYS, SETS, "fanout", "items", sums, ["fanout_max"], many="channel", unpack=_counted
    )
    rest = [name for name in made.columns if name not in ("per", "start", "by", *KEYS)]
    return made.select("per", "start", "by", *KEYS, *rest)


def _counted(published: DataFrame) -> DataFrame:
    one = F.lit(1).cast("bigint")
    return published.withColumns({"items": one, "fanout_max": F.col("deliveries"), "fanout": cut(F.col("deliveries"))})
