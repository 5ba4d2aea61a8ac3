"""The Spark session of a job: in this process, or on a cluster."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import SparkSession

from spark_stats.reports import archive, java

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
    # Everything is on this machine's loopback unless told otherwise.
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
}


@contextlib.contextmanager
def session(
    name: str, master: str = "local[*]", memory: str = MEMORY, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session of its own, which ends with the context. A local one uses the archive of Java's classes, if it is made.

    Arguments: the ``name`` of the job; ``master``, as Spark's: ``local[*]``, ``spark://host:port``; ``memory`` of the
    driver, as Java's ``-Xmx``; ``settings`` that go before ours, by Spark's names.

    Raises:
        NoJava: there is none that Spark runs on.
    """
    home = java.find()
    os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name).master(master).config("spark.driver.memory", memory)
    own = dict(_SETTINGS)
    if not master.startswith("local"):
        # The workers connect to the driver, by an address that Spark finds.
        del own["spark.driver.host"]
    elif (kept := archive.find(home)) is not None:
        own[archive.SETTING] = archive.options(kept)
    for key, value in {**own, **(settings or {})}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    try:
        yield made
    finally:
        made.stop()
