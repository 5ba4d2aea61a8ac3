"""Inventory of the record: its segments, and the combinations of fields that their events have.

Found without Spark, from the ends of the segments and a few of their columns, while Spark still starts.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import filecmp
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_stats.errors import OperatorError
from spark_stats.reports.span import Span
from spark_stats.schema import OWN, SCHEMA

__all__ = ["Inventory", "NoData", "Run", "Seen", "inventory", "within_record"]

MOST_DOUBTS: Final = 32
"""Places in the numbers of a session where events are compared one by one, until all in between are as well."""


class NoData(OperatorError):
    """Range of time without events; the text names the range that the record has."""


_COMMON: Final = ("session", "endpoint", "from")
_OF_CONNECTIONS: Final = ("route", "conn_type")


@dataclass(frozen=True, slots=True)
class Run:
    """Segments of a session with the numbers ``first`` to ``last``, ``rows`` in all."""

    session: str
    first: int
    last: int
    rows: int
    paths: list[pathlib.Path]


@dataclass(frozen=True, slots=True)
class Seen:
    """Fields that some events of a type (``kind``) have in common, with time and number of the last of them.

    The number is that in the ``session``. ``route`` and ``conn_type`` are only read for events about connections.
    """

    kind: str
    session: str
    endpoint: str | None
    instance: str | None
    route: str | None
    conn_type: str | None
    seq: int
    at: datetime.datetime


@dataclass(frozen=True, slots=True)
class Inventory:
    """Inventory of the record ``root`` for the days of a ``span``.

    Attributes:
        rows: events in the segments.
        seen: combinations of fields of the events from shortly before the span to its end.
        repeated: types of events with segments that overlap.
        doubtful: segments that overlap without being equal, by type.
        once: all segments but copies, of the types that have copies.
    """

    root: pathlib.Path
    span: Span
    rows: int = 0
    seen: Sequence[Seen] = ()
    repeated: set[str] = field(default_factory=set)
    doubtful: dict[str, list[Run]] = field(default_factory=dict)
    once: dict[str, list[pathlib.Path]] = field(default_factory=dict)

    def instances(self) -> list[tuple[str, str]]:
        """Return pairs of an endpoint and an instance, from before the span on."""
        pairs = {(each.endpoint, each.instance) for each in self.seen if each.kind != OWN}
        return sorted((where, who) for where, who in pairs if where is not None and who is not None)


def inventory(root: pathlib.Path, span: Span) -> Inventory:
    """Read all segments of the days of a span.

    Args:
        root: folder of the record.
        span: range of time of the report.

    Returns:
        The inventory.

    Raises:
        NoData: nothing is recorded in the span.
        ValueError: a file is no segment; the text names it.
        OSError: a file cannot be read.
    """
    found: dict[tuple[str, str], list[Run]] = {}
    seen: dict[tuple[str | None, ...], Seen] = {}
    rows = 0
    # Reading and adding up is done outside Python, beside each other.
    with concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1), "inventory") as pool:
        for run, kind, told in pool.map(lambda path: _read(path, span), _segments(root, span)):
            if run is None:
                continue
            rows += run.rows
            found.setdefault((run.session, kind), []).append(run)
            for each in told:
                key = (each.kind, each.session, each.endpoint, each.instance, each.route, each.conn_type)
                before = seen.get(key, each)
                seen[key] = replace(each, seq=max(each.seq, before.seq), at=max(each.at, before.at))
    if all(each.at < span.since for each in seen.values()):
        raise NoData(_without(root, span))
    made = Inventory(root, span, rows, list(seen.values()))
    once: dict[str, list[pathlib.Path]] = {}
    for (_, kind), runs in found.items():
        different = _different(runs)
        once.setdefault(kind, []).extend(path for run in different for path in run.paths)
        several = _overlapping(different)
        if several:
            made.doubtful.setdefault(kind, []).extend(several)
        if several or len(different) < len(runs):
            made.repeated.add(kind)
        if len(different) < len(runs):
            made.once[kind] = once[kind]
    return made


def within_record(root: pathlib.Path, span: Span, since: bool, until: bool) -> Span:
    """Return a span without the time before the record's first event, or behind its last one.

    Args:
        root: folder of the record.
        span: range of time.
        since: whether its begin may be changed.
        until: whether its end may be.

    Returns:
        ``span`` itself if nothing is recorded in it.

    Raises:
        ValueError: a file is no segment; the text names it.
        OSError: a file cannot be read.
    """
    days: dict[str, list[pathlib.Path]] = {}
    for path in _segments(root, span):
        days.setdefault(path.parent.parent.name, []).append(path)
    times = [_extent(path) for day in (days[name] for name in {min(days), max(days)}) for path in day] if days else []
    first = min((each[0] for each in times if each is not None), default=None)
    last = max((each[1] for each in times if each is not None), default=None)
    if first is None or last is None or last < span.since or first >= span.until:
        return span
    second = datetime.timedelta(seconds=1)
    begin = max(span.since, first.replace(microsecond=0)) if since else span.since
    end = min(span.until, last.replace(microsecond=0) + second) if until else span.until
    return Span(begin, end) if begin < end else span


def _extent(path: pathlib.Path) -> tuple[datetime.datetime, datetime.datetime] | None:
    """Return the times of the first and the last event of a segment, by its footer; None if it has none."""
    try:
        metadata = pq.read_metadata(path)
        place = metadata.schema.names.index("received_at")
        groups = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
        known = [each for each in groups if each is not None and each.has_min_max]
        return (min(each.min for each in known), max(each.max for each in known)) if known else None
    except (pa.ArrowException, ValueError) as e:
        raise ValueError(f"{path} is broken, or no segment ({e}): move it away") from e


def _without(root: pathlib.Path, span: Span) -> str:
    days = sorted(path.name.removeprefix("date=") for path in root.glob("date=*") if any(path.glob("type=*/*")))
    if not days:
        return f"{root} has no record: `gripproxy-stats record … --into {root}` makes one"
    return f"nothing is recorded from {span}; the record in {root} has the days {days[0]} to {days[-1]}"


def _segments(root: pathlib.Path, span: Span) -> Iterator[pathlib.Path]:
    first, last = span.read_since.date().isoformat(), span.until.date().isoformat()
    for folder in sorted(root.glob("date=*")):
        if first <= folder.name.removeprefix("date=") <= last:
            for path in sorted(folder.glob("type=*/*")):
                if not path.name.startswith(("_", ".")):
                    yield path


def _read(path: pathlib.Path, span: Span) -> tuple[Run | None, str, list[Seen]]:
    """Segment, None if it has no events; its type; and the combinations of fields of its events up to the end."""
    kind = path.parent.name.removeprefix("type=")
    keys = [*_COMMON, *(_OF_CONNECTIONS if kind == "conn" else ())]
    try:
        metadata = pq.read_metadata(path)
        ends = _ends(metadata)
        if ends is None:
            return None, kind, []
        there = set(metadata.schema.to_arrow_schema().names)
        # These names are few, and stand in the file once each, with numbers in their place.
        few = [name for name in keys if name in there]
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=few) as file:
            table = file.read([*few, "seq", "received_at"], use_threads=False)
        at = table["received_at"].cast(SCHEMA.field("received_at").type)
    except (pa.ArrowException, KeyError, UnicodeDecodeError) as e:
        raise ValueError(f"{path} is broken, or no segment ({e}): move it away") from e
    for name in keys:
        if name not in there:
            table = table.append_column(name, pa.nulls(len(table), pa.dictionary(pa.int32(), pa.string())))
    times = pc.min_max(at).as_py()
    if at.null_count or times["min"] < span.read_since or times["max"] >= span.until:
        since, until = (pa.scalar(time, at.type) for time in (span.read_since, span.until))
        table = table.filter(pc.and_(pc.greater_equal(at, since), pc.less(at, until)))
    # A name has the same number in all row groups only now.
    groups = table.unify_dictionaries().group_by(keys, use_threads=False)
    told = groups.aggregate([("seq", "max"), ("received_at", "max")])
    rows = [
        Seen(
            kind,
            row["session"],
            row["endpoint"],
            row["from"],
            (row["route"] or "") if kind == "conn" else None,
            row.get("conn_type"),
            row["seq_max"],
            row["received_at_max"],
        )
        for row in told.to_pylist()
    ]
    return Run(*ends, [path]), kind, rows


def _different(runs: list[Run]) -> list[Run]:
    """Return segments of one session and type without copies of others.

    The files of two are compared only if their numbers are alike.
    """
    kept: dict[tuple[int, int, int], list[Run]] = {}
    for run in runs:
        alike = kept.setdefault((run.first, run.last, run.rows), [])
        if not any(filecmp.cmp(run.paths[0], other.paths[0], shallow=False) for other in alike):
            alike.append(run)
    return [run for alike in kept.values() for run in alike]


def _overlapping(runs: list[Run]) -> list[Run]:
    """Return, of one session and type, where segments have the same numbers.

    Those with nothing sure in between as one.
    """
    groups: list[Run] = []
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


def _joined(runs: list[Run]) -> Run:
    paths = [path for run in runs for path in run.paths]
    return Run(runs[0].session, runs[0].first, max(run.last for run in runs), sum(run.rows for run in runs), paths)


def _ends(metadata: Any) -> tuple[str, int, int, int] | None:
    """Session, first and last number, and number of events of a segment, from its footer; None if it has no events."""
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
