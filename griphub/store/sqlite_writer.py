"""Writer of the SQLite engine: one connection, many publications in each commit.

Topics and the counters of ids and times are kept in memory, as of the last commit: there is no other writer. After a
failed commit they are loaded again.
"""

from __future__ import annotations

import pathlib
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from griphub.store.ballast import Ballast
from griphub.store.commit_group import CommitGroup, Tail
from griphub.store.cursor import EPOCH_SKIP
from griphub.store.errors import StoreBroken, StoreError, StoreFull
from griphub.store.file_lock import FileLock
from griphub.store.interface import StoreState
from griphub.store.plain_records import (
    TOPIC_COLUMNS,
    PlainName,
    PlainOutcome,
    PlainPublication,
    outcome_of,
    plain_publication,
    plain_topic,
    settings_json,
    state_of,
    topic_of,
)
from griphub.store.publication import Outcome, Publication
from griphub.store.retention import SLICE, SLICE_TIME
from griphub.store.schema import COUNTERS, Sync, connect_writer, read_state
from griphub.store.sqlite_pubsub import SqlitePubsub
from griphub.store.sqlite_stamps import SqliteStamps
from griphub.store.sqlite_subscriptions import SqliteSubscriptions
from griphub.store.sqlite_sweep import Sweep
from griphub.store.topic import Topic, TopicSettings

__all__ = ["NAMES_MAX", "SqliteWriter"]

T = TypeVar("T")

NAMES_MAX: Final = 1_000_000
"""Names of requests that are remembered, of all owners; a further one is refused."""

ROWS: Final = 64
"""Rows of one insert statement: fewer calls of the library for a group of publications."""

STEP: Final = 50
"""Rows of one delete statement, after which a slice may end."""

VACUUM_PAGES: Final = 200
"""Pages that one slice returns to the file system."""

SPARE_PAGES: Final = 1000
"""Free pages that stay in the file for the next events."""

_FIELDS: Final = 11

_INSERTS: Final = [
    "insert into event(id, t, prev, ver, ts, op, key, ctype, attrs, data, size) values "
    + ",".join(["(?,?,?,?,?,?,?,?,?,?,?)"] * count)
    for count in range(ROWS + 1)
]
"""Insert statements by number of rows: texts made once are found in the cache of prepared statements."""

