"""Connections: begin, end and duration of each, number at a time, new and gone ones.

A **connection** is the sequence of ``conn`` events with one instance and id, up to the one that ends it. For HTTP that
is a request, held or not; for WebSockets the socket. It

- **begins** with the first event. If the record itself had begun, or the instance's endpoint had been connected,
  shortly before, it may have been there already: its beginning is *unknown*. Shortly means within the ttl for a
  Pushpin, which reports its connections in the course of it, and within a few seconds for a gripproxy, which reports
  them at the start;
- **ends** with the event that ends it (``gone``), or when its ttl has passed since the last event (``lapsed``): the
  event that it was gone, or the record, is missing then, and its duration is unknown.

An event that ends a connection without an earlier one is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_stats.reports.bucket import MARK, mark, repeated
from spark_stats.reports.events import Events
from spark_stats.reports.level import levels
from spark_stats.reports.local import local
from spark_stats.reports.quantile import cut, distributions
from spark_stats.reports.span import Span
from spark_stats.schema import MOST

__all__ = ["KEYS", "SETS", "TTL", "Connections", "connections", "course", "lasting", "present"]

PRESENT_TOLD: Final = 5
"""Seconds in which a gripproxy reports all its connections to a new recorder. A Pushpin takes the ttl."""

TTL: Final = 120
"""Seconds that a connection is taken to go on after an event without ``ttl``."""

KEYS: Final = ("instance", "route", "transport")
SETS: Final = ((), ("instance",), ("route",), ("transport",), KEYS)
"""Sets of keys that figures are given for."""


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections of a span.

    ``rows`` has one row per connection: :data:`KEYS`, as numbers, ``began_at``, ``ended_at`` (null: was there at the
    end of the range), ``gone`` (True if an event ended it; otherwise it lapsed), ``known`` (True if it really began
    then), and, on request, ``id``. ``names`` has the names behind the numbers, which are places in these lists: names
    are long and few, and rows many.
    """

    rows: DataFrame
    names: dict[str, list[str]]

    def name(self, key: str) -> Column:
        """Return the name instead of the number of ``key``."""
        return F.get(F.array(*[F.lit(name) for name in self.names[key]]), F.col(key)).alias(key)

    def place(self) -> Column:
        """Return one number for the numbers of all :data:`KEYS`."""
        number = F.lit(0).cast("bigint")
        for key in KEYS:
            number = number * len(self.names[key]) + F.col(key)
        return number

    def places(self, number: Column) -> dict[str, Column]:
        """Return the numbers of the keys that :meth:`place` joined in ``number``."""
        found = {}
        for key in reversed(KEYS):
            found[key] = (number % len(self.names[key])).cast("int")
            number = F.floor(number / len(self.names[key]))
        return found

    def named(self, frame: DataFrame) -> DataFrame:
        """Return ``frame``, which was made of the rows, with names instead of numbers."""
        return frame.select(*[self.name(key) if key in KEYS else key for key in frame.columns])


def connections(events: Events, resumed: Mapping[str, Sequence[int]], ids: bool = True) -> Connections:
    """Return all connections of the span, and of shortly before.

    Args:
        events: events of the span.
        resumed: times at which the record of an endpoint began or went on, µs since 1970, by endpoint.
        ids: keep the ids.
    """
    conn = events.of("conn").where(F.col("id").isNotNull() & F.col("instance").isNotNull())
    rows, names = _numbered(events, conn)
    # An id may be that of several connections, one after the other: the number of ends before distinguishes them. All
    # events of an id are brought to one place, once, and sorted there.
    rows = rows.select(*mark("instance", "id"), *(["id"] if ids else []), "received_at", "number", "told")
    order = Window.partitionBy(*MARK).orderBy("received_at", "number")
    earlier = F.sum(_gone().cast("int")).over(order.rowsBetween(Window.unboundedPreceding, -1))
    placed = rows.withColumn("spell", F.coalesce(earlier, F.lit(0)))
    every = placed.groupBy(*MARK, *(["id"] if ids else []), "spell").agg(*_summary(names))
    made = every.where(F.col("began_at").isNotNull())
    lapsed = F.col("gone_at").isNull() & (F.col("until") < F.lit(events.span.until))
    began = F.unix_micros("began_at")
    prompt = F.get(
        F.array(*[F.lit(name.startswith("gripproxy")) for name in names.names["instance"]]), names.place("instance")
    )
    since = began - F.when(prompt, F.least("ttl", F.lit(PRESENT_TOLD))).otherwise(F.col("ttl")) * 1_000_000
    times = F.get(
        F.array(*[_array(resumed.get(endpoint, ())) for endpoint in names.names["endpoint"]]), names.place("endpoint")
    )
    fresh = F.exists(times, lambda time: (time <= began) & (time > since))
    return Connections(
        made.select(
            names.place("instance").alias("instance"),
            names.place("route").alias("route"),
            names.place("conn_type").alias("transport"),
            *(["id"] if ids else []),
            "began_at",
            F.coalesce("gone_at", F.when(lapsed, F.col("until"))).alias("ended_at"),
            F.col("gone_at").isNotNull().alias("gone"),
            (~fresh).alias("known"),
        ),
        {
            "instance": names.names["instance"],
            "route": names.names["route"],
            "transport": names.names["conn_type"],
        },
    )


