"""Reader of the SQLite engine: pages of history and of snapshots, each in a read transaction of its own.

No transaction outlives a page: the write-ahead log cannot be reused past the oldest reader. ``RowReader`` returns plain
rows, for a process that sends or renders them; ``SqliteReader`` makes records of them.
"""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Final

from griphub.store.event import Event
from griphub.store.interface import KeyRange, Page, SnapshotPage, StorePage, StoreState
from griphub.store.plain_pubsub import PUBSUB_COLUMNS, pubsub_of
from griphub.store.plain_records import (
    EVENT_COLUMNS,
    SUBSCRIPTION_COLUMNS,
    TOPIC_COLUMNS,
    Row,
    event_of,
    page_of,
    snapshot_page_of,
    state_of,
    store_page_of,
    subscription_of,
    topic_of,
)
from griphub.store.pubsub_subscription import PubsubSubscription
from griphub.store.schema import NEWEST, connect_reader, read_state
from griphub.store.subscription import Subscription
from griphub.store.topic import Topic

__all__ = ["SCAN", "PageScan", "RowReader", "RowScan", "SqliteReader"]

SCAN: Final = 20_000
"""Events looked at for one page: a narrow range of a long topic takes several pages, some of them empty."""

NEAR: Final = 1000
"""Newest events of a topic among which the last event of a range is looked for first."""

PIECE: Final = 256
"""Rows of a piece: few enough to stay in the processor's cache until they are rendered."""

DENSE: Final = 50_000
"""Events of a range from which on it is looked for in the topic, not in the range."""

_EVENT: Final = ", ".join(f"e.{name}" for name in EVENT_COLUMNS.split(", "))

_SNAPSHOT_JOIN: Final = "cross join event e on e.id = s.m"
"""Join of the newest events of keys with their rows, one key after the other."""

_SIZE: Final = 9
_VERSION: Final = 2
"""Places in a row with ``EVENT_COLUMNS``."""


class RowScan:
    """Rows up to the limits of a page, in pieces, for one pass.

    Args:
        rows: of events, in order, at most one more than the limit.
        limit: greatest number of rows.
        size: greatest number of bytes, but for the first row.
        version: place of the version in a row: rows are cut between versions if that leaves any; None: anywhere.
        place: place of the size in a row.
    """

    def __init__(self, rows: sqlite3.Cursor, limit: int, size: int, version: int | None, place: int) -> None:
        self._rows = rows
        self._limit = limit
        self._size = size
        self._version = version
        self._place = place
        self.cut = False
        """True after the last piece if further rows follow."""

    def __iter__(self) -> Iterator[list[Row]]:
        """Yield the pieces. Rows of one version are in one piece, since it may be the one that is cut."""
        place, version, size = self._place, self._version, self._size
        kept: list[Row] = []
        given, further = 0, None
        for row in self._rows:
            size -= row[place]
            if size < 0 and (kept or given):
                further = row
                break
            if len(kept) >= PIECE and (version is None or row[version] != kept[-1][version]):
                given += len(kept)
                yield kept
                kept = []
            kept.append(row)
        # Else its read transaction would outlive the view.
        self._rows.close()
        if given + len(kept) > self._limit:
            further = kept.pop()
        if further is not None:
            self.cut = True
            if version is not None and (given or kept[0][version] != further[version]):
                while kept and kept[-1][version] == further[version]:
                    kept.pop()
        if kept:
            yield kept


class PageScan:
    """Page of a topic, read in pieces within a ``view``, once.

    Args:
        topic: row of the topic.
        scan: events.
        last: id up to which the page is complete if the scan is not cut.
        more: true if further events follow then.
    """

    def __init__(self, topic: Row, scan: RowScan, last: int, more: bool) -> None:
        self.topic: Final = topic
        self._scan = scan
        self.last = last
        """Id up to which the page is complete; known after the last piece."""
        self.more = more
        """True if further events follow; known after the last piece."""

    def __iter__(self) -> Iterator[list[Row]]:
        """Yield the events in pieces."""
        piece: list[Row] = []
        for piece in self._scan:
            yield piece
        if self._scan.cut:
            self.last, self.more = piece[-1][0], True