_UNKNOWN: Final[PlainOutcome] = (2, "unknown", 0)
_ANOTHER: Final[PlainOutcome] = (2, "another", 0)
_NAMES: Final[PlainOutcome] = (2, "names", 0)


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
        lock_wait: seconds to wait for another writer's end.

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
        lock_wait: float = 0.0,
    ) -> None:
        self._lock = FileLock(path, lock_wait)
        self._names_max = names_max
        self._clock = clock
        try:
            self._connection = connect_writer(path, sync)
            self._ballast = Ballast(path, ballast)
            self._ballast.take()
            self.subscriptions: Final = SqliteSubscriptions(
                self._connection, self._transact, self._require_space, lambda number: number in self._numbers
            )
            self.pubsub: Final = SqlitePubsub(
                self._connection, self._transact, self._require_space, lambda number: number in self._numbers
            )
            self.stamps: Final = SqliteStamps(self._connection, self._transact)
            if not self._connection.execute("select count(*) from epoch").fetchone()[0]:
                self._begin_store()
            self._load()
        except BaseException:
            self._lock.release()
            raise

    # --- the store as a whole

    def _begin_store(self) -> None:
        self._change(
            ("insert into meta(k, v) values ('next_id', 1), ('last_ts', 0), ('next_topic', 1)", ()),
            ("insert into secret(v) values (?)", (secrets.token_bytes(32),)),
            ("insert into epoch(epoch, first, last) values (?, 1, null)", (secrets.token_hex(4),)),
        )

    def _load(self) -> None:
        """Load topics and counters, as of the last commit."""
        self.subscriptions.load()
        self.pubsub.load()
        connection = self._connection
        meta = dict(connection.execute("select k, v from meta"))
        self._next_id, self._last_ts, self._next_topic = meta["next_id"], meta["last_ts"], meta["next_topic"]
        self._names = Counter(dict(connection.execute("select owner, count(*) from idem group by owner")))
        """Remembered names of requests, by owner."""
        self._names_total = self._names.total()
        self._sweep = Sweep(connection)
        self._topics: dict[str, Topic] = {}
        self._numbers: dict[int, Topic] = {}
        self._owned: Counter[str] = Counter()
        """Topics by owner."""
        for row in connection.execute(f"select {TOPIC_COLUMNS} from topic"):
            self._set(topic_of(row))

    def _set(self, topic: Topic) -> None:
        if topic.number not in self._numbers:
            self._owned[topic.owner] += 1
        self._topics[topic.name] = self._numbers[topic.number] = topic

    def state(self) -> StoreState:
        """Return the state of the store."""
        return state_of(read_state(self._connection))

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
            # Links name topics by their numbers: those that were issued after the copy are never used again.
            (COUNTERS, (following, self._next_topic + EPOCH_SKIP)),
        )
        self._next_id, self._next_topic = following, self._next_topic + EPOCH_SKIP
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

    def release_pages(self) -> bool:
        """Release some free pages to the file system; blocks for a moment only.

        Returns:
            True if more can be released.

        Raises:
            StoreFull: the disk is full.
            StoreBroken: a write failed.
        """
        try:
            (free,) = self._connection.execute("pragma freelist_count").fetchone()
            if free <= SPARE_PAGES:
                return False
            pages = min(VACUUM_PAGES, free - SPARE_PAGES)
            # One step of the statement releases one page, and ``execute`` makes only one.
            self._connection.executescript(f"pragma incremental_vacuum({pages})")
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return bool(free - pages > SPARE_PAGES)

    def take_ballast(self) -> bool:
        """Return whether the space for the retention of a full disk is occupied, after an attempt to occupy it."""
        return self._ballast.take()

    def close(self) -> None:
        """Close the store; the ballast stays."""
        self._connection.close()
        self._lock.release()

    # --- publishing

    def append(self, publications: Sequence[Publication]) -> list[Outcome]:
        """Store publications in one commit; see ``StoreWriter.append``."""
        return list(map(outcome_of, self.append_plain(list(map(plain_publication, publications)))))

    def append_plain(self, publications: Sequence[PlainPublication]) -> list[PlainOutcome]:
        """Store publications in one commit, in order; each is atomic, and fails alone.

        Args:
            publications: in their plain form.

        Returns:
            The outcome of each, in order and in its plain form.

        Raises:
            StoreFull: there is no space; none is stored.
            StoreBroken: a write failed; none may be answered before the store was opened again.
        """
        self._require_space()
        group = CommitGroup(self._next_id, self._last_ts, self._clock())

        def work() -> list[PlainOutcome]:
            outcomes = [self._append(group, publication) for publication in publications]
            if group.values:
                self._insert(group)
            return outcomes

        outcomes = self._transact(work)
        self._next_id, self._last_ts = group.next_id, group.last_ts
        for name, tail in group.tails.items():
            if tail.count:
                topic = self._topics[name]
                self._topics[name] = self._numbers[topic.number] = replace(
                    topic, last=tail.last, count=topic.count + tail.count, bytes=topic.bytes + tail.size
                )
        self._names.update(group.owners)
        self._names_total += group.named
        return outcomes

    def _require_space(self) -> None:
        if not self._ballast.present and not self._ballast.take():
            raise StoreFull("the disk is full: events are refused until retention, or the operator, has made space")

    def _append(self, group: CommitGroup, publication: PlainPublication) -> PlainOutcome:
        topic_name, drafts, condition, name, progress = publication
        tail = group.tails.get(topic_name)
        if tail is None:
            topic = self._topics.get(topic_name)
            if topic is None:
                return _UNKNOWN
            tail = group.tails[topic_name] = Tail(topic.number, topic.last)
        if condition is None and name is None:
            # Most publications.
            if progress is not None:
                group.progress.append(progress)
            return group.add(tail, drafts)
        if name is not None and (earlier := self._earlier(group, tail.number, name)) is not None:
            return earlier
        if condition is not None:
            last = self._last(group, tail, condition[1])
            if last != condition[0]:
                return (2, "condition", last)
        if name is not None and not self._name_fits(group, name):
            return _NAMES
        outcome = group.add(tail, drafts)
        if progress is not None:
            group.progress.append(progress)
        if name is not None:
            group.names[name[0], name[1]] = (name, outcome)
            group.owners[name[4]] += 1
            group.named += 1
        return outcome

    def _earlier(self, group: CommitGroup, number: int, name: PlainName) -> PlainOutcome | None:
        """Return the outcome of an earlier request of the same name and topic; None if there was none."""
        pending = group.names.get((name[0], name[1]))
        if pending is not None:
            (_, _, digest, *_), outcome = pending
        else:
            row = self._connection.execute(
                "select digest, expires, owner, t, prev, first, ts, count from idem where scope = ? and k = ?", name[:2]
            ).fetchone()
            if row is None:
                return None
            digest, expires, owner, *published = row
            if expires <= group.now or published[0] != number:
                # Expired, or of a deleted topic of that name: the row is replaced.
                group.owners[owner] -= 1
                group.named -= 1
                self._connection.execute("delete from idem where scope = ? and k = ?", name[:2])
                return None
            outcome = (0, *published)
        return (1, *outcome[1:]) if digest == name[2] else _ANOTHER

    def _name_fits(self, group: CommitGroup, name: PlainName) -> bool:
        owner, owner_max = name[4:]
        if self._names_total + group.named >= self._names_max:
            return False
        return owner_max is None or self._names[owner] + group.owners[owner] < owner_max

    def _last(self, group: CommitGroup, tail: Tail, key: str | None) -> int:
        """Return the id of the last event of a topic or of a key; 0 for none."""
        if key is None:
            return tail.last
        pending = group.keys.get((tail.number, key))
        if pending is not None:
            return pending
        row = self._connection.execute(
            "select max(id) from event where t = ? and key = ?", (tail.number, key)
        ).fetchone()
        return row[0] or 0

    def _insert(self, group: CommitGroup) -> None:
        execute, values = self._connection.execute, group.values
        whole = len(values) - len(values) % (ROWS * _FIELDS)
        for start in range(0, whole, ROWS * _FIELDS):
            execute(_INSERTS[ROWS], values[start : start + ROWS * _FIELDS])
        if whole < len(values):
            rest = values[whole:] if whole else values
            execute(_INSERTS[len(rest) // _FIELDS], rest)
        for (scope, key, digest, expires, owner, _), outcome in group.names.values():
            execute(
                "insert into idem(scope, k, digest, t, prev, first, ts, count, expires, owner)"
                " values (?,?,?,?,?,?,?,?,?,?)",
                (scope, key, digest, *outcome[1:], group.now + round(expires * 1_000_000), owner),
            )
        for progress in group.progress:
            self.pubsub.save_plain(progress)
        for tail in group.tails.values():
            if tail.count:
                execute(
                    "update topic set last = ?, count = count + ?, bytes = bytes + ? where t = ?",
                    (tail.last, tail.count, tail.size, tail.number),
                )
        execute(
            "update meta set v = case k when 'next_id' then ? else ? end where k in ('next_id', 'last_ts')",
            (group.next_id, group.last_ts),
        )

    # --- topics

    def put_topic(
        self, name: str, settings: TopicSettings, owner: str = "", owner_max: int | None = None
    ) -> tuple[Topic, bool] | None:
        """Make a topic, or change its settings; see ``StoreWriter.put_topic``."""
        known = self._topics.get(name)
        if known is not None and known.settings.store != settings.store:
            return known, False
        if known is not None:
            topic = replace(known, settings=settings)
            self._change(("update topic set settings = ? where t = ?", (settings_json(settings), topic.number)))
            self._set(topic)
            return topic, False
        if owner_max is not None and self._owned[owner] >= owner_max:
            return None
        # Another topic may have had the name: its last cursor must not be a place of this one.
        birth = self._next_id - (self._next_topic == len(self._numbers) + 1)
        topic = Topic(self._next_topic, name, birth, birth, 0, 0, 0, 0, 0, settings, owner)
        self._change(
            (f"insert into topic({TOPIC_COLUMNS}) values (?,?,?,?,?,?,?,?,?,?,?)", plain_topic(topic)),
            (COUNTERS, (birth + 1, self._next_topic + 1)),
        )
        self._next_topic, self._next_id = self._next_topic + 1, birth + 1
        self._set(topic)
        return topic, True

    def delete_topic(self, name: str) -> Topic | None:
        """Delete a topic and its subscriptions; events are deleted by ``delete_slice``, names as they expire.

        Subscriptions of the push API stay, without a topic.
        """
        topic = self._topics.get(name)
        if topic is not None:
            number = topic.number

            def work() -> None:
                self._connection.execute("delete from topic where t = ?", (number,))
                self._connection.execute("delete from subscription where t = ?", (number,))
                self._connection.execute("insert into gone(t) values (?)", (number,))
                self.pubsub.delete_topic(number)

            self._transact(work)
            del self._topics[name], self._numbers[number]
            self._owned[topic.owner] -= 1
            self._sweep.forget(number)
            self.subscriptions.topic_deleted(number)
            self.pubsub.topic_deleted(number)
        return topic

    def raise_access(self, name: str) -> Topic | None:
        """Raise the access number of a topic; see ``StoreWriter.raise_access``."""
        topic = self._topics.get(name)
        if topic is None:
            return None
        topic = replace(topic, access=topic.access + 1)
        self._change(("update topic set access = ? where t = ?", (topic.access, topic.number)))
        self._set(topic)
        return topic

    # --- retention

    def wanted_floor(self, number: int) -> int:
        """Return the floor that the retention of a topic demands; see ``StoreWriter.wanted_floor``."""
        topic = self._numbers.get(number)
        if topic is None:
            return 0
        try:
            return self._sweep.wanted(topic, self._clock())
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def raise_floor(self, number: int, floor: int) -> Topic | None:
        """Raise the floor of a topic; see ``StoreWriter.raise_floor``."""
        topic = self._numbers.get(number)
        if topic is None or floor <= topic.floor:
            return topic
        floor = min(floor, self._next_id - 1)
        try:
            self._sweep.raised(topic, floor)
            row = self._connection.execute(
                "select ts from event where t = ? and id <= ? order by id desc limit 1", (number, floor)
            ).fetchone()
        except sqlite3.Error as error:
            raise self._failed(error) from error
        topic = replace(topic, floor=floor, floor_time=row[0] if row else topic.floor_time)
        # Before anything is deleted: a reader sees the events, or that they are below the floor.
        self._change(("update topic set floor = ?, floor_time = ? where t = ?", (floor, topic.floor_time, number)))
        self._set(topic)
        return topic

    def delete_slice(self, number: int) -> bool:
        """Delete some events that are not retained; see ``StoreWriter.delete_slice``."""
        topic = self._numbers.get(number)
        more = self._delete_gone(number) if topic is None else self._delete(topic)
        if not more:
            self._ballast.take()
        return more

    def _delete(self, topic: Topic) -> bool:
        execute, end = self._connection.execute, time.monotonic() + SLICE_TIME
        try:
            doomed = self._sweep.doomed(topic)
            done, size = 0, 0
            if doomed.rows:
                execute("begin immediate")
                while done < len(doomed.rows) and (not done or time.monotonic() < end):
                    part = doomed.rows[done : done + STEP]
                    marks = ",".join("?" * len(part))
                    execute(f"delete from event where id in ({marks})", [id for id, _ in part])
                    done += len(part)
                    size += sum(size for _, size in part)
                values = (topic.count - done, topic.bytes - size, topic.number)
                execute("update topic set count = ?, bytes = ? where t = ?", values)
                execute("commit")
        except sqlite3.Error as error:
            raise self._failed(error) from error
        self._set(replace(topic, count=topic.count - done, bytes=topic.bytes - size))
        if done < len(doomed.rows):
            return True
        self._sweep.deleted(topic, doomed)
        return doomed.more

    def _delete_gone(self, number: int) -> bool:
        end, done, deleted = time.monotonic() + SLICE_TIME, 0, STEP
        while deleted == STEP:
            if done >= SLICE or (done and time.monotonic() >= end):
                return True
            deleted = self._change(
                ("delete from event where id in (select id from event where t = ? order by id limit ?)", (number, STEP))
            )
            done += deleted
        self._change(("delete from gone where t = ?", (number,)))
        return False

    def gone_topics(self) -> list[int]:
        """Return the numbers of deleted topics that still have events."""
        return [number for (number,) in self._connection.execute("select t from gone order by t")]

    def make_room(self) -> None:
        """Release the ballast: the disk is full, and retention has to delete."""
        self._ballast.drop()

    def forget_names(self) -> bool:
        """Delete a slice of the names of requests that have expired.

        Returns:
            True if more have.
        """
        expired = (
            "delete from idem where (scope, k) in (select scope, k from idem where expires <= ? limit ?)"
            " returning owner"
        )
        now = self._clock()
        owners = self._transact(lambda: self._connection.execute(expired, (now, SLICE)).fetchall())
        self._names.subtract(Counter(owner for (owner,) in owners))
        self._names += Counter()
        self._names_total -= len(owners)
        return len(owners) == SLICE

    # --- transactions

    def _change(self, *statements: tuple[str, Sequence[object]]) -> int:
        """Carry out statements in a transaction; return the number of rows that the first one changed."""
        return self._transact(lambda: [self._connection.execute(*each).rowcount for each in statements])[0]

    def _transact(self, work: Callable[[], T]) -> T:
        """Do a work in a transaction, and return its result after the commit."""
        try:
            self._connection.execute("begin immediate")
            result = work()
            self._connection.execute("commit")
        except sqlite3.Error as error:
            raise self._failed(error) from error
        except BaseException:
            self._failed(None)
            raise
        return result

    def _failed(self, error: sqlite3.Error | None) -> StoreError:
        """Undo the transaction, and return the exception to raise."""
        name = getattr(error, "sqlite_errorname", "")
        try:
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            if name != "SQLITE_FULL":
                self._load()
        except sqlite3.Error as further:
            return StoreBroken(f"the store cannot be read after a failure: {further}")
        # The rows that it has counted may not be the committed ones.
        self._sweep = Sweep(self._connection)
        if name == "SQLITE_FULL":
            return StoreFull(f"the disk is full: {error}")
        return StoreBroken(f"{name or type(error).__name__}: {error}")
