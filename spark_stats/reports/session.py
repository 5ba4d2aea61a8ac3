"""The Spark session of a job: in this process, or on a cluster."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import SparkSession

from spark_stats.reports import java
from spark_stats.reports.java_messages import without_meaningless

__all__ = ["MEMORY", "session"]

MEMORY: Final = "1g"
"""Heap of the driver, which in a local session does all the work."""
SHUFFLES: Final = 16
"""Parts of a shuffle before Spark joins the small ones."""

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(SHUFFLES),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # By default everything is on this machine's loopback.
    "spark.driver.host": "127.0.0.1",
}

_LOG: Final = f'-Dlog4j2.configurationFile="{pathlib.Path(__file__).with_name("log4j2.properties").as_uri()}"'
"""Option of Java for the log of Spark, which would report about itself otherwise."""

_OPTIONS: Final = "spark.driver.extraJavaOptions"


@contextlib.contextmanager
def session(
    name: str, master: str = "local[*]", memory: str = MEMORY, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start a Spark session that ends with the context.

    Args:
        name: name of the job, as Spark's own pages show it.
        master: Spark's master URL: ``local[*]``, ``spark://host:port``.
        memory: heap of the driver, as Java's ``-Xmx``: ``1g``, ``1100m``.
        settings: settings by Spark's names; they override the defaults of this module.

    Raises:
        NoJava: no Java that Spark runs on was found.
    """
    os.environ["JAVA_HOME"] = str(java.find())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name).master(master).config("spark.driver.memory", memory)
    own = dict(_SETTINGS)
    if not master.startswith("local"):
        # The workers connect to the driver, by an address that Spark finds.
        del own["spark.driver.host"]
    given = {**own, **(settings or {})}
    given[_OPTIONS] = f"{_LOG} {given.get(_OPTIONS, '')}".strip()
    for key, value in given.items():
        builder = builder.config(key, value)
    with without_meaningless():
        made = builder.getOrCreate()
    try:
        yield made
    finally:
        made.stop()
