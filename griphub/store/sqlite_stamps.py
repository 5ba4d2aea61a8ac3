"""Stamps of progress in the SQLite engine: a number above all that were given."""

from __future__ import annotations

import sqlite3

from griphub.store.sqlite_subscriptions import Transact

__all__ = ["SqliteStamps"]


class SqliteStamps:
    """Stamps in a store. Implements ``griphub.store.interface.StampWriter``.

    Args:
        connection: that of the writer.
        transact: does the changes.
    """

    def __init__(self, connection: sqlite3.Connection, transact: Transact) -> None:
        self._connection = connection
        self._transact = transact

    def reserve(self, until: int) -> int:
        """Keep a number above all stamps that are given; see ``StampWriter.reserve``."""

        def work() -> int:
            [(kept,)] = self._connection.execute("select coalesce(max(v), 0) from meta where k = 'stamps'").fetchall()
            if until > kept:
                self._connection.execute("insert or replace into meta(k, v) values ('stamps', ?)", (until,))
            return int(kept)

        return self._transact(work)
