"""Writer of the SQLite engine: one connection, many publications in each commit.

Topics and the counters of ids and times are kept in memory, as of the last commit: there is no other writer. After a
failed commit they are loaded again.
"""

from __future__ import annotations

import pathlib
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import orjson

from griphub.store.ballast import Ballast
from griphub.store.cursor import EPOCH_SKIP
from griphub.store.errors import StoreBroken, StoreError, StoreFull
from griphub.store.event import Draft
from griphub.store.file_lock import FileLock
from griphub.store.interface import StoreState
from griphub.store.publication import Condition, Idempotency, Outcome, Publication, Published, Refused, Repeated
from griphub.store.retention import SLICE, floor_of
from griphub.store.schema import Sync, connect_writer
from griphub.store.sqlite_rows import OPERATIONS, TOPIC_COLUMNS, settings_json, state_of, topic_of
from griphub.store.topic import Topic, TopicSettings

__all__ = ["NAMES_MAX", "SqliteWriter"]

NAMES_MAX: Final = 1_000_000
"""Names of requests that are remembered, of all owners; a further one is refused."""

ROWS: Final = 64
"""Rows of one insert statement: fewer calls of the library for a group of publications."""

_COLUMNS: Final = "id, t, prev, ver, ts, op, key, ctype, attrs, data, size"

_Row = tuple[int, int, int, int, int, int, str | None, str, str | None, bytes, int]


def now_us() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


