"""Clients with the most connections in the range, by the addresses in ``conn`` events.

An address is that of ``peer-address``: the first value of ``X-Forwarded-For``, or the TCP peer's (docs/stats.md).
Several clients behind one address, as behind a proxy that does not forward theirs, count as one.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_stats.reports.events import Events

__all__ = ["CLIENTS_MAX", "ranking"]

CLIENTS_MAX: Final = 1000
"""Greatest number of addresses in the table."""


def ranking(events: Events) -> DataFrame:
    """Return the addresses with the most connections.

    Args:
        events: events of the span.

    Returns:
        ``peer_address`` and ``connections``, the number of different ids in the span, those with the most first;
        CLIENTS_MAX of them.
    """
    conn = events.within("conn").where(
        F.col("peer_address").isNotNull() & F.col("id").isNotNull() & F.col("instance").isNotNull()
    )
    # A number for the id: ids are long, and there may be millions of them.
    each = conn.select("peer_address", F.xxhash64("instance", "id").alias("connection")).distinct()
    counted = each.groupBy("peer_address").agg(F.count("*").alias("connections"))
    return counted.orderBy(F.desc("connections"), "peer_address").limit(CLIENTS_MAX)
