"""The events of a record as Spark reads them.

The name of an instance (``from``) is in the column ``instance`` here, and what has no route id has the route ``""``.
Other columns are those of :mod:`spark_stats.schema`.
"""

from __future__ import annotations

import datetime
import filecmp
import functools
import itertools
import pathlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from spark_stats.reports.span import Span
from spark_stats.schema import OWN, PARTITION_DDL, SCHEMA, ddl

__all__ = ["DDL", "Events", "Seen", "escaped", "moment", "prepared", "summary"]

_GLOB: Final = re.compile(r"([][{}*?\\])")

MOST_DOUBTS: Final = 32
"""Places in the numbers of a session where events are compared one by one, until all in between are as well."""

DDL: Final = f"{ddl()}, {PARTITION_DDL}"
"""The schema of a record, folders included."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Numbers of a session, from ``first`` to ``last``, so many ``rows``, and the segments that have them."""

    session: str
    first: int
    last: int
    rows: int
    paths: list[pathlib.Path]


@dataclass(frozen=True, slots=True)
class Seen:
    """Fields that some events of a type (``kind``) have in common, the time of the last of them, and its number in
    the ``session``. ``route`` and ``conn_type`` are only looked at in those about connections."""

    kind: str
    session: str
    endpoint: str | None
    instance: str | None
    route: str | None
    conn_type: str | None
    seq: int
    at: datetime.datetime


def escaped(path: pathlib.Path) -> str:
    """Return a path for Spark, which takes some characters for patterns."""
    return _GLOB.sub(r"\\\1", str(path.absolute()))


def prepared(events: DataFrame) -> DataFrame:
    """Name the columns as reports do."""
    return events.withColumnRenamed("from", "instance").withColumn("route", F.coalesce("route", F.lit("")))


def summary(events: DataFrame) -> list[Seen]:
    """Return what there is among events; few rows, however many events there are."""
    of_connections = F.col("type") == "conn"
    keys = [
        F.col("type").alias("kind"), F.col("session"), F.col("endpoint"), F.col("instance"),
        *[F.when(of_connections, F.col(name)).alias(name) for name in ("route", "conn_type")],
    ]  # fmt: skip
    last = [F.max("seq").alias("seq"), F.max(F.unix_micros("received_at")).alias("at")]
    found = events.groupBy(*keys).agg(*last).collect()
    return [Seen(**{**row.asDict(), "at": moment(row["at"])}) for row in found]


def moment(micros: int) -> datetime.datetime:
    """Return a time given in µs since 1970."""
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=micros)


@dataclass
class Events:
    """What is recorded in ``root`` in a ``span`` of time, and shortly before.

    Copied and restored segments do not count twice: files that are the same, byte by byte, are read once, and where
    the first and last numbers of two others of a session and type overlap, the events with these numbers are compared
    one by one.
    """

    spark: SparkSession
    root: pathlib.Path
    span: Span
    repeated: set[str] = field(default_factory=set)
    """Types of events with segments that overlap, after :meth:`look`."""
    rows: int = 0
    """Events in the segments of the days that are read, after :meth:`look`."""
    _doubtful: dict[str, list[_Run]] = field(default_factory=dict)
    """Segments of the :attr:`repeated` types that overlap, and are not the same; after :meth:`look`."""
    _once: dict[str, list[pathlib.Path]] = field(default_factory=dict)
    """All segments but copies, of the types that have copies; after :meth:`look`."""
    _listed: dict[str, DataFrame] = field(default_factory=dict)

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
            found.setdefault((session, kind), []).append(_Run(session, first, last, rows, [path]))
        once: dict[str, list[pathlib.Path]] = {}
        for (_, kind), runs in found.items():
            different = _different(runs)
            once.setdefault(kind, []).extend(path for run in different for path in run.paths)
            several = _overlapping(different)
            if several:
                self._doubtful.setdefault(kind, []).extend(several)
            if several or len(different) < len(runs):
                self.repeated.add(kind)
            if len(different) < len(runs):
                self._once[kind] = once[kind]

    def of(self, kind: str) -> DataFrame:
        """The events of one type, from before the span on, each once."""
        found = self._found(self._original(kind) if kind in self._once else self._all, kind)
        if kind not in self._doubtful:
            return found
        # To compare events costs far more than to read them: only where it must be.
        doubt = F.lit(False)
        for run in self._doubtful[kind]:
            doubt = doubt | ((F.col("session") == run.session) & F.col("seq").between(run.first, run.last))
        again = self._files(path for run in self._doubtful[kind] for path in run.paths)
        return found.where(~doubt).unionByName(self._found(again, kind).where(doubt).dropDuplicates(["session", "seq"]))

    def _found(self, rows: DataFrame, kind: str) -> DataFrame:
        return rows.where(F.col("type") == kind).where(self._within(self.span.read_since))

    def within(self, kind: str) -> DataFrame:
        """The events of one type in the span, each once."""
        return self.of(kind).where(F.col("received_at") >= F.lit(self.span.since))

    def instances(self) -> list[tuple[str, str]]:
        """Pairs of an endpoint and an instance, from before the span on."""
        pairs = {(each.endpoint, each.instance) for each in self._everything if each.kind != OWN}
        return sorted((where, who) for where, who in pairs if where is not None and who is not None)

    def empty(self) -> bool:
        """Whether there is nothing in the span."""
        return all(each.at < self.span.since for each in self._everything)

    def seen(self, kind: str) -> list[Seen]:
        """What the events of one type have in common, from before the span on."""
        return [each for each in self._everything if each.kind == kind]

    @functools.cached_property
    def _everything(self) -> list[Seen]:
        return summary(self._all.where(self._within(self.span.read_since)))

    def own(self) -> pa.Table:
        """What recorders said of themselves at any time, with ``at`` in µs since 1970; copies are there twice. It is
        little, and so read here.

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
            self._listed[kind] = self._files(self._once[kind])
        return self._listed[kind]

    def _files(self, paths: Iterable[pathlib.Path]) -> DataFrame:
        base = str(self.root.absolute())
        return prepared(self._reader().option("basePath", base).parquet(*[escaped(path) for path in paths]))

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


def _different(runs: list[_Run]) -> list[_Run]:
    """Return segments of one session and type without copies of others. The files of two are compared only if their
    numbers are alike."""
    kept: dict[tuple[int, int, int], list[_Run]] = {}
    for run in runs:
        alike = kept.setdefault((run.first, run.last, run.rows), [])
        if not any(filecmp.cmp(run.paths[0], other.paths[0], shallow=False) for other in alike):
            alike.append(run)
    return [run for alike in kept.values() for run in alike]


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
    return _Run(runs[0].session, runs[0].first, max(run.last for run in runs), sum(run.rows for run in runs), paths)


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
