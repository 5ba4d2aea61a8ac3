"""Reader of the SQLite engine: pages of history and of snapshots, each in a read transaction of its own.

No transaction outlives a page: the write-ahead log cannot be reused past the oldest reader.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from griphub.store.event import Event
from griphub.store.interface import KeyRange, Page, SnapshotPage, StoreState
from griphub.store.schema import connect_reader
from griphub.store.sqlite_rows import EVENT_COLUMNS, TOPIC_COLUMNS, event_of, state_of, topic_of
from griphub.store.topic import Topic

__all__ = ["SCAN", "SqliteReader"]

SCAN: Final = 20_000
"""Events looked at for one page: a narrow range of a long topic takes several pages, some of them empty."""

_EVENT: Final = ", ".join(f"e.{name}" for name in EVENT_COLUMNS.split(", "))


class SqliteReader:
    """Reader of a store in a file. Implements ``griphub.store.interface.StoreReader``.

    Args:
        path: of a store.

    Raises:
        StoreProblem: it cannot be used.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._connection = connect_reader(path)

    @contextmanager
    def _view(self) -> Iterator[None]:
        """Open a read transaction: the store as it is at one moment."""
        self._connection.execute("begin")
        try:
            yield
        finally:
            self._connection.execute("commit")

    def state(self) -> StoreState:
        """Return the state of the store."""
        with self._view():
            return state_of(self._connection)

    def topic(self, name: str) -> Topic | None:
        """Return a topic by its ``name``; None if there is none."""
        row = self._connection.execute(f"select {TOPIC_COLUMNS} from topic where name = ?", (name,)).fetchone()
        return None if row is None else topic_of(row)

    def topics(self, after: str = "", limit: int = 1000) -> list[Topic]:
        """Return topics in the order of their names; see ``StoreReader.topics``."""
        rows = self._connection.execute(
            f"select {TOPIC_COLUMNS} from topic where name > ? order by name limit ?", (after, limit)
        )
        return list(map(topic_of, rows))

    def page(
        self, number: int, after: int, keys: KeyRange, limit: int, size: int, until: int | None = None
    ) -> Page | None:
        """Return events of a topic above an id; see ``StoreReader.page``."""
        fetch = self._connection.execute
        with self._view():
            topic = self._topic(number)
            if topic is None:
                return None
            newest = state_of(self._connection).newest
            top = newest if until is None else min(until, newest)
            scanned = top
            if keys.keyed:
                row = fetch(
                    "select id from event where t = ? and id > ? and id <= ? order by id limit 1 offset ?",
                    (number, after, top, SCAN - 1),
                ).fetchone()
                scanned = row[0] if row else top
            where, values = _in_range(keys)
            rows = fetch(
                f"select {EVENT_COLUMNS} from event where t = ? and id > ? and id <= ?{where} order by id limit ?",
                (number, after, scanned, *values, limit + 1),
            )
            events, cut = _take(rows, limit, size)
        last = events[-1].id if cut else scanned
        return Page(topic, tuple(events), last, cut or scanned < top)

    def id_at(self, number: int, time: int) -> int:
        """Return the id of the last event of a topic that is not later than a time; see ``StoreReader.id_at``."""
        fetch = self._connection.execute
        with self._view():
            row = fetch("select id from event where ts <= ? order by ts desc limit 1", (time,)).fetchone()
            if row is None:
                return 0
            (found,) = fetch("select max(id) from event where t = ? and id <= ?", (number, row[0])).fetchone()
        return found or 0

    def last_of(self, number: int, key: str) -> Event | None:
        """Return the last event of a key; see ``StoreReader.last_of``."""
        row = self._connection.execute(
            f"select {EVENT_COLUMNS} from event where t = ? and key = ? order by id desc limit 1", (number, key)
        ).fetchone()
        return None if row is None else event_of(row)

    def snapshot(
        self, number: int, keys: KeyRange, version: int, after_key: str | None, limit: int, size: int
    ) -> SnapshotPage | None:
        """Return the last event of each key at a version; see ``StoreReader.snapshot``."""
        fetch = self._connection.execute
        where, values = _in_range(keys)
        if after_key is not None:
            where, values = where + " and key > ?", (*values, after_key)
        with self._view():
            topic = self._topic(number)
            if topic is None:
                return None
            rows = fetch(
                f"select {_EVENT} from (select key as k, max(id) as m from event where t = ? and key is not null"
                f" and id <= ?{where} group by key order by key limit ?) s join event e on e.id = s.m order by s.k",
                (number, version, *values, limit + 1),
            )
            events, cut = _take(rows, limit, size)
        next_key = events[-1].key if cut else None
        return SnapshotPage(topic, tuple(event for event in events if event.op == "put"), next_key)

    def close(self) -> None:
        """Close the connection to the store."""
        self._connection.close()

    def _topic(self, number: int) -> Topic | None:
        row = self._connection.execute(f"select {TOPIC_COLUMNS} from topic where t = ?", (number,)).fetchone()
        return None if row is None else topic_of(row)


def _in_range(keys: KeyRange) -> tuple[str, tuple[str, ...]]:
    """Return the condition of a range, and its values."""
    where, values = "", []
    if keys.keyed:
        where += " and key is not null"
    if keys.low is not None:
        where += " and key >= ?"
        values.append(keys.low)
    if keys.high is not None:
        where += " and key < ?"
        values.append(keys.high)
    return where, tuple(values)


def _take(rows: Iterator[tuple[Any, ...]], limit: int, size: int) -> tuple[list[Event], bool]:
    """Return the events of rows up to the limits, and whether there are more rows."""
    events: list[Event] = []
    for row in rows:
        if len(events) >= limit or (events and size < row[9]):
            return events, True
        events.append(event_of(row))
        size -= row[9]
    return events, False