@dataclass(frozen=True, slots=True)
class _Names:
    """The different names in some fields, each known by its place in ``names``; the first is ``""``, for none.

    An event has a place in ``combinations``, which has those of the names in its fields, in the order of ``names``.
    """

    names: dict[str, list[str]]
    combinations: list[tuple[int, ...]]

    def first(self, field: str) -> Column:
        """An aggregate.

        The number of an event, with the place of the field's name in it; of the first one that has the field.
        One number is all that an aggregate can keep cheaply.
        """
        at = list(self.names).index(field)
        place = F.get(_array([found[at] or None for found in self.combinations]), _combination())
        return F.min(F.col("number") * len(self.names[field]) + place).alias(f"{field}_first")

    def place(self, field: str) -> Column:
        """The place of the name again."""
        return F.coalesce((F.col(f"{field}_first") % len(self.names[field])).cast("int"), F.lit(0))


_FIELDS: Final = ("instance", "endpoint", "route", "conn_type")
"""Fields whose names are few. Not all events of a connection have all of them."""

# In one number, as little as possible for each of many events: the time to live, 2^31 s at most, whether it is gone,
# and the place of its combination of names, which are thousands and not millions.
_TTL: Final = 1 << 31
_GONE: Final = 1 << 30


def _told(ttl: Column, gone: Column, combination: Column) -> Column:
    return ttl * _TTL + F.when(gone, _GONE).otherwise(0) + combination


def _ttl() -> Column:
    return F.shiftright("told", _TTL.bit_length() - 1)


def _gone() -> Column:
    return F.col("told").bitwiseAND(_GONE) != 0


def _combination() -> Column:
    return F.col("told").bitwiseAND(_GONE - 1).cast("int")


def _array(values: Iterable[int | None]) -> Column:
    return F.array(*map(F.lit, values)).cast("array<bigint>")


def _numbered(events: Events, conn: DataFrame) -> tuple[DataFrame, _Names]:
    """Events with ``number``, their place in the order of recording, and ``told``, their content as a number."""
    found: list[tuple[str, tuple[str, ...], int]] = [
        (each.session, tuple(getattr(each, field) or "" for field in _FIELDS), each.seq) for each in events.seen("conn")
    ]
    names = {field: sorted({"", *(told[i] for _, told, _ in found)}) for i, field in enumerate(_FIELDS)}
    # Sessions follow one another, and are named by when they began.
    last: dict[str, int] = {}
    for session, _, seq in found:
        last[session] = max(last.get(session, 0), seq)
    before: dict[str, int] = {}
    total = 0
    for session in sorted(last):
        before[session] = total
        total += last[session] + 1
    combinations = {told: place for place, told in enumerate(sorted({told for _, told, _ in found}))}
    columns = dict.fromkeys(("session", *_FIELDS), "string") | {"before": "bigint", "combination": "bigint"}
    known = {(session, *told): (before[session], combinations[told]) for session, told, _ in found}
    table = local(events.spark, [(*key, *after) for key, after in known.items()], columns)
    # Found by one number made of the names: they are few, so no two have it in common.
    table = table.select(F.xxhash64("session", *_FIELDS).alias("_names"), "before", "combination")
    named = conn.withColumns({column: F.coalesce(column, F.lit("")) for column in ("session", *_FIELDS[1:])})
    # A recorder keeps no other; segments may be from elsewhere.
    ttl = F.least(F.greatest(F.coalesce("ttl", F.lit(TTL)), F.lit(0)), F.lit(MOST["ttl"]))
    told = _told(ttl, F.coalesce("unavailable", F.lit(False)), F.col("combination"))
    named = named.withColumn("_names", F.xxhash64("session", *_FIELDS))
    rows = named.join(F.broadcast(table), "_names").select(
        "instance", "id", "received_at", (F.col("before") + F.col("seq")).alias("number"), told.alias("told")
    )
    places = {field: {name: place for place, name in enumerate(names[field])} for field in _FIELDS}
    return rows, _Names(
        names, [tuple(places[field][name] for field, name in zip(_FIELDS, told, strict=True)) for told in combinations]
    )


def _summary(names: _Names) -> list[Column]:
    """Aggregates of the events of a connection; of numbers only, which Spark adds up without sorting."""
    gone = _gone()
    until = F.timestamp_micros(F.unix_micros("received_at") + _ttl() * 1_000_000)
    return [
        F.min(F.when(~gone, F.col("received_at"))).alias("began_at"),
        F.max(F.when(~gone, until)).alias("until"),
        F.max(F.when(gone, F.col("received_at"))).alias("gone_at"),
        F.max(F.when(~gone, _ttl())).alias("ttl"),
        *[names.first(field) for field in _FIELDS],
    ]


