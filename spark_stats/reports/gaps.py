"""Gaps: intervals that were not recorded, and instances that should have reported and did not.

Reasons, in the column ``reason`` of the table:

- ``no recorder``: no recorder was running, or its last events are not in segments yet. Nothing is known.
- ``disconnected``: it had no connection to the endpoint. Nothing is known of the instances there.
- ``overrun``, ``missed-events``, ``missed-reports``: the recorder noticed that events are missing; they would have
  arrived shortly before ``ended_at``. Figures are too low by their content; ``count`` is their number, where it is
  known.
- ``silent``: no ``report`` covers the time, and the one before had connections.
- ``idle``: no ``report`` covers the time, and the one before had none; instances do not report while they have none.
  An idle instance cannot be distinguished from one that is gone.
- ``not seen before``: the instance's first report does not cover the time: it had not been started, or was silent.
- ``never reports``: there are events of the instance and no report, as with ``stats_report_interval=0``.

In the first two the **record** is incomplete (``unrecorded``), in the last four the reports of instances are
(``unreported``). Either way the figures are unknown, and not zero.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F

from spark_stats.reports.bucket import PERS
from spark_stats.reports.events import Events, moment
from spark_stats.reports.intervals import Interval, clipped, merged, missing
from spark_stats.reports.span import Span

__all__ = ["UNRECORDED", "UNREPORTED", "Gap", "Gaps", "coverage", "find", "silences", "table"]

UNRECORDED: Final = ("no recorder", "disconnected")
UNREPORTED: Final = ("silent", "idle", "not seen before", "never reports")
NOTICED: Final = ("overrun", "missed-events", "missed-reports")

JITTER: Final = 2_000_000
"""µs by which a report may be late before the time between two counts as not reported, at least."""

_STRING, _TIME, _FLOAT = pa.string(), pa.timestamp("us", tz="UTC"), pa.float64()
_TABLE: Final = pa.schema(
    [("reason", _STRING), ("endpoint", _STRING), ("instance", _STRING), ("began_at", _TIME), ("ended_at", _TIME)]
).append(pa.field("count", pa.int64()))
_COVERAGE: Final = pa.schema(
    [("per", _STRING), ("start", _TIME), ("instance", _STRING), ("unrecorded", _FLOAT), ("unreported", _FLOAT)]
)


@dataclass(frozen=True, slots=True)
class Gap:
    """Row of the table; ``endpoint`` and ``instance`` are None where it concerns all."""

    reason: str
    endpoint: str | None
    instance: str | None
    interval: Interval
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Event of the recorder itself; ``at`` in µs since 1970."""

    session: str
    seq: int
    at: int
    action: str | None
    endpoint: str | None
    instance: str | None
    count: int | None
    extra: str | None


@dataclass(slots=True)
class Gaps:
    """Findings about the record.

    ``instances`` are pairs of an endpoint and an instance at it, ``endpoints`` all that were recorded, ``resumed`` the
    times by endpoint at which the record of it began or went on.
    """

    found: list[Gap] = field(default_factory=list)
    instances: list[tuple[str, str]] = field(default_factory=list)
    endpoints: list[str] = field(default_factory=list)
    resumed: dict[str, list[datetime.datetime]] = field(default_factory=dict)


def find(events: Events) -> Gaps:
    """Return the gaps that follow from the recorder's own events; :func:`silences` adds those of missing reports.

    Args:
        events: events of the span.

    Raises:
        ValueError: a file is no segment; the text names it.
        OSError: a file cannot be read.
    """
    span = events.span
    reach = Interval(span.read_since, span.until)
    gaps = Gaps()
    gaps.instances = events.found.instances()
    extents, notes = _told(events)
    sessions = merged(Interval(moment(first), moment(last)) for first, last in extents)
    gaps.endpoints = sorted({endpoint for endpoint, _ in gaps.instances} | _named(notes))
    absent = missing(sessions, reach)
    gaps.found = [Gap("no recorder", None, None, interval) for interval in absent]
    for endpoint in gaps.endpoints:
        away = clipped(_disconnected(endpoint, notes, sessions), reach)
        gaps.found.extend(Gap("disconnected", endpoint, None, interval) for interval in away)
        ends = [interval.until for interval in merged([*absent, *away]) if interval.until < span.until]
        gaps.resumed[endpoint] = sorted({span.read_since, *ends})
    for row in notes:
        at = moment(row.at)
        if row.action in NOTICED and span.since <= at < span.until:
            gaps.found.append(Gap(row.action, row.endpoint or None, row.instance, Interval(at, at), row.count))
    return gaps


