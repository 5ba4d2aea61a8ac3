"""The figures of the reports, calculated another way: DuckDB, and event by event where that is plainer.

Shares nothing with the reports but the record's files and what docs/reports.md says.
"""

from __future__ import annotations

import datetime
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

PERS = {"minute": 60, "hour": 3600, "day": 86400}
SECOND = 1_000_000
LOOK_BACK = 3600 * SECOND


@dataclass(frozen=True)
class Spell:
    instance: str
    route: str
    transport: str
    began: int
    ended: int | None
    end: str | None
    known: bool
    id: str


class Oracle:
    """``since`` and ``until`` in UTC; times are µs since 1970 in here."""

    def __init__(self, root: pathlib.Path, since: datetime.datetime, until: datetime.datetime) -> None:
        self.since, self.until = int(since.timestamp()) * SECOND, int(until.timestamp()) * SECOND
        self.db = duckdb.connect()
        self.db.execute("SET TimeZone = 'UTC'")
        self.db.execute("SET threads = 2")
        self.db.execute(
            f"""
            CREATE TABLE everything AS SELECT *, "from" AS instance, epoch_us(received_at) AS moment
            FROM read_parquet('{root}/date=*/type=*/*.parquet', hive_partitioning = true)
            """
        )
        self.db.execute(
            """
            CREATE VIEW events AS SELECT * FROM everything WHERE rowid IN
            (SELECT min(rowid) FROM everything GROUP BY session, seq)
            """
        )
        self.db.execute("CREATE TABLE pers AS SELECT unnest(['minute', 'hour', 'day']) AS per")
        self.db.execute(
            f"""
            CREATE VIEW inside AS SELECT * REPLACE (coalesce(route, '') AS route) FROM events
            WHERE moment >= {self.since} AND moment < {self.until}
            """
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.db.execute(query).fetchall()
        return found

    # --- one event after the other

    def ordered(self, kind: str, columns: str) -> Iterator[tuple[Any, ...]]:
        yield from self.rows(
            f"""
            SELECT instance, moment, {columns} FROM events
            WHERE type = '{kind}' AND moment >= {self.since - LOOK_BACK} AND moment < {self.until}
            ORDER BY received_at, session, seq
            """
        )

    def spells(self, resumed: dict[str, list[int]]) -> list[Spell]:
        """Connections; ``resumed`` are the times by endpoint from which on there is a record."""
        now: dict[tuple[str, str], list[Any]] = {}
        over = []
        for instance, at, identity, gone, ttl, route, transport, endpoint, session, seq in self.ordered(
            "conn", "id, unavailable, ttl, route, conn_type, endpoint, session, seq"
        ):
            key = (instance, identity)
            if gone:
                if key not in now:
                    continue
                spell = now.pop(key)
                over.append((key, spell, at))
            else:
                spell = now.setdefault(key, [at, 0, [], [], []])
                spell[1] = max(spell[1], at + ttl * SECOND)
            # The first that was recorded counts, and that need not be the first by the clock.
            for place, value in zip((2, 3, 4), (route, transport, endpoint), strict=True):
                if value:
                    spell[place].append((session, seq, value))
        over += [(key, spell, None) for key, spell in now.items()]
        made = []
        for (instance, identity), (began, lapses, *told), gone_at in over:
            route, transport, endpoint = (min(values)[2] if values else "" for values in told)
            end = "gone" if gone_at is not None else "lapsed" if lapses < self.until else None
            ended = gone_at if gone_at is not None else lapses if lapses < self.until else None
            # Gripproxies tell at once of all connections that there are.
            window = 5 if instance.startswith("gripproxy") else 120
            known = not any(began - window * SECOND < time <= began for time in resumed[endpoint])
            made.append(Spell(instance, route, transport, began, ended, end, known, identity))
        return made

    def subscribers(self) -> dict[tuple[str, str, str], list[tuple[int, int, int]]]:
        """Per instance, mode and channel: from when, until when, how many."""
        made: dict[tuple[str, str, str], list[tuple[int, int, int]]] = defaultdict(list)
        now: dict[tuple[str, str, str], tuple[int, int, int]] = {}
        for instance, at, mode, channel, gone, number, ttl in self.ordered(
            "sub", "mode, channel, unavailable, subscribers, ttl"
        ):
            key = (instance, mode, channel)
            if key in now:
                began, lapses, before = now.pop(key)
                made[key].append((began, min(lapses, at), before))
            if not gone:
                now[key] = (at, at + ttl * SECOND, number)
        for key, (began, lapses, before) in now.items():
            made[key].append((began, min(lapses, self.until), before))
        return made

    # --- levels

    def buckets(self) -> Iterator[tuple[str, int, int, int]]:
        """Per, start, and from when to when it counts."""
        for per, length in PERS.items():
            step = length * SECOND
            for start in range(self.since // step * step, self.until, step):
                yield per, start, max(start, self.since), min(start + step, self.until)

    def level(self, intervals: Iterable[tuple[int, int | None, int]]) -> dict[tuple[str, int], tuple[int, float, int]]:
        """Peak, average and last number per bucket, of intervals (from, until, how many)."""
        ends = [(began, self.until if ended is None else ended, number) for began, ended, number in intervals]
        began, ended, number = (np.array(column, "int64") for column in zip(*ends, strict=True))
        first, last = np.argsort(began), np.argsort(ended)
        up, down = (np.concatenate([[0], np.cumsum(number[order])]) for order in (first, last))
        seconds = np.arange(self.since + SECOND, self.until + 1, SECOND)  # the ends of all
        now = up[np.searchsorted(began[first], seconds)] - down[np.searchsorted(ended[last], seconds)]
        made = {}
        for per, start, low, high in self.buckets():
            inside = now[(low - self.since) // SECOND : (high - self.since) // SECOND]
            area = int((np.maximum(np.minimum(ended, high) - np.maximum(began, low), 0) * number).sum())
            if inside.max() or area:
                made[per, start] = (int(inside.max()), area / (high - low), int(inside[-1]))
        return made

    # --- by DuckDB

    def grouped(
        self, source: str, at: str, keys: list[str], sets: list[list[str]], figures: str
    ) -> list[tuple[Any, ...]]:
        """Figures by bucket and set of keys: per, start, keys, figures."""
        groups = ", ".join("(" + ", ".join(["per", "start", *chosen]) + ")" for chosen in sets)
        named = ", ".join(keys)
        return self.rows(
            f"""
            SELECT per, epoch_us(start), {named}, {figures}
            FROM (SELECT *, date_trunc(per, make_timestamptz({at})) AS start FROM ({source}), pers)
            GROUP BY GROUPING SETS ({groups})
            """
        )


def three_digits(value: str) -> str:
    text = f"CAST({value} AS VARCHAR)"
    return f"CAST(rpad(left({text}, 3), CAST(length({text}) AS INT), '0') AS BIGINT)"


def place(value: str, twentieths: int) -> str:
    """The quantile at so many twentieths: the value that this part of all are not above, of a whole list."""
    return f"list_sort(list({value}))[CAST((count({value}) * {twentieths} + 19) // 20 AS INT)]"
