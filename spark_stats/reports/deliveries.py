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

from spark_stats.reports.events import Events
from spark_stats.reports.quantile import cut, distributions

__all__ = ["KEYS", "SETS", "course", "items"]

KEYS: Final = ("instance", "channel", "transport")
SETS: Final = ((), ("instance",), ("transport",), ("channel",), ("instance", "transport"))


def items(events: Events) -> DataFrame:
    """Return a row per item: ``at``, :data:`KEYS`, ``deliveries``, ``blocks``."""
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
    """Return ``items``, ``deliveries``, ``blocks``, ``fanout_median``, ``fanout_p95``, ``fanout_max`` over time, of
    what :func:`items` returns."""
    sums = ["deliveries", "blocks"]
    made = distributions(
        published, KEYS, SETS, "fanout", "items", sums, ["fanout_max"], many="channel", unpack=_counted
    )
    rest = [name for name in made.columns if name not in ("per", "start", "by", *KEYS)]
    return made.select("per", "start", "by", *KEYS, *rest)


def _counted(published: DataFrame) -> DataFrame:
    one = F.lit(1).cast("bigint")
    return published.withColumns({"items": one, "fanout_max": F.col("deliveries"), "fanout": cut(F.col("deliveries"))})