class SqliteWriter:
    """Writer of a store in a file. Implements ``griphub.store.interface.StoreWriter``.

    Args:
        path: of the file, made if there is none.
        sync: durability of a commit.
        ballast: bytes kept for the retention of a full disk; 0 for none.
        names_max: greatest number of remembered names of requests.
        clock: returns the time in microseconds since 1970; it may go back.

    Raises:
        StoreProblem: the file cannot be used; ``StoreInUse``: another writer has it open.
    """

    def __init__(
        self,
        path: pathlib.Path,
        sync: Sync = "full",
        ballast: int = 0,
        names_max: int = NAMES_MAX,
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._lock = FileLock(path)
        self._names_max = names_max
        self._clock = clock
        try:
            self._connection = connect_writer(path, sync)
            self._ballast = Ballast(path, ballast)
            self._ballast.take()
            self._compacted: dict[int, int] = {}
            """Ids up to which topics that are compacted were looked at, by topic."""
            if not self._connection.execute("select count(*) from epoch").fetchone()[0]:
                self._begin_store()
            self._load()
        except BaseException:
            self._lock.release()
            raise

    # --- the store as a whole

    def _begin_store(self) -> None:
        with_values = "insert into meta(k, v) values ('next_id', 1), ('last_ts', 0), ('next_topic', 1)"
        self._change(
            (with_values, ()), ("insert into epoch(epoch, first, last) values (?, 1, null)", (secrets.token_hex(4),))
        )

    def _load(self) -> None:
        """Load topics and counters, as of the last commit."""
        connection = self._connection
        meta = dict(connection.execute("select k, v from meta"))
        self._next_id, self._last_ts, self._next_topic = meta["next_id"], meta["last_ts"], meta["next_topic"]
        (self._names,) = connection.execute("select count(*) from idem").fetchone()
        rows = connection.execute(f"select {TOPIC_COLUMNS} from topic")
        self._topics: dict[str, Topic] = {topic.name: topic for topic in map(topic_of, rows)}

    def state(self) -> StoreState:
        """Return the state of the store."""
        return state_of(self._connection)

    def begin_epoch(self) -> str:
        """Begin a new epoch, after a restore or a copy: cursors above the newest event are gone.

        Returns:
            Its name.
        """
        newest, epoch = self._next_id - 1, secrets.token_hex(4)
        following = self._next_id + EPOCH_SKIP
        self._change(
            ("update epoch set last = ? where last is null", (newest,)),
            ("insert into epoch(epoch, first, last) values (?, ?, null)", (epoch, following)),
            ("update meta set v = ? where k = 'next_id'", (following,)),
        )
        self._next_id = following
        return epoch

    def vacuum(self) -> None:
        """Release the space of deleted events to the file system; blocks for as long as a copy takes.

        Raises:
            StoreFull: the disk has no room for a copy.
            StoreBroken: the copy failed.
        """
        try:
            self._connection.execute("vacuum")
            self._connection.execute("pragma wal_checkpoint(truncate)")
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Close the store; the ballast stays."""
        self._connection.close()
        self._lock.release()

    # --- publishing

    def append(self, publications: Sequence[Publication]) -> list[Outcome]:
        """Store publications in one commit; see ``StoreWriter.append``."""
        if not self._ballast.present and not self._ballast.take():
            raise StoreFull("the disk is full: events are refused until retention, or the operator, has made space")
        group = _Group(self._next_id, self._last_ts, self._clock())
        connection = self._connection
        try:
            connection.execute("begin immediate")
            outcomes = [self._append(group, publication) for publication in publications]
            if group.rows or group.names:
                self._insert(group)
            connection.execute("commit")
        except sqlite3.Error as error:
            raise self._failed(error) from error
        except BaseException:
            self._failed(None)
            raise
        self._next_id, self._last_ts = group.next_id, group.last_ts
        self._topics.update(group.topics)
        self._names += len(group.names)
        return outcomes

    def _append(self, group: _Group, publication: Publication) -> Outcome:
        topic = group.topics.get(publication.topic) or self._topics.get(publication.topic)
        if topic is None:
            return Refused("unknown")
        name = publication.idempotency
        if name is not None and (earlier := self._earlier(group, name)) is not None:
            return earlier
        if publication.condition is not None:
            last = self._last(group, topic, publication.condition)
            if last != publication.condition.last:
                return Refused("condition", last)
        if name is not None and self._names + len(group.names) >= self._names_max:
            return Refused("names")
        published, topic = group.add(topic, publication.drafts)
        group.topics[topic.name] = topic
        if name is not None:
            group.names[name.scope, name.key] = (name, published)
        return published

    def _earlier(self, group: _Group, name: Idempotency) -> Outcome | None:
        """Return the outcome of an earlier request of the same name."""
        pending = group.names.get((name.scope, name.key))
        if pending is not None:
            digest, published = pending[0].digest, pending[1]
        else:
            row = self._connection.execute(
                "select digest, t, prev, ids, times from idem where scope = ? and k = ? and expires > ?",
                (name.scope, name.key, group.now),
            ).fetchone()
            if row is None:
                return None
            digest = row[0]
            published = Published(row[1], row[2], tuple(orjson.loads(row[3])), tuple(orjson.loads(row[4])))
        return Repeated(published) if digest == name.digest else Refused("another")

    def _last(self, group: _Group, topic: Topic, condition: Condition) -> int:
        """Return the id of the last event that a condition is about; 0 for none."""
        if condition.key is None:
            return topic.last
        pending = group.keys.get((topic.number, condition.key))
        if pending is not None:
            return pending
        row = self._connection.execute(
            "select max(id) from event where t = ? and key = ?", (topic.number, condition.key)
        ).fetchone()
        return row[0] or 0

    def _insert(self, group: _Group) -> None:
        execute, rows = self._connection.execute, group.rows
        for start in range(0, len(rows), ROWS):
            part = rows[start : start + ROWS]
            marks = ",".join(["(?,?,?,?,?,?,?,?,?,?,?)"] * len(part))
            execute(f"insert into event({_COLUMNS}) values {marks}", [value for row in part for value in row])
        for name, published in group.names.values():
            execute(
                "insert or replace into idem(scope, k, digest, t, prev, ids, times, expires) values (?,?,?,?,?,?,?,?)",
                (
                    *(name.scope, name.key, name.digest, published.topic, published.first_prev),
                    *(orjson.dumps(published.ids).decode(), orjson.dumps(published.times).decode()),
                    group.now + round(name.expires * 1_000_000),
                ),
            )
        for topic in group.topics.values():
            execute(
                "update topic set last = ?, count = ?, bytes = ? where t = ?",
                (topic.last, topic.count, topic.bytes, topic.number),
            )
        execute("update meta set v = ? where k = 'next_id'", (group.next_id,))
        execute("update meta set v = ? where k = 'last_ts'", (group.last_ts,))

    # --- topics

    def put_topic(self, name: str, settings: TopicSettings) -> tuple[Topic, bool]:
        """Make a topic, or change its settings; see ``StoreWriter.put_topic``."""
        text = settings_json(settings)
        known = self._topics.get(name)
        if known is not None:
            topic = replace(known, settings=settings)
            self._change(("update topic set settings = ? where t = ?", (text, topic.number)))
        else:
            birth = self._next_id - 1
            topic = Topic(self._next_topic, name, birth, birth, 0, 0, 0, 0, 0, settings)
            self._change(
                (
                    f"insert into topic({TOPIC_COLUMNS}) values (?,?,?,?,?,?,?,?,?,?)",
                    (topic.number, name, birth, birth, 0, 0, 0, 0, 0, text),
                ),
                ("update meta set v = ? where k = 'next_topic'", (self._next_topic + 1,)),
            )
            self._next_topic += 1
        self._topics[name] = topic
        return topic, known is None

    def delete_topic(self, name: str) -> Topic | None:
        """Delete a topic; its events are deleted by ``trim``, a slice at a time."""
        topic = self._topics.get(name)
        if topic is not None:
            self._change(
                ("delete from topic where t = ?", (topic.number,)),
                ("insert into gone(t) values (?)", (topic.number,)),
                ("delete from idem where t = ?", (topic.number,)),
            )
            del self._topics[name]
            self._compacted.pop(topic.number, None)
            (self._names,) = self._connection.execute("select count(*) from idem").fetchone()
        return topic

    def raise_access(self, name: str) -> Topic | None:
        """Raise the access number of a topic; see ``StoreWriter.raise_access``."""
        topic = self._topics.get(name)
        if topic is None:
            return None
        topic = self._topics[name] = replace(topic, access=topic.access + 1)
        self._change(("update topic set access = ? where t = ?", (topic.access, topic.number)))
        return topic

    # --- retention

    def trim(self, number: int, keep: int | None = None) -> bool:
        """Raise the floor of a topic, then delete a slice below it; see ``StoreWriter.trim``."""
        topic = next((each for each in self._topics.values() if each.number == number), None)
        if topic is None:
            return self._trim_gone(number)
        topic = self._raise_floor(topic, keep)
        more = self._compact(topic) if topic.settings.retention.compact else self._delete_slice(topic)
        if not more:
            self._ballast.take()
        return more

    def make_room(self) -> None:
        """Release the ballast: the disk is full, and retention has to delete."""
        self._ballast.drop()

    def forget_names(self) -> bool:
        """Delete a slice of the names of requests that have expired.

        Returns:
            True if more have.
        """
        now = self._clock()
        gone = self._change(
            (
                "delete from idem where (scope, k) in (select scope, k from idem where expires <= ? limit ?)",
                (now, SLICE),
            )
        )
        self._names -= gone
        return gone == SLICE

    def _raise_floor(self, topic: Topic, keep: int | None) -> Topic:
        fetch, number, compact = self._connection.execute, topic.number, topic.settings.retention.compact

        def before_time(moment: int) -> int:
            row = fetch("select id from event where ts <= ? order by ts desc limit 1", (moment,)).fetchone()
            if row is None:
                return 0
            newest = fetch("select max(id) from event where t = ? and id <= ?", (number, row[0])).fetchone()
            return newest[0] or 0

        def beyond_count(most: int) -> int:
            if compact:
                text, offset = "select id from event where t = ? and id > ? order by id desc limit 1 offset ?", most
            else:
                text = "select id from event where t = ? and id > ? order by id limit 1 offset ?"
                offset = topic.count - most - 1
            row = fetch(text, (number, topic.floor if compact else 0, offset)).fetchone()
            return row[0] if row else 0

        def beyond_bytes(most: int) -> int:
            order = "desc" if compact else "asc"
            left = most if compact else topic.bytes - most
            rows = fetch(
                f"select id, size from event where t = ? and id > ? order by id {order}",
                (number, topic.floor if compact else 0),
            )
            for id, size in rows:
                left -= size
                if left < 0 if compact else left <= 0:
                    return int(id)
            return 0

        floor = floor_of(topic, self._clock(), before_time, beyond_count, beyond_bytes, keep)
        if floor <= topic.floor:
            return topic
        (moment,) = fetch("select max(ts) from event where id <= ? and t = ?", (floor, number)).fetchone()
        raised = replace(topic, floor=floor, floor_time=moment or topic.floor_time)
        # Before anything is deleted: a reader sees the events, or that they are below the floor.
        self._change(("update topic set floor = ?, floor_time = ? where t = ?", (floor, raised.floor_time, number)))
        self._topics[topic.name] = raised
        return raised

    def _delete_slice(self, topic: Topic) -> bool:
        rows = self._connection.execute(
            "select id, size from event where t = ? and id <= ? order by id limit ?", (topic.number, topic.floor, SLICE)
        ).fetchall()
        if rows:
            self._delete(topic, [id for id, _ in rows], sum(size for _, size in rows))
        return len(rows) == SLICE

    def _compact(self, topic: Topic) -> bool:
        """Delete events below the floor that are superseded, deletions, and events without key, a slice at a time."""
        fetch, number = self._connection.execute, topic.number
        start = self._compacted.get(number, 0)
        passed = fetch(
            "select id, key, op, size from event where t = ? and id > ? and id <= ? order by id limit ?",
            (number, start, topic.floor, SLICE),
        ).fetchall()
        doomed: dict[int, int] = {}
        newest: dict[str, int] = {}
        for id, key, op, size in passed:
            if key is None or OPERATIONS[op] == "delete":
                doomed[id] = size
            if key is not None:
                newest[key] = id
        for key, id in newest.items():
            doomed.update(fetch("select id, size from event where t = ? and key = ? and id < ?", (number, key, id)))
        if doomed:
            self._delete(topic, list(doomed), sum(doomed.values()))
        if passed:
            self._compacted[number] = passed[-1][0]
        return len(passed) == SLICE

    def _delete(self, topic: Topic, ids: list[int], size: int) -> None:
        smaller = replace(topic, count=topic.count - len(ids), bytes=topic.bytes - size)
        marks = ",".join("?" * len(ids))
        self._change(
            (f"delete from event where id in ({marks})", ids),
            ("update topic set count = ?, bytes = ? where t = ?", (smaller.count, smaller.bytes, topic.number)),
        )
        self._topics[topic.name] = smaller

    def _trim_gone(self, number: int) -> bool:
        deleted = self._change(
            ("delete from event where id in (select id from event where t = ? order by id limit ?)", (number, SLICE))
        )
        if deleted < SLICE:
            self._change(("delete from gone where t = ?", (number,)))
        return deleted == SLICE

    def gone_topics(self) -> list[int]:
        """Return the numbers of deleted topics that still have events."""
        return [number for (number,) in self._connection.execute("select t from gone order by t")]

    # --- transactions

    def _change(self, *statements: tuple[str, Sequence[object]]) -> int:
        """Carry out statements in a transaction; return the number of rows that the first one changed."""
        connection = self._connection
        try:
            connection.execute("begin immediate")
            counts = [connection.execute(text, values).rowcount for text, values in statements]
            connection.execute("commit")
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return counts[0]

    def _failed(self, error: sqlite3.Error | None) -> StoreError:
        """Undo the transaction, and return the exception to raise."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            self._load()
        except sqlite3.Error as further:
            return StoreBroken(f"the store cannot be read after a failure: {further}")
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL":
            return StoreFull(f"the disk is full: {error}")
        return StoreBroken(f"{name or type(error).__name__}: {error}")


class _Group:
    """Publications of one commit: rows to insert, and the state after them."""

    def __init__(self, next_id: int, last_ts: int, now: int) -> None:
        self.next_id = next_id
        self.last_ts = last_ts
        self.now = now
        self.rows: list[_Row] = []
        self.topics: dict[str, Topic] = {}
        self.keys: dict[tuple[int, str], int] = {}
        """Last event of each key in this commit, by topic and key."""
        self.names: dict[tuple[str, str], tuple[Idempotency, Published]] = {}

    def add(self, topic: Topic, drafts: Sequence[Draft]) -> tuple[Published, Topic]:
        """Add the events of a publication; return its outcome, and the topic after it."""
        first, number, previous = self.next_id, topic.number, topic.last
        version = first + len(drafts) - 1
        times, total = [], 0
        for id, draft in enumerate(drafts, first):
            # The clock may have gone back, and events of one request have a time each.
            self.last_ts = max(self.now, self.last_ts + 1)
            times.append(self.last_ts)
            attributes = orjson.dumps(dict(draft.attributes)).decode() if draft.attributes else None
            size = len(draft.data) + len(draft.content_type) + len(attributes or "")
            if draft.key is not None:
                size += len(draft.key.encode())
                self.keys[number, draft.key] = id
            self.rows.append(
                (
                    *(id, number, previous, version, self.last_ts, OPERATIONS.index(draft.op), draft.key),
                    *(draft.content_type, attributes, draft.data, size),
                )
            )
            previous, total = id, total + size
        self.next_id = version + 1
        changed = replace(topic, last=version, count=topic.count + len(drafts), bytes=topic.bytes + total)
        return Published(number, topic.last, tuple(range(first, version + 1)), tuple(times)), changed
