"""Tables and settings of the SQLite engine."""

from __future__ import annotations

import os
import pathlib
import sqlite3
from typing import Final, Literal

from griphub.store.errors import StoreProblem

__all__ = [
    "APPLICATION_ID",
    "COUNTERS",
    "FORMAT",
    "NEWEST",
    "PUBSUB_SINCE",
    "SUBSCRIPTIONS_SINCE",
    "Sync",
    "connect_reader",
    "connect_writer",
    "read_state",
]

APPLICATION_ID: Final = 0x47485542
"""``GHUB``: distinguishes a store from other SQLite files."""

FORMAT: Final = 3
"""Version of the tables."""

PUBSUB_SINCE: Final = 3
"""First format with subscriptions of the push API."""

SUBSCRIPTIONS_SINCE: Final = 2
"""First format with subscriptions."""

NEWEST: Final = "(select v - 1 from meta where k = 'next_id')"
"""Expression for the newest id of a store."""

COUNTERS: Final = "update meta set v = iif(k = 'next_id', ?, ?) where k in ('next_id', 'next_topic')"
"""Statement that sets the next id and the next number of a topic."""

CACHE_KIB: Final = 65_536
"""Page cache of a connection that writes, in KiB."""

READER_CACHE_KIB: Final = 16_384
"""Page cache of a connection that reads, in KiB: long histories are read once, and the system keeps their pages too."""

LOG_LIMIT: Final = 64 * 1024 * 1024
"""Bytes that the write-ahead log keeps after a checkpoint."""

BUSY_TIMEOUT: Final = 5.0
"""Seconds that a connection waits for a lock of another."""

Sync = Literal["full", "normal", "off"]
"""``full``: a power loss loses no answered publication; ``normal``: it may lose the last commits; ``off``: it may
destroy the store. A killed process loses nothing with any of them."""

_TABLES: Final = """
create table meta(k text primary key, v integer not null) strict, without rowid;
create table secret(v blob not null) strict;
create table epoch(n integer primary key, epoch text not null unique, first integer not null, last integer) strict;
create table topic(
    t integer primary key, name text not null unique, birth integer not null, floor integer not null,
    floor_time integer not null, last integer not null, count integer not null, bytes integer not null,
    access integer not null, settings text not null, owner text not null) strict;
create table event(
    id integer primary key, t integer not null, prev integer not null, ver integer not null, ts integer not null,
    op integer not null, key text, ctype text not null, attrs text, data blob not null, size integer not null) strict;
create index event_topic on event(t, id);
create unique index event_time on event(ts);
create index event_key on event(t, key, id) where key is not null;
create table idem(
    scope text not null, k text not null, digest blob not null, t integer not null, prev integer not null,
    first integer not null, ts integer not null, count integer not null, expires integer not null, owner text not null,
    primary key (scope, k)) strict, without rowid;
create index idem_expires on idem(expires);
create table gone(t integer primary key) strict;
"""

_SUBSCRIPTIONS: Final = """
create table subscription(
    n integer primary key autoincrement, t integer not null, id text not null, owner text not null,
    callback text not null, start text not null, position integer not null, keys text not null,
    rights_end integer not null, created integer not null, confirmed integer not null, rest text not null,
    failure text not null, unique (t, owner, id)) strict;
"""

_PUBSUB: Final = """
create table pubsub(
    n integer primary key autoincrement, project text not null, id text not null, t integer not null,
    owner text not null, settings text not null, position integer not null, acked blob not null,
    attempts text not null, generation integer not null, created integer not null, used integer not null,
    unique (project, id)) strict;
create index pubsub_topic on pubsub(t);
"""

_STEPS: Final = (_TABLES, _SUBSCRIPTIONS, _PUBSUB)
"""Statements that make a store of each format from one of the format before; the first from an empty file."""


def connect_writer(path: pathlib.Path, sync: Sync) -> sqlite3.Connection:
    """Open a store for writing; make it if there is none, and give one of an earlier format the tables that it lacks.

    Args:
        path: of the file.
        sync: durability of commits.

    Returns:
        A connection without implicit transactions.

    Raises:
        StoreProblem: it is no store, or one of a newer format, or it cannot be opened.
    """
    try:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        try:
            _set_up(connection, path, sync)
        except BaseException:
            # With its transaction.
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise StoreProblem(f"{path} cannot be opened as a store: {error}") from error
    return connection


def _set_up(connection: sqlite3.Connection, path: pathlib.Path, sync: Sync) -> None:
    version = _check(connection, path)
    if not version:
        # Before the first table: it cannot be changed later.
        connection.execute("pragma auto_vacuum = incremental")
    connection.execute("pragma journal_mode = wal")
    if not version:
        # Until now it had a rollback journal. If a power loss brought that back, it would empty the store.
        _synchronise(path.parent)
    connection.execute(f"pragma synchronous = {sync}")
    # Checkpoints are made by another connection: in a commit they would delay its publications.
    connection.execute("pragma wal_autocheckpoint = 0")
    connection.execute(f"pragma journal_size_limit = {LOG_LIMIT}")
    _common(connection, CACHE_KIB)
    if version < FORMAT:
        connection.execute("begin immediate")
        for statement in "".join(_STEPS[version:]).split(";"):
            connection.execute(statement)
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute(f"pragma user_version = {FORMAT}")
        connection.execute("commit")


def connect_reader(path: pathlib.Path) -> sqlite3.Connection:
    """Open a store for reading.

    Args:
        path: of the file.

    Returns:
        A connection that cannot write.

    Raises:
        StoreProblem: it is no store, or it cannot be opened.
    """
    try:
        connection = sqlite3.connect(
            f"file:{path}?mode=ro", uri=True, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        if not _check(connection, path):
            raise StoreProblem(f"{path} is no store: it has no tables")
        connection.execute("pragma query_only = on")
        _common(connection, READER_CACHE_KIB)
    except sqlite3.Error as error:
        raise StoreProblem(f"{path} cannot be opened as a store: {error}") from error
    return connection


def read_state(connection: sqlite3.Connection) -> tuple[str, list[tuple[str, int, int | None]], int, int, bytes]:
    """Return the state of a store in its plain form.

    Args:
        connection: in a read transaction, or that of the only writer.

    Returns:
        Current epoch, intervals of all epochs, newest id, its time in microseconds since 1970, secret.
    """
    rows = connection.execute("select epoch, first, last from epoch order by n").fetchall()
    newest, moment, secret = connection.execute(
        f"select {NEWEST}, (select v from meta where k = 'last_ts'), (select v from secret)"
    ).fetchone()
    return rows[-1][0], rows, newest, moment, secret


def _synchronise(folder: pathlib.Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _common(connection: sqlite3.Connection, cache: int) -> None:
    connection.execute(f"pragma cache_size = {-cache}")
    connection.execute("pragma temp_store = memory")
    # An input error in a memory map is a signal that ends the process.
    connection.execute("pragma mmap_size = 0")
    connection.execute("pragma trusted_schema = off")


def _check(connection: sqlite3.Connection, path: pathlib.Path) -> int:
    """Return the format of the store in a file; 0 if the file is empty."""
    (application,) = connection.execute("pragma application_id").fetchone()
    (version,) = connection.execute("pragma user_version").fetchone()
    (tables,) = connection.execute("select count(*) from sqlite_schema").fetchone()
    if not tables and not application:
        return 0
    if application != APPLICATION_ID:
        raise StoreProblem(f"{path} is a database of another program: name a file that does not exist, or a store")
    if version > FORMAT:
        raise StoreProblem(f"{path} has format {version}, this version of gripproxy reads up to {FORMAT}")
    return int(version)
