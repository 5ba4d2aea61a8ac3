"""The events of a record as Spark reads them.

The name of an instance (``from``) is in the column ``instance`` here, and what has no route id has the route ``""``.
Other columns are those of :mod:`spark_stats.schema`.
"""

from __future__ import annotations

import functools
import itertools
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_stats.reports.span import Span
from spark_stats.schema import OWN, PARTITION_DDL, ddl

__all__ = ["DDL", "Events", "prepared"]

MOST_DOUBTS: Final = 32
"""Places in the numbers of a session where events are compared one by one, until all in between are as well."""

DDL: Final = f"{ddl()}, {PARTITION_DDL}"
"""The schema of a record, folders included."""


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
    doubtful: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)
    """Of some of the :attr:`repeated` types, the sessions, first and last numbers that can be there more than once;
    after :meth:`look`."""

    def look(self) -> None:
        """Look at the ends of all segments of the days in question, where Parquet keeps what is in them.

        Raises:
            ValueError: a file is no segment; the text names it.
            OSError: a file cannot be read.
        """
        spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
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
            spans.setdefault((session, kind), []).append((first, last))
        for (session, kind), taken in spans.items():
            if found := _overlapping(taken):
                self.repeated.add(kind)
                self.doubtful.setdefault(kind, []).extend((session, *numbers) for numbers in found)

    def of(self, kind: str) -> DataFrame:
        """The events of one type, from before the span on, each once."""
        found = self._all.where(F.col("type") == kind).where(self._within(self.span.read_since))
        if kind not in self.repeated:
            return found
        if kind not in self.doubtful:
            return found.dropDuplicates(["session", "seq"])
        # To compare events costs far more than to read them: only where it must be.
        doubt = F.lit(False)
        for session, first, last in self.doubtful[kind]:
            doubt = doubt | ((F.col("session") == session) & F.col("seq").between(first, last))
        return found.where(~doubt).unionByName(found.where(doubt).dropDuplicates(["session", "seq"]))

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
        return prepared(self.spark.read.schema(DDL).parquet(str(self.root)))

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


def _overlapping(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """First and last numbers of what is in more than one of the spans; those with nothing sure in between as one."""
    groups: list[list[int]] = []  # first and last number, how many spans
    for first, last in sorted(spans):
        if groups and first <= groups[-1][1]:
            groups[-1][1] = max(groups[-1][1], last)
            groups[-1][2] += 1
        else:
            groups.append([first, last, 1])
    made = []
    for several, found in itertools.groupby(groups, key=lambda group: group[2] > 1):
        if several:
            run = list(found)
            made.append((run[0][0], run[-1][1]))
    return made if len(made) <= MOST_DOUBTS else [(made[0][0], made[-1][1])]


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