def course(made: Connections, span: Span) -> DataFrame:
    """Return connections at a time and churn.

    Args:
        made: connections of the span.
        span: range of time of the report.

    Returns:
        ``connections_peak``, ``_average`` and ``_last``; ``new``, those whose beginning is known; ``gone``, lapsed ones
        included; ``lapsed``.
    """
    begins = F.col("_which") == 0
    happened = F.when(begins, F.col("began_at")).otherwise(F.col("ended_at"))
    changes = made.rows.select("*", repeated(2).alias("_which")).select(
        happened.alias("at"), *made.rows.columns, begins.alias("begins")
    )
    flags = [F.col("at") >= F.lit(span.since), F.col("begins"), F.col("known"), F.col("gone")]
    told = made.place()
    for flag in flags:
        told = told * 2 + flag.cast("bigint")

    def unpack(rows: DataFrame) -> DataFrame:
        within, begins, known, gone = (F.col("told").bitwiseAND(1 << bit) != 0 for bit in range(len(flags) - 1, -1, -1))
        return rows.select(
            "at",
            *[number.alias(key) for key, number in made.places(F.shiftright("told", len(flags))).items()],
            F.when(begins, 1).otherwise(-1).cast("bigint").alias("connections"),
            (begins & known & within).cast("bigint").alias("new"),
            (~begins & within).cast("bigint").alias("gone"),
            (~begins & within & ~gone).cast("bigint").alias("lapsed"),
        )

    packed = changes.where(F.col("at").isNotNull()).select("at", told.alias("told"))
    return made.named(levels(packed, KEYS, SETS, ["connections"], span, ["new", "gone", "lapsed"], unpack=unpack))


def lasting(made: Connections, span: Span) -> DataFrame:
    """Return the durations of connections that ended in a bucket, in ms.

    Args:
        made: connections of the span.
        span: range of time of the report.

    Returns:
        ``ended``, ``lasted_mean``, ``_median``, ``_p95``, ``_max``, of those whose beginning and end are known;
        ``unknown`` is the number of the others.
    """
    ended = made.rows.where((F.col("ended_at") >= F.lit(span.since)) & (F.col("ended_at") < F.lit(span.until)))
    lasted = F.floor((F.unix_micros("ended_at") - F.unix_micros("began_at")) / 1000)
    rows = ended.select(
        F.col("ended_at").alias("at"),
        made.place().alias("place"),
        F.when(F.col("known") & F.col("gone"), lasted).alias("lasted_max"),
    )

    def unpack(rows: DataFrame) -> DataFrame:
        known = F.col("lasted_max").isNotNull()
        return rows.select(
            "start",
            *[number.alias(key) for key, number in made.places(F.col("place")).items()],
            "lasted_max",
            F.col("lasted_max").alias("lasted_sum"),
            cut(F.col("lasted_max")).alias("lasted"),
            known.cast("bigint").alias("ended"),
            (~known).cast("bigint").alias("unknown"),
        )

    sums = ["unknown", "lasted_sum"]
    placed = distributions(rows, KEYS, SETS, "lasted", "ended", sums, ["lasted_max"], unpack=unpack)
    mean = F.when(F.col("ended") > 0, F.col("lasted_sum") / F.col("ended"))
    return made.named(placed.withColumn("lasted_mean", mean).drop("lasted_sum"))


def present(events: Events, made: Connections, at: object) -> DataFrame:
    """Return the connections at one moment, with the ``peer_address`` of the first event that has one.

    Args:
        events: events of the span.
        made: its connections, with ids.
        at: the moment.
    """
    ended = F.col("ended_at").isNotNull() & (F.col("ended_at") <= F.lit(at))
    there = made.named(made.rows.where((F.col("began_at") <= F.lit(at)) & ~ended))
    told = events.of("conn").where(F.col("peer_address").isNotNull())
    whose = there.select("instance", "id", "began_at", F.coalesce("ended_at", F.lit(events.span.until)).alias("until"))
    place = F.struct("received_at", "session", "seq")
    peers = (
        told.join(whose, ["instance", "id"])
        .where(F.col("received_at").between(F.col("began_at"), F.col("until")))
        .groupBy("instance", "id", "began_at")
        .agg(F.min_by("peer_address", place).alias("peer_address"))
    )
    end = F.when(F.col("gone"), "gone").when(F.col("ended_at").isNotNull(), "lapsed").alias("end")
    return there.join(peers, ["instance", "id", "began_at"], "left").select(
        "instance", "id", "route", "transport", "peer_address", "began_at", "ended_at", end, "known"
    )
