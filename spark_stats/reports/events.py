"""Events of a record as Spark reads them.

The name of an instance (``from``) is in the column ``instance`` here, and an event without a route id has the route
``""``. Other columns are those of :mod:`spark_stats.schema`.
"""

from __future__ import annotations

import datetime
import functools
import pathlib
import re
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from spark_stats.reports.inventory import Inventory, Seen
from spark_stats.schema import OWN, PARTITION_DDL, SCHEMA, ddl

__all__ = ["DDL", "Events", "escaped", "moment", "prepared", "summary"]

_GLOB: Final = re.compile(r"([][{}*?\\])")

DDL: Final = f"{ddl()}, {PARTITION_DDL}"
"""The schema of a record, folders included."""


def escaped(path: pathlib.Path) -> str:
    """Return a path for Spark, which takes some characters for patterns."""
    return _GLOB.sub(r"\\\1", str(path.absolute()))


def prepared(events: DataFrame) -> DataFrame:
    """Return ``events`` with columns named as reports name them."""
    return events.withColumnRenamed("from", "instance").withColumn("route", F.coalesce("route", F.lit("")))


def summary(events: DataFrame) -> list[Seen]:
    """Return the combinations of fields that ``events`` have; few rows, however many events there are."""
    of_connections = F.col("type") == "conn"
    keys = [
        F.col("type").alias("kind"), F.col("session"), F.col("endpoint"), F.col("instance"),
        *[F.when(of_connections, F.col(name)).alias(name) for name in ("route", "conn_type")],
    ]  # fmt: skip
    last = [F.max("seq").alias("seq"), F.max(F.unix_micros("received_at")).alias("at")]
    found = events.groupBy(*keys).agg(*last).collect()
    return [Seen(**{**row.asDict(), "at": moment(row["at"])}) for row in found]


def moment(micros: int) -> datetime.datetime:
    """Return the time ``micros``, µs since 1970, as a datetime."""
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=micros)


class Events:
    """Events of a record in a span of time, and from shortly before.

    Copied and restored segments do not count twice: of files that are equal, byte by byte, one is read, and where the
    first and last numbers of two others of a session and type overlap, the events with these numbers are compared one
    by one.

    Args:
        spark: session to read with.
        found: inventory of the record.
    """

    def __init__(self, spark: SparkSession, found: Inventory) -> None:
        self.spark = spark
        self.found = found
        self.root = found.root
        self.span = found.span
        self._listed: dict[str, DataFrame] = {}

    def of(self, kind: str) -> DataFrame:
        """Return the events of the type ``kind``, from before the span on, each once."""
        found = self._found(self._original(kind) if kind in self.found.once else self._all, kind)
        if kind not in self.found.doubtful:
            return found
        # To compare events costs far more than to read them: only where it must be.
        doubt = F.lit(False)
        for run in self.found.doubtful[kind]:
            doubt = doubt | ((F.col("session") == run.session) & F.col("seq").between(run.first, run.last))
        again = self._files(path for run in self.found.doubtful[kind] for path in run.paths)
        return found.where(~doubt).unionByName(self._found(again, kind).where(doubt).dropDuplicates(["session", "seq"]))

    def _found(self, rows: DataFrame, kind: str) -> DataFrame:
        return rows.where(F.col("type") == kind).where(self._within(self.span.read_since))

    def within(self, kind: str) -> DataFrame:
        """Return the events of the type ``kind`` in the span, each once."""
        return self.of(kind).where(F.col("received_at") >= F.lit(self.span.since))

    def seen(self, kind: str) -> list[Seen]:
        """Return combinations of fields that events of the type ``kind`` have, from before the span on."""
        return [each for each in self.found.seen if each.kind == kind]

    def own(self) -> pa.Table:
        """Return the recorders' own events of any time, with ``at`` in µs since 1970; copies are there twice.

        They are few, and so read here, without Spark.

        Raises:
            ValueError: a file is no segment; the text names it.
        """
        columns = ["session", "seq", "received_at", "action", "endpoint", "from", "count", "extra"]
        tables = []
        for path in sorted(self.root.glob(f"date=*/type={OWN}/*")):
            if not path.name.startswith(("_", ".")):
                try:
                    with pq.ParquetFile(path) as opened:
                        tables.append(opened.read(columns))
                except (pa.ArrowInvalid, KeyError) as e:
                    raise ValueError(f"{path} is broken, or no segment ({e}): move it away") from e
        table = pa.concat_tables([pa.schema([SCHEMA.field(name) for name in columns]).empty_table(), *tables])
        at = table["received_at"].cast(pa.int64())
        return table.append_column("at", at).drop_columns(["received_at"]).rename_columns({"from": "instance"})

    @functools.cached_property
    def _all(self) -> DataFrame:
        # Once: Spark lists the folders each time.
        return prepared(self._reader().parquet(escaped(self.root)))

    def _original(self, kind: str) -> DataFrame:
        if kind not in self._listed:
            self._listed[kind] = self._files(self.found.once[kind])
        return self._listed[kind]

    def _files(self, paths: Iterable[pathlib.Path]) -> DataFrame:
        base = str(self.root.absolute())
        return prepared(self._reader().option("basePath", base).parquet(*[escaped(path) for path in paths]))

    def _reader(self) -> DataFrameReader:
        # Without this option Spark would look up every time of a segment before reading it: nearly all are needed.
        return self.spark.read.schema(DDL).option("parquet.filter.dictionary.enabled", "false")

    def _within(self, since: object) -> Column:
        until = F.lit(self.span.until)
        at, date = F.col("received_at"), F.col("date")
        # The folders first, so that those of other days are not opened.
        return date.between(F.to_date(F.lit(since)), F.to_date(until)) & (at >= F.lit(since)) & (at < until)