def _told(events: Events) -> tuple[list[tuple[int, int]], list[Note]]:
    """Begin and end of each session, in µs, and the recorders' own events except ticks, in order."""
    own = events.own()
    ends = own.group_by("session").aggregate([("at", "min"), ("at", "max")]).to_pylist()
    # Copies have the same number.
    notes = {(row["session"], row["seq"]): Note(**row) for row in own.filter(pc.field("action") != "tick").to_pylist()}
    ordered = sorted(notes.values(), key=lambda note: (note.at, note.session, note.seq))
    return [(row["at_min"], row["at_max"]) for row in ends], ordered


def _named(notes: Iterable[Note]) -> set[str]:
    names = {row.endpoint for row in notes if row.endpoint}
    for row in notes:
        if row.action == "start" and row.extra:
            names.update(name for name in json.loads(row.extra).get("endpoints", []) if isinstance(name, str))
    return names


def _disconnected(endpoint: str, notes: Iterable[Note], sessions: list[Interval]) -> list[Interval]:
    """Intervals in which an endpoint of a running recorder was not connected, as it is not at the start."""
    found = []
    for session in sessions:
        since: datetime.datetime | None = session.since
        for row in notes:
            at = moment(row.at)
            if not session.since <= at <= session.until:
                continue
            if row.action == "connected" and row.endpoint == endpoint:
                if since is not None and at > since:
                    found.append(Interval(since, at))
                since = None
            elif (row.action == "disconnected" and row.endpoint == endpoint) or row.action == "start":
                since = at if since is None else since
        if since is not None and session.until > since:
            found.append(Interval(since, session.until))
    return found


def silences(events: Events, known: Gaps) -> Gaps:
    """Return ``known`` with the intervals in which instances did not report, by the reports among ``events``."""
    span = events.span
    instances = sorted({instance for _, instance in known.instances})
    reports = events.of("report").where(F.col("instance").isNotNull())
    duration = F.coalesce("duration", F.lit(0)) * 1000
    # All routes of an instance report at one time.
    rounds = (
        reports.groupBy("instance", F.date_trunc("second", "received_at").alias("second"))
        .agg(
            F.min(F.unix_micros("received_at") - duration).alias("since"),
            F.max(F.unix_micros("received_at")).alias("until"),
            F.max(duration).alias("duration"),
            F.max(F.coalesce("connections", F.lit(0))).alias("connections"),
        )
        .drop("second")
    )
    order = Window.partitionBy("instance").orderBy("until")
    slack = F.greatest(F.lit(JITTER), F.floor(F.col("duration") / 2))
    told = (
        rounds.withColumn("before", F.lag("until").over(order))
        .withColumn("had", F.lag("connections").over(order))
        .withColumn("is_last", F.lead("until").over(order).isNull())
    )
    edge = F.lit(int(span.until.timestamp()) * 1_000_000)
    gaps = told.where(
        F.col("before").isNull() | (F.col("since") - F.col("before") > slack)
        | (F.col("is_last") & (edge - F.col("until") > F.col("duration") + slack))
    ).withColumn("slack", slack)  # fmt: skip
    found = []
    reach = Interval(span.since, span.until)
    reporting = set()
    for row in gaps.collect():
        # The first report of each instance is always among them.
        reporting.add(row.instance)
        if row.before is None:
            found.append(("not seen before", row.instance, Interval(span.read_since, moment(row.since))))
        elif row.since - row.before > row.slack:
            found.append((_quiet(row.had), row.instance, Interval(moment(row.before), moment(row.since))))
        if row.is_last and span.until.timestamp() * 1e6 - row.until > row.duration + row.slack:
            found.append((_quiet(row.connections), row.instance, Interval(moment(row.until), span.until)))
    found.extend(("never reports", name, reach) for name in instances if name not in reporting)
    silent = [
        Gap(reason, None, instance, part)
        for reason, instance, interval in sorted(found, key=lambda each: (each[1], each[2].since))
        if interval.until > interval.since and interval.until - interval.since > datetime.timedelta(seconds=2)
        for part in clipped([interval], reach)
    ]
    return replace(known, found=[*known.found, *silent])


