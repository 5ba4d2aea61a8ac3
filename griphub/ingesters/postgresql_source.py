"""Source of the PostgreSQL ingester: the connection, snapshots, changes between two of them, marks, wake-ups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from griphub.ingesters import postgresql_sql as statements
from griphub.ingesters.ingest_request import BODY_BYTES, BODY_LINES, Change
from griphub.ingesters.marks import Mark
from griphub.ingesters.postgresql_view import View, quoted

__all__ = ["NotReady", "Source"]

FETCHED: Final = 50
"""Rows that a page fetches at a time: at most 45 MB."""

STATEMENT_TIMEOUT: Final = 60
"""Seconds of one statement."""

LIVENESS: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Settings of libpq by which a database that vanishes is noticed, unless the connection string has others."""

LOCK_TIMEOUT: Final = 5
"""Seconds that ``--setup`` waits for the table: writers wait behind it."""

TRIM_SLICES: Final = 20
"""Slices of 10,000 rows that are trimmed after a poll at most."""


class NotReady(Exception):
    """Database that cannot be followed now: the operator changes it, or waits."""


class Source:
    """Connection to the database of a view. It has one statement at a time.

    Args:
        dsn: connection string of libpq.
        view: the view.
        notify: whether commits wake the ingester, once it is set up by this object.
    """

    def __init__(self, dsn: str, view: View, *, notify: bool = True) -> None:
        self._dsn = dsn
        self._view = view
        self._notify = notify
        self._connection: psycopg.AsyncConnection[tuple[Any, ...]] | None = None
        self._open = False
        """True while the connection has a cursor of changes."""

    async def connect(self) -> None:
        """Connect, and begin to listen.

        Raises:
            psycopg.Error: the database cannot be reached.
        """
        given = conninfo_to_dict(self._dsn)
        settings = {name: value for name, value in LIVENESS.items() if name not in given}
        self._connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True, **settings)
        await self._run(f"set statement_timeout = '{STATEMENT_TIMEOUT}s'")
        await self._run("set application_name = 'griphub ingester'")

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection, self._open = self._connection, None, False
        if connection is not None:
            await connection.close()

    @property
    def connection(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        """Open connection.

        Raises:
            NotReady: there is none.
        """
        if self._connection is None:
            raise NotReady("the database is not connected")
        return self._connection

    async def _run(self, statement: str, values: dict[str, object] | None = None) -> int:
        cursor = await self.connection.execute(statement.encode(), values)
        return cursor.rowcount

    async def _row(self, statement: str, values: dict[str, object] | None = None) -> tuple[Any, ...] | None:
        cursor = await self.connection.execute(statement.encode(), values)
        return await cursor.fetchone()

    # --- preparation

    async def set_up(self) -> None:
        """Make the outbox and its triggers, all in one transaction.

        Raises:
            NotReady: the key column does not fit.
            psycopg.Error: the database refuses it.
        """
        await self._check_key()
        async with self.connection.transaction():
            await self._run(f"set local lock_timeout = '{LOCK_TIMEOUT}s'")
            await self._run("select pg_advisory_xact_lock(%(number)s)", {"number": statements.lock_number(self._view)})
            for statement in statements.setup(self._view, notify=self._notify):
                await self._run(statement)

    async def remove(self) -> None:
        """Remove the outbox and its triggers, all in one transaction.

        Raises:
            psycopg.Error: the database refuses it.
        """
        async with self.connection.transaction():
            for statement in statements.remove(self._view):
                await self._run(statement)

    async def _check_key(self) -> None:
        found = await self._row(
            "select exists (select from pg_index i join pg_attribute a on a.attrelid = i.indrelid and"
            " a.attnum = i.indkey[0] where i.indrelid = %(table)s::regclass and a.attname = %(key)s and a.attnotnull"
            " and i.indisunique and i.indimmediate and i.indnkeyatts = 1 and i.indpred is null)",
            {"table": self._view.table_sql, "key": self._view.key},
        )
        kind = await self._row(statements.key_type(self._view), {"table": self._view.table_sql, "key": self._view.key})
        if kind is not None and not kind[1]:
            raise NotReady(
                f"column {self._view.key} of {self._view.table} is of type {kind[0]}, whose text depends on settings of"
                " each session, as on its time zone: the key needs a text, an integer, numeric, uuid, bool, an"
                " enumeration or a network address; a generated column may be one"
            )
        if found is None or not found[0]:
            raise NotReady(
                f"column {self._view.key} of {self._view.table} needs to be not null and have a unique index of its own"
                " that is not deferrable: two rows with one key would hide each other"
            )

    async def prepare(self) -> str:
        """Check that the database can be followed, and lock the view against other ingesters.

        Returns:
            Text that names the source: another one after a failover, a restore with a timeline of its own, an upgrade
            or a new definition of the view.

        Raises:
            NotReady: it is a standby, the outbox is not there, or another ingester has the view.
            psycopg.Error: the database refuses it.
        """
        row = await self._row("select pg_is_in_recovery()")
        if row is None or row[0]:
            raise NotReady("the database is a standby: name the primary, as with target_session_attrs=read-write")
        row = await self._row(
            "select obj_description(to_regclass(%(outbox)s), 'pg_class')", {"outbox": self._view.part("_outbox")}
        )
        definition = f"griphub {self._view.digest}"
        if row is None or row[0] != definition:
            state = "is not set up" if row is None or row[0] is None else "is set up with another definition"
            raise NotReady(f"view {self._view.name} {state}: start once with --setup")
        row = await self._row("select pg_try_advisory_lock(%(number)s)", {"number": statements.lock_number(self._view)})
        if row is None or not row[0]:
            raise NotReady(f"another ingester of view {self._view.name} is at work: this one waits for its end")
        await self._run(f"listen {quoted(self._view.channel)}")
        row = await self._row(
            "select system_identifier, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) from pg_control_system()"
        )
        if row is None:
            raise NotReady("the database does not name its system")
        return f"{row[0]}/{row[1]}/{self._view.digest}"

    async def mark(self) -> Mark | None:
        """Return the mark that is stored; None for none."""
        row = await self._row(
            "select source, version, snapshot, next_version, next_snapshot from"
            f" {quoted(self._view.schema)}.state where view = %(view)s",
            {"view": self._view.name},
        )
        return None if row is None else Mark(*row)

    async def store(self, mark: Mark, expected: int) -> None:
        """Store a mark.

        Args:
            mark: the mark.
            expected: version being given of the mark that is stored.

        Raises:
            NotReady: another ingester has stored one meanwhile.
        """
        values: dict[str, object] = {
            "view": self._view.name,
            "source": mark.source,
            "version": mark.version,
            "snapshot": mark.snapshot,
            "next_version": mark.next_version,
            "next_snapshot": mark.next_snapshot,
            "expected": expected,
        }
        if await self._run(statements.store_mark(self._view), values) != 1:
            raise NotReady(f"another ingester of view {self._view.name} has stored a version meanwhile")

    # --- polls

    async def snapshot(self) -> str:
        """Return the snapshot of this moment: the next version is the state of the table in it."""
        row = await self._row("select pg_current_snapshot()::text")
        if row is None:
            raise NotReady("the database gives no snapshot")
        return str(row[0])

    async def truncated(self, before: str, now: str) -> bool:
        """Return whether the table was truncated between two snapshots.

        Args:
            before: the earlier snapshot.
            now: the later one.
        """
        row = await self._row(statements.truncated(self._view), {"before": before, "now": now})
        return row is not None and bool(row[0])

    async def pages(self, before: str, now: str) -> AsyncIterator[list[Change]]:
        """Yield the changes between two snapshots, the last one of each key, by key.

        They are found once; no transaction is open while the hub is asked.

        Args:
            before: the earlier snapshot.
            now: the later one.
        """
        if self._open:
            # Of a version that was not given to its end.
            await self._close_page()
        values: dict[str, object] = {"before": before, "now": now}
        await self._run(f"declare griphub_page no scroll cursor with hold for {statements.page(self._view)}", values)
        self._open = True
        changes: list[Change] = []
        size = 0
        while rows := await self._fetch():
            for change in map(_change, rows):
                if len(change.key.encode()) > statements.KEY_MAX:
                    continue
                changes.append(change)
                size += change.size
                if len(changes) == BODY_LINES or size >= BODY_BYTES:
                    yield changes
                    changes, size = [], 0
        await self._close_page()
        if changes:
            yield changes

    async def _fetch(self) -> list[tuple[Any, ...]]:
        cursor = await self.connection.execute(f"fetch {FETCHED} from griphub_page".encode())
        return await cursor.fetchall()

    async def _close_page(self) -> None:
        await self._run("close griphub_page")
        self._open = False

    async def trim(self, before: str) -> int:
        """Delete rows of the outbox that no poll after a snapshot needs.

        Args:
            before: snapshot of the last version that was answered.

        Returns:
            The number of deleted rows.
        """
        number = 0
        for _ in range(TRIM_SLICES):
            deleted = await self._run(statements.trim(self._view), {"before": before})
            number += deleted
            if deleted < 10_000:
                break
        return number

    async def wait(self, seconds: float) -> bool:
        """Wait for a commit that changes the table, but no longer than a time.

        Args:
            seconds: the time, in seconds.

        Returns:
            Whether there was one.
        """
        found = False
        # To its end: all notifications that have arrived are answered by one poll.
        async for _ in self.connection.notifies(timeout=seconds, stop_after=1):
            found = True
        return found


def _change(row: Sequence[Any]) -> Change:
    key, op, size, text = row
    if op == "d":
        return Change(key, None, deleted=True)
    return Change(key, text, 0 if text is not None else int(size))
