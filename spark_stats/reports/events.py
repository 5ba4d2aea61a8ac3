"""The events of a record as Spark reads them.

The name of an instance (``from``) is in the column ``instance`` here, and what has no route id has the route ``""``.
Other columns are those of :mod:`spark_stats.schema`.
"""

from __future__ import annotations

import functools
import itertools
import pathlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from spark_stats.reports.span import Span
from spark_stats.schema import OWN, PARTITION_DDL, ddl

__all__ = ["DDL", "Events", "escaped", "prepared"]

_GLOB: Final = re.compile(r"([][{}*?\\])")

MOST_DOUBTS: Final = 32
"""Places in the numbers of a session where events are compared one by one, until all in between are as well."""

DDL: Final = f"{ddl()}, {PARTITION_DDL}"
"""The schema of a record, folders included."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Numbers of a session, from ``first`` to ``last``, and the segments that have them."""

    session: str
    first: int
    last: int
    paths: list[pathlib.Path]


def escaped(path: pathlib.Path) -> str:
    """Return a path for Spark, which takes some characters for patterns."""
    return _GLOB.sub(r"\\\1", str(path.absolute()))


def prepared(events: DataFrame) -> DataFrame:
    """Name the columns as reports do."""
    return events.withColumnRenamed("from", "instance").withColumn("route", F.coalesce("route", F.lit("")))


@dataclass
class Events:
    """What is recorded in ``root`` in a ``span`` of time, and shortly before.

    Copied and restored segments do not count twice: where the first and last numbers of two segments of a session and
    type overlap, the events with these numbers are compared one by one.
    """

    spark: SparkSession
    root: pathlib.Path
    span: Span
    repeated: set[str] = field(default_factory=set)
    """Types of events with segments that overlap, after :meth:`look`."""
    rows: int = 0
    """Events in the segments of the days that are read, after :meth:`look`."""
    _doubtful: dict[str, list[_Run]] = field(default_factory=dict)
    """Segments of the :attr:`repeated` types that overlap; after :meth:`look`."""

    def look(self) -> None:
        """Look at the ends of all segments of the days in question, where Parquet keeps what is in them.

        Raises:
            ValueError: a file is no segment; the text names it.
            OSError: a file cannot be read.
        """
        found: dict[tuple[str, str], list[_Run]] = {}
        for path in self._segments():
            try:
                ends = _ends(path)
            except (pa.ArrowInvalid, KeyError) as e:
                raise ValueError(f"{path} is broken, or no segment ({e}): move it away") from e
            if ends is None:
                continue
            session, first, last, rows = ends
            kind = path.parent.name.removeprefix("type=")
            self.rows += rows
            found.setdefault((session, kind), []).append(_Run(session, first, last, [path]))
        for (_, kind), runs in found.items():
            if several := _overlapping(runs):
                self.repeated.add(kind)
                self._doubtful.setdefault(kind, []).extend(several)

    def of(self, kind: str) -> DataFrame:
        """The events of one type, from before the span on, each once."""
        found = self._found(self._all, kind)
        if kind not in self.repeated:
            return found
        if kind not in self._doubtful:
            return found.dropDuplicates(["session", "seq"])
        # To compare events costs far more than to read them: only where it must be.
        doubt = F.lit(False)
        for run in self._doubtful[kind]:
            doubt = doubt | ((F.col("session") == run.session) & F.col("seq").between(run.first, run.last))
        paths = [escaped(path) for run in self._doubtful[kind] for path in run.paths]
        again = self._reader().option("basePath", str(self.root.absolute())).parquet(*paths)
        return found.where(~doubt).unionByName(
            self._found(prepared(again), kind).where(doubt).dropDuplicates(["session", "seq"])
        )

    def _found(self, rows: DataFrame, kind: str) -> DataFrame:
        return rows.where(F.col("type") == kind).where(self._within(self.span.read_since))

    def within(self, kind: str) -> DataFrame:
        """The events of one type in the span, each once."""
        return self.of(kind).where(F.col("received_at") >= F.lit(self.span.since))

    def instances(self) -> DataFrame:
        """Pairs of ``endpoint`` and ``instance``, from before the span on."""
        found = self._all.where(F.col("instance").isNotNull() & (F.col("type") != OWN))
        return found.where(self._within(self.span.read_since)).select("endpoint", "instance").distinct()

    def empty(self) -> bool:
        """Whether there is nothing in the span."""
        return bool(self._all.where(self._within(self.span.since)).isEmpty())

    def ever(self, kind: str) -> DataFrame:
        """All events of one type, of any time, each once."""
        return self._all.where(F.col("type") == kind).dropDuplicates(["session", "seq"])

    @functools.cached_property
    def _all(self) -> DataFrame:
        # Once: Spark lists the folders each time.
        return prepared(self._reader().parquet(escaped(self.root)))

    def _reader(self) -> DataFrameReader:
        # It would look up every time of a segment before reading it, to no avail: nearly all are wanted.
        return self.spark.read.schema(DDL).option("parquet.filter.dictionary.enabled", "false")

    def _within(self, since: object) -> Column:
        until = F.lit(self.span.until)
        at, date = F.col("received_at"), F.col("date")
        # The folders first, so that those of other days are not opened.
        return date.between(F.to_date(F.lit(since)), F.to_date(until)) & (at >= F.lit(since)) & (at < until)

    def _segments(self) -> Iterator[pathlib.Path]:
        first, last = self.span.read_since.date().isoformat(), self.span.until.date().isoformat()
        for folder in sorted(self.root.glob("date=*")):
            if first <= folder.name.removeprefix("date=") <= last:
                for path in sorted(folder.glob("type=*/*")):
                    if not path.name.startswith(("_", ".")):
                        yield path


def _overlapping(runs: list[_Run]) -> list[_Run]:
    """Return, of one session and type, where segments have the same numbers; those with nothing sure in between as
    one."""
    groups: list[_Run] = []
    for run in sorted(runs, key=lambda run: (run.first, run.last)):
        if groups and run.first <= groups[-1].last:
            groups[-1] = _joined([groups[-1], run])
        else:
            groups.append(run)
    alike = itertools.groupby(groups, key=lambda group: len(group.paths) > 1)
    made = [_joined(list(found)) for several, found in alike if several]
    if len(made) > MOST_DOUBTS:
        made = [_joined([group for group in groups if made[0].first <= group.first <= made[-1].last])]
    return made


def _joined(runs: list[_Run]) -> _Run:
    paths = [path for run in runs for path in run.paths]
    return _Run(runs[0].session, runs[0].first, max(run.last for run in runs), paths)


def _ends(path: pathlib.Path) -> tuple[str, int, int, int] | None:
    """Session, first and last number, and number of events of a segment, from its footer; None if it has no events."""
    metadata = pq.read_metadata(path)
    if not metadata.num_rows:
        return None
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    session, first, last = None, 1 << 63, -1
    for group in range(metadata.num_row_groups):
        numbers = metadata.row_group(group).column(places["seq"]).statistics
        names = metadata.row_group(group).column(places["session"]).statistics
        if numbers is None or names is None or not numbers.has_min_max or not names.has_min_max:
            raise KeyError("without statistics")
        session = names.min
        first, last = min(first, numbers.min), max(last, numbers.max)
    return str(session), first, last, int(metadata.num_rows)