class RowReader:
    """Reader of a store in a file, with plain results.

    Args:
        path: of a store.

    Raises:
        StoreProblem: it cannot be used.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._connection = connect_reader(path)

    @contextmanager
    def view(self) -> Iterator[None]:
        """Open a read transaction: the store as it is at one moment."""
        self._connection.execute("begin")
        try:
            yield
        finally:
            self._connection.execute("commit")

    def state(self) -> Row:
        """Return the state of the store."""
        with self.view():
            return read_state(self._connection)

    def topic(self, name: str) -> Row | None:
        """Return a topic by its ``name``; None if there is none."""
        row: Row | None = self._connection.execute(
            f"select {TOPIC_COLUMNS} from topic where name = ?", (name,)
        ).fetchone()
        return row

    def topics(self, after: str, limit: int) -> list[Row]:
        """Return topics in the order of their names; see ``StoreReader.topics``.

        Args:
            after: name behind which the list begins.
            limit: greatest number of topics.
        """
        return self._connection.execute(
            f"select {TOPIC_COLUMNS} from topic where name > ? order by name limit ?", (after, limit)
        ).fetchall()

    def page(
        self,
        number: int,
        after: int,
        keys: tuple[str | None, str | None, bool],
        limit: int,
        size: int,
        until: int | None,
    ) -> Row | None:
        """Return events of a topic above an id; see ``StoreReader.page``.

        Args:
            number: of the topic.
            after: id below the first event.
            keys: fields of the range of keys.
            limit: greatest number of events.
            size: bytes of content after which the page ends.
            until: greatest id; None for the newest.

        Returns:
            Topic, events, last id, whether more follow; None if the topic does not exist.
        """
        with self.view():
            scan = self.scan_in_view(number, after, keys, limit, size, until)
            return None if scan is None else (scan.topic, list(chain.from_iterable(scan)), scan.last, scan.more)

    def scan_in_view(
        self,
        number: int,
        after: int,
        keys: tuple[str | None, str | None, bool],
        limit: int,
        size: int,
        until: int | None,
    ) -> PageScan | None:
        """Begin a page, within an open ``view``, in which it is read.

        Args:
            number: of the topic.
            after: id below the first event.
            keys: fields of the range of keys.
            limit: greatest number of events.
            size: bytes of content after which the page ends.
            until: greatest id; None for the newest.

        Returns:
            The page; None if the topic does not exist.
        """
        fetch = self._connection.execute
        topic = self._topic(number)
        if topic is None:
            return None
        (newest,) = fetch(f"select {NEWEST}").fetchone()
        top = newest if until is None else min(until, newest)
        scanned = top
        where, values = _in_range(keys)
        if keys[2]:
            row = fetch(
                "select ver from event where t = ? and id > ? and id <= ? order by id limit 1 offset ?",
                (number, after, top, SCAN - 1),
            ).fetchone()
            # To the end of a version, which is never divided for this.
            scanned = min(row[0], top) if row else top
        rows = fetch(
            f"select {EVENT_COLUMNS} from event where t = ? and id > ? and id <= ?{where} order by id limit ?",
            (number, after, scanned, *values, limit + 1),
        )
        return PageScan(topic, RowScan(rows, limit, size, _VERSION, _SIZE), max(scanned, after), scanned < top)

    def events_after(self, after: int, limit: int, size: int) -> Row:
        """Return events of all topics above an id; see ``StoreReader.events_after``.

        Args:
            after: id below the first event.
            limit: greatest number of events.
            size: bytes of content after which the page ends.

        Returns:
            Rows of topic number and event, last id, whether more follow.
        """
        fetch = self._connection.execute
        with self.view():
            (newest,) = fetch(f"select {NEWEST}").fetchone()
            rows = fetch(f"select t, {EVENT_COLUMNS} from event where id > ? order by id limit ?", (after, limit + 1))
            scan = RowScan(rows, limit, size, _VERSION + 1, _SIZE + 1)
            events = list(chain.from_iterable(scan))
        return events, events[-1][1] if scan.cut else max(newest, after), scan.cut

    def event_at(self, number: int, id: int) -> Row | None:
        """Return the event of a topic with an id; None if it has none.

        Args:
            number: of the topic.
            id: of the event.
        """
        row: Row | None = self._connection.execute(
            f"select {EVENT_COLUMNS} from event where id = ? and t = ?", (id, number)
        ).fetchone()
        return row

    def id_at(self, number: int, time: int) -> int:
        """Return the id of the last event of a topic that is not later than a time; see ``StoreReader.id_at``.

        Args:
            number: of the topic.
            time: in microseconds since 1970.
        """
        fetch = self._connection.execute
        with self.view():
            row = fetch("select id from event where ts <= ? order by ts desc limit 1", (time,)).fetchone()
            if row is None:
                return 0
            (found,) = fetch("select max(id) from event where t = ? and id <= ?", (number, row[0])).fetchone()
        return found or 0

    def count_after(self, number: int, after: int, most: int) -> tuple[int, int]:
        """Return a number of events, and the id of the last; see ``StoreReader.count_after``.

        Args:
            number: of the topic.
            after: id below the first event.
            most: greatest number.
        """
        count, last = self._connection.execute(
            "select count(*), max(id) from (select id from event where t = ? and id > ? order by id limit ?)",
            (number, after, most),
        ).fetchone()
        return count, last or after

    def last_of(self, number: int, key: str) -> Row | None:
        """Return the last event of a key; see ``StoreReader.last_of``.

        Args:
            number: of the topic.
            key: the key.
        """
        row: Row | None = self._connection.execute(
            f"select {EVENT_COLUMNS} from event where t = ? and key = ? order by id desc limit 1", (number, key)
        ).fetchone()
        return row

    def last_in(self, number: int, keys: tuple[str | None, str | None, bool], until: int) -> int:
        """Return the id of the last event of a range at or below an id; see ``StoreReader.last_in``.

        Args:
            number: of the topic.
            keys: fields of the range of keys.
            until: greatest id.
        """
        with self.view():
            return self.last_in_view(number, keys, until)

    def last_in_view(self, number: int, keys: tuple[str | None, str | None, bool], until: int) -> int:
        """Return the id of the last event of a range at or below an id, within an open ``view``.

        Args:
            number: of the topic.
            keys: fields of the range of keys.
            until: greatest id.
        """
        fetch = self._connection.execute
        where, values = _in_range(keys)
        if not where:
            (found,) = fetch("select max(id) from event where t = ? and id <= ?", (number, until)).fetchone()
            return found or 0
        newest, oldest, rows = fetch(
            f"select max(case when {where[5:]} then id end), min(id), count(*) from"
            " (select id, key from event where t = ? and id <= ? order by id desc limit ?)",
            (*values, number, until, NEAR),
        ).fetchone()
        if newest is not None:
            return int(newest)
        if rows < NEAR:
            return 0
        # A narrow range is looked through whole; a wide one has an event among not many more of the topic.
        inside = f"from event where t = ? and id < ?{where}"
        (count,) = fetch(
            f"select count(*) from (select 1 {inside} and key is not null limit ?)", (number, oldest, *values, DENSE)
        ).fetchone()
        if count < DENSE:
            query = f"select max(id) {inside} and key is not null"
        else:
            query = f"select id {inside} order by id desc limit 1"
        row = fetch(query, (number, oldest, *values)).fetchone()
        return row[0] or 0 if row else 0

    def snapshot(
        self,
        number: int,
        keys: tuple[str | None, str | None, bool],
        version: int,
        after_key: str | None,
        limit: int,
        size: int,
    ) -> Row | None:
        """Return the last event of each key at a version; see ``StoreReader.snapshot``.

        Args:
            number: of the topic.
            keys: fields of the range of keys.
            version: id up to which events count.
            after_key: key behind which the page begins; None for the first page.
            limit: greatest number of events.
            size: bytes of content after which the page ends.

        Returns:
            Topic, events, next key; None if the topic does not exist.
        """
        fetch = self._connection.execute
        where, values = _in_range(keys)
        if after_key is not None:
            where, values = where + " and key > ?", (*values, after_key)
        with self.view():
            topic = self._topic(number)
            if topic is None:
                return None
            newest = f"(select key as k, max(id) as m from event where t = ? and key is not null and id <= ?{where}"
            text = f"select {_EVENT} from {newest} group by key order by key limit ?) s {_SNAPSHOT_JOIN}"
            named = (number, version, *values, limit + 1)
            scan = RowScan(fetch(text, named), limit, size, None, _SIZE)
            events = list(chain.from_iterable(scan))
            found = [event[6] for event in events]
            if found != sorted(found):
                # SQLite does not promise the order of the inner query, but to sort rows with their contents costs more.
                scan = RowScan(fetch(f"{text} order by s.k", named), limit, size, None, _SIZE)
                events = list(chain.from_iterable(scan))
        next_key = events[-1][6] if scan.cut else None
        return topic, [event for event in events if event[7] == 0], next_key

    def subscriptions(self, after: int, limit: int) -> list[Row]:
        """Return subscriptions in the order of their numbers; see ``StoreReader.subscriptions``.

        Args:
            after: number behind which the list begins.
            limit: greatest number of subscriptions.
        """
        # Behind a position above the newest id, a delivery would wait without a word for ids that were not issued.
        columns = SUBSCRIPTION_COLUMNS.replace("position", f"min(position, {NEWEST})")
        return self._connection.execute(
            f"select {columns} from subscription where n > ? order by n limit ?", (after, limit)
        ).fetchall()

    def pubsub(self, after: int, limit: int) -> list[Row]:
        """Return subscriptions of the push API in the order of their numbers; see ``StoreReader.pubsub``.

        Args:
            after: number behind which the list begins.
            limit: greatest number of subscriptions.
        """
        columns = PUBSUB_COLUMNS.replace("position", f"min(position, {NEWEST})")
        return self._connection.execute(
            f"select {columns} from pubsub where n > ? order by n limit ?", (after, limit)
        ).fetchall()

    def close(self) -> None:
        """Close the connection to the store."""
        self._connection.close()

    def _topic(self, number: int) -> Row | None:
        row: Row | None = self._connection.execute(
            f"select {TOPIC_COLUMNS} from topic where t = ?", (number,)
        ).fetchone()
        return row


class SqliteReader:
    """Reader of a store in a file. Implements ``griphub.store.interface.StoreReader``.

    Args:
        path: of a store.

    Raises:
        StoreProblem: it cannot be used.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._rows = RowReader(path)

    def state(self) -> StoreState:
        """Return the state of the store."""
        return state_of(self._rows.state())

    def topic(self, name: str) -> Topic | None:
        """Return a topic by its ``name``; None if there is none."""
        row = self._rows.topic(name)
        return None if row is None else topic_of(row)

    def topics(self, after: str = "", limit: int = 1000) -> list[Topic]:
        """Return topics in the order of their names; see ``StoreReader.topics``."""
        return list(map(topic_of, self._rows.topics(after, limit)))

    def page(
        self, number: int, after: int, keys: KeyRange, limit: int, size: int, until: int | None = None
    ) -> Page | None:
        """Return events of a topic above an id; see ``StoreReader.page``."""
        plain = self._rows.page(number, after, (keys.low, keys.high, keys.keyed), limit, size, until)
        return None if plain is None else page_of(plain)

    def events_after(self, after: int, limit: int, size: int) -> StorePage:
        """Return events of all topics above an id; see ``StoreReader.events_after``."""
        return store_page_of(self._rows.events_after(after, limit, size))

    def event_at(self, number: int, id: int) -> Event | None:
        """Return the event of a topic with an id; see ``StoreReader.event_at``."""
        row = self._rows.event_at(number, id)
        return None if row is None else event_of(row)

    def id_at(self, number: int, time: int) -> int:
        """Return the id of the last event of a topic that is not later than a time; see ``StoreReader.id_at``."""
        return self._rows.id_at(number, time)

    def count_after(self, number: int, after: int, most: int) -> tuple[int, int]:
        """Return a number of events of a topic above an id; see ``StoreReader.count_after``."""
        return self._rows.count_after(number, after, most)

    def last_of(self, number: int, key: str) -> Event | None:
        """Return the last event of a key; see ``StoreReader.last_of``."""
        row = self._rows.last_of(number, key)
        return None if row is None else event_of(row)

    def last_in(self, number: int, keys: KeyRange, until: int) -> int:
        """Return the id of the last event of a range at or below an id; see ``StoreReader.last_in``."""
        return self._rows.last_in(number, (keys.low, keys.high, keys.keyed), until)

    def snapshot(
        self, number: int, keys: KeyRange, version: int, after_key: str | None, limit: int, size: int
    ) -> SnapshotPage | None:
        """Return the last event of each key at a version; see ``StoreReader.snapshot``."""
        plain = self._rows.snapshot(number, (keys.low, keys.high, keys.keyed), version, after_key, limit, size)
        return None if plain is None else snapshot_page_of(plain)

    def subscriptions(self, after: int = 0, limit: int = 1000) -> list[Subscription]:
        """Return subscriptions in the order of their numbers; see ``StoreReader.subscriptions``."""
        return list(map(subscription_of, self._rows.subscriptions(after, limit)))

    def pubsub(self, after: int = 0, limit: int = 1000) -> list[PubsubSubscription]:
        """Return subscriptions of the push API in the order of their numbers; see ``StoreReader.pubsub``."""
        return list(map(pubsub_of, self._rows.pubsub(after, limit)))

    def close(self) -> None:
        """Close the connection to the store."""
        self._rows.close()


def _in_range(keys: tuple[str | None, str | None, bool]) -> tuple[str, tuple[str, ...]]:
    """Return the condition of a range, and its values."""
    low, high, keyed = keys
    where, values = "", []
    if keyed:
        where += " and key is not null"
    if low is not None:
        where += " and key >= ?"
        values.append(low)
    if high is not None:
        where += " and key < ?"
        values.append(high)
    return where, tuple(values)
