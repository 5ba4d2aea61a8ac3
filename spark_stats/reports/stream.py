"""The streaming job: figures per minute, as segments appear.

Spark reads each segment once, adds events up by the minute they were received in, and writes a minute when it is over
and the watermark has passed: when an event has been seen that is so much younger. Where it stands is in the
checkpoint; together with it the output has each minute exactly once, whatever happens to the job in between. What comes
later than the watermark allows is not counted, and said to be.

An event of a segment that was copied within that time counts once.
"""

from __future__ import annotations

import json
import logging
import pathlib
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

from spark_stats.reports.events import DDL, prepared
from spark_stats.schema import OWN

__all__ = ["CHECKPOINT", "DELAY", "OUTPUT", "SETTINGS", "minutes", "run"]

logger = logging.getLogger("spark_stats.stream")

DELAY: Final = 900.0
"""Seconds that events may be late: until a segment is closed (300 by default), and a recorder that died is back."""
OUTPUT: Final = "minutes"
CHECKPOINT: Final = "checkpoint"
"""Names of folders of the stream's."""
SEGMENTS_AT_ONCE: Final = 500
"""Segments that are read in one go, so that a long record does not have to fit into the memory."""

SETTINGS: Final = {
    # The events of the last minutes, to know those that come twice, are on the disk and not in the heap.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.shuffle.partitions": "4",
}

KEYS: Final = ("type", "instance", "route", "channel", "transport")


def minutes(events: DataFrame, delay: float) -> DataFrame:
    """Return figures per ``minute`` and :data:`KEYS` (those that an event has no field for are ``""``): ``events``,
    ``gone`` (events with ``unavailable``), sums of ``count``, ``blocks``, ``requests_received``, ``received`` and
    ``sent``, and ``largest`` (of ``count``)."""
    known = prepared(events).where((F.col("type") != OWN) & F.col("instance").isNotNull())
    once = known.withWatermark("received_at", f"{delay} seconds").dropDuplicatesWithinWatermark(["session", "seq"])
    empty = [F.coalesce(key, F.lit("")).alias(key) for key in KEYS]
    figures = ("count", "blocks", "requests_received", "received", "sent")
    window = F.window("received_at", "1 minute").alias("window")
    transport = F.coalesce("transport", "conn_type", "mode").alias("transport")
    rows = once.withColumn("transport", transport).select("received_at", *empty, "unavailable", *figures)
    summed = rows.groupBy(window, *KEYS).agg(
        F.count("*").alias("events"),
        F.sum(F.coalesce("unavailable", F.lit(False)).cast("bigint")).alias("gone"),
        *[F.sum(name).alias(name) for name in figures],
        F.max("count").alias("largest"),
    )
    names = ("events", "gone", *figures, "largest")
    return summed.select(F.col("window.start").alias("minute"), *KEYS, *names)


def run(
    spark: SparkSession,
    root: pathlib.Path,
    into: pathlib.Path,
    delay: float = DELAY,
    interval: float = 10.0,
    once: bool = False,
) -> None:
    """Follow the record in ``root`` until interrupted, or, if ``once``, read what there is and return.

    Arguments: ``into``, a folder that has the output, Parquet files in ``minutes``, and the checkpoint: it goes on
    where it stopped if both are there; ``delay``, seconds an event may be late; ``interval``, seconds between two looks
    for segments.
    """
    listener = _Listener()
    spark.streams.addListener(listener)
    source = spark.readStream.schema(DDL).option("maxFilesPerTrigger", SEGMENTS_AT_ONCE).parquet(str(root.absolute()))
    writer = (
        minutes(source, delay)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str((into / OUTPUT).absolute()))
        .option("checkpointLocation", str((into / CHECKPOINT).absolute()))
    )
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval} seconds")
    query = writer.start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        logger.info("stopped")
    finally:
        query.stop()
        spark.streams.removeListener(listener)


class _Listener(StreamingQueryListener):  # type: ignore[misc]
    """Says what each round has done."""

    def onQueryStarted(self, event: Any) -> None:
        logger.info("started; the checkpoint has the number %s", event.id)

    def onQueryProgress(self, event: Any) -> None:
        progress = json.loads(event.progress.json)
        rows = progress["numInputRows"]
        operators = progress.get("stateOperators", [])
        late = max((operator.get("numRowsDroppedByWatermark", 0) for operator in operators), default=0)
        if rows or late:
            watermark = progress.get("eventTime", {}).get("watermark", "none")
            seconds = progress["durationMs"]["triggerExecution"] / 1000
            logger.info("%d events in %.1f s; minutes before %s are final", rows, seconds, watermark)
        if late:
            logger.warning("%d events came later than --delay allows, and are not counted", late)

    def onQueryIdle(self, event: Any) -> None:
        """There was nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        if event.exception is not None:
            logger.error("ended: %s", event.exception.partition("\n")[0])
