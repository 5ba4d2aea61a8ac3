"""Buckets of time, and the sets of keys that figures are given for.

Every table over time has the columns ``per`` (``minute``, ``hour``, ``day``; days are UTC's), ``start`` of the bucket,
and ``by``: the keys that the row is for, joined with ``+``, or ``all``. Other keys are null. A bucket at the edge of
the range counts with the part that is in the range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_stats.reports.span import Span

__all__ = [
    "MARK",
    "PERS",
    "Unpack",
    "bounded",
    "by_sets",
    "grouped",
    "length",
    "mark",
    "named",
    "per_bucket",
    "repeated",
]

PERS: Final = {"minute": 60, "hour": 3600, "day": 86400}
"""Lengths of buckets in seconds, by name."""

Unpack: TypeAlias = Callable[[DataFrame], DataFrame]
"""Makes the columns that are wanted of fewer ones: to bring rows to one place takes the longer the more they have."""


def by_sets(
    rows: DataFrame,
    keys: Sequence[str],
    sets: Sequence[Sequence[str]],
    only: Sequence[Sequence[str]] | None = None,
    many: str | None = None,
) -> DataFrame:
    """Repeat every row for each set of keys: adds the column ``by`` and makes the other keys null.

    Args:
        rows: rows with the ``keys``.
        keys: columns that figures may be given by.
        sets: sets of keys; ``by`` is the place of the set in it, for :func:`named`.
        only: those of the ``sets`` for which rows are repeated; all by default.
        many: a key that some rows have and others not: rows that have it are repeated for the sets with it only, the
            others for the sets without it.

    Returns:
        The repeated rows.
    """
    rest = [column for column in rows.columns if column not in keys]
    wanted = [place for place, chosen in enumerate(sets) if only is None or chosen in only]
    chosen = []
    for key in keys:
        having = [place for place in wanted if key in sets[place]]
        kept = F.col(key) if having == wanted else F.when(F.col("by").isin(having), F.col(key))
        chosen.append(kept.alias(key))
    which = _each(wanted)
    if many is not None:
        having, others = ([place for place in wanted if (many in sets[place]) is has] for has in (True, False))
        which = F.explode(
            F.when(F.col(many).isNull(), F.array(*map(F.lit, others))).otherwise(F.array(*map(F.lit, having)))
        )
    return rows.select("*", which.alias("by")).select("by", *chosen, *rest)


def repeated(times: int) -> Column:
    """Return an expression that repeats every row and numbers the copies from 0.

    Numbers, because the columns of the copies would be built first, and again for every row.

    Args:
        times: number of copies.
    """
    return _each(range(times))


def _each(numbers: Sequence[int]) -> Column:
    return F.explode(F.array(*map(F.lit, numbers))) if len(numbers) > 1 else F.lit(numbers[0])


def per_bucket(rows: DataFrame, at: str, pers: Sequence[str] = tuple(PERS)) -> DataFrame:
    """Repeat every row for each length of bucket.

    Args:
        rows: rows with the time ``at``.
        at: name of that column.
        pers: lengths of buckets, names in :data:`PERS`.

    Returns:
        The rows with ``per``, the place of the length in :data:`PERS`, for :func:`named`, and ``start`` of the bucket.
    """
    places = [list(PERS).index(per) for per in pers]
    start = F.lit(None)
    for place, per in zip(places, pers, strict=True):
        start = F.when(F.col("per") == place, F.date_trunc(per, at)).otherwise(start)
    return rows.select("*", _each(places).alias("per")).select("per", start.alias("start"), *rows.columns)


def named(rows: DataFrame, sets: Sequence[Sequence[str]]) -> DataFrame:
    """Return rows with names instead of numbers in ``by`` and, if there is one, in ``per``.

    Rows are compared and shuffled by numbers, which is quicker.

    Args:
        rows: rows with numbers.
        sets: sets of keys, of which ``by`` is the place.
    """
    names = {"per": list(PERS), "by": ["+".join(chosen) or "all" for chosen in sets]}
    return rows.withColumns(
        {name: F.get(F.array(*map(F.lit, found)), F.col(name)) for name, found in names.items() if name in rows.columns}
    )


def grouped(
    rows: DataFrame,
    at: str,
    keys: Sequence[str],
    sets: Sequence[Sequence[str]],
    figures: Sequence[Column],
) -> DataFrame:
    """Return figures for each bucket and each set of keys.

    Args:
        rows: rows to aggregate; each is repeated for every bucket and set, so there should be few of them.
        at: name of the column with their time.
        keys: columns that figures may be given by, never null.
        sets: sets of these keys.
        figures: aggregates.

    Returns:
        ``per``, ``start``, ``by``, the ``keys`` and the ``figures``.
    """
    starts = {per: f"_{per}" for per in PERS}
    timed = rows.withColumns({name: F.date_trunc(per, at) for per, name in starts.items()})
    every = [*starts.values(), *keys]
    wanted = [(per, chosen) for per in PERS for chosen in sets]
    made = timed.groupingSets(
        [[F.col(name) for name in (starts[per], *chosen)] for per, chosen in wanted],
        *[F.col(name) for name in every],
    ).agg(*figures, F.grouping_id().alias("_which"))
    # Spark identifies a set by a bit for each column that is not in it, the last column's the lowest.
    kinds = {
        sum(1 << place for place, name in enumerate(reversed(every)) if name not in (starts[per], *chosen)): (
            per,
            "+".join(chosen) or "all",
        )
        for per, chosen in wanted
    }
    names = F.create_map(
        *[part for which, (per, by) in kinds.items() for part in (F.lit(which), F.struct(F.lit(per), F.lit(by)))]
    )
    named = F.element_at(names, F.col("_which").cast("int"))
    added = [name for name in made.columns if name not in every and name != "_which"]
    return made.select(
        named["col1"].alias("per"),
        F.coalesce(*starts.values()).alias("start"),
        named["col2"].alias("by"),
        *keys,
        *added,
    )


def mark(*keys: str) -> list[Column]:
    """Return two numbers, ``_hash`` and ``_check``, that stand for the values of some keys where rows are sorted.

    Comparing numbers is many times cheaper than comparing all the keys. Of a billion different values, two would share
    both numbers once in 10^20 times.

    Args:
        keys: names of the columns.
    """
    return [F.xxhash64(*keys).alias("_hash"), F.xxhash64(F.lit(1), *reversed(keys)).alias("_check")]


MARK: Final = ("_hash", "_check")
"""The columns of :func:`mark`."""


def length() -> Column:
    """Return the length of the bucket of a row in seconds; its ``per`` is a number."""
    return F.get(F.array(*map(F.lit, PERS.values())), F.col("per"))


def bounded(span: Span) -> tuple[Column, Column]:
    """Return begin and end of the bucket of a row within a span, in seconds since 1970.

    The row has ``per``, as a number, and ``start``.

    Args:
        span: range of time of the report.
    """
    start = F.unix_seconds("start")
    return (
        F.greatest(start, F.lit(int(span.since.timestamp()))),
        F.least(start + length(), F.lit(int(span.until.timestamp()))),
    )