def _quiet(connections: int) -> str:
    return "silent" if connections else "idle"


def table(gaps: Gaps, span: Span) -> pa.Table:
    """Return the gaps as a table, cut to ``span``."""
    rows = []
    for gap in gaps.found:
        whole = gap.interval.since == gap.interval.until
        rows += [
            (gap.reason, gap.endpoint, gap.instance, part.since, part.until, gap.count)
            for part in ([gap.interval] if whole else _within([gap.interval], gap.reason in UNRECORDED, span))
        ]
    return _table(sorted(rows, key=lambda row: (row[3], row[0], row[1] or "", row[2] or "")), _TABLE)


def _within(intervals: Iterable[Interval], unrecorded: bool, span: Span) -> list[Interval]:
    """Return intervals cut to a span.

    A span is on whole seconds, a record is not: ``unrecorded`` time is left out that is only a part of the first or of
    the last second.
    """
    parts = clipped(intervals, Interval(span.since, span.until))
    if not unrecorded:
        return parts
    second = datetime.timedelta(seconds=1)
    return [part for part in parts if part.until >= span.since + second and part.since <= span.until - second]


def coverage(gaps: Gaps, span: Span) -> pa.Table:
    """Return the unknown seconds of each bucket.

    Args:
        gaps: findings about the record.
        span: range of time of the report.

    Returns:
        ``per``, ``start``, ``instance`` (null: of any instance), ``unrecorded`` and ``unreported``, in seconds. Buckets
        that are known throughout are left out.
    """
    everywhere = [gap.interval for gap in gaps.found if gap.reason == "no recorder"]
    by_endpoint: dict[str, list[Interval]] = {endpoint: list(everywhere) for endpoint in gaps.endpoints}
    for gap in gaps.found:
        if gap.reason == "disconnected" and gap.endpoint is not None:
            by_endpoint[gap.endpoint].append(gap.interval)
    intervals: dict[tuple[str | None, str], list[Interval]] = {(None, "unrecorded"): list(everywhere)}
    for found in by_endpoint.values():
        intervals[None, "unrecorded"].extend(found)
    for endpoint, sender in gaps.instances:
        intervals.setdefault((sender, "unrecorded"), []).extend(by_endpoint[endpoint])
    for gap in gaps.found:
        if gap.reason in UNREPORTED:
            for name in (gap.instance, None):
                intervals.setdefault((name, "unreported"), []).append(gap.interval)
    kinds = ("unrecorded", "unreported")
    seconds: dict[tuple[str, datetime.datetime, str | None], list[float]] = {}
    for (instance, kind), found in intervals.items():
        for interval in _within(merged(found), kind == "unrecorded", span):
            for per, start, taken in _spread(interval):
                seconds.setdefault((per, start, instance), [0.0, 0.0])[kinds.index(kind)] += taken
    rows = [(*key, *taken) for key, taken in seconds.items()]
    return _table(sorted(rows, key=lambda row: (row[0], row[1], row[2] or "")), _COVERAGE)


def _spread(interval: Interval) -> Iterator[tuple[str, datetime.datetime, float]]:
    """The buckets that an interval is in, and for how many seconds."""
    for per, length in PERS.items():
        step = datetime.timedelta(seconds=length)
        start = datetime.datetime.fromtimestamp(interval.since.timestamp() // length * length, datetime.UTC)
        while start < interval.until:
            taken = min(interval.until, start + step) - max(interval.since, start)
            yield per, start, taken.total_seconds()
            start += step


def _table(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    return pa.table([[row[place] for row in rows] for place in range(len(schema))], schema=schema)
