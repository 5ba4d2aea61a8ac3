"""Starts a process of the store with changes: ``python -m tests.faults.hub_launcher --fd N CHANGE,… MODULE …``.

A change either breaks something on purpose, or has the process die at a certain place. Nothing of this is possible with
the product.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from griphub.store import schema, sqlite_reader, sqlite_writer
from griphub.store.sqlite_sweep import _DELETE, Doomed, Sweep
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.topic import Topic

__all__ = ["CHANGES", "main"]


class _Connection:
    """Connection of a writer, whose commits of events are seen."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._events = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, text: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        if text.startswith("begin"):
            self.begun()
            self._events = False
        elif text.startswith("insert into event"):
            self._events = True
        elif text == "commit" and self._events:
            return self.commit()
        return self._connection.execute(text, values)

    def begun(self) -> None:
        """Take note of the beginning of a transaction."""

    def commit(self) -> sqlite3.Cursor:
        """Commit events."""
        return self._connection.execute("commit")


class _Mortal(_Connection):
    """Dies behind the first commit of events of the run, before it is reported."""

    def commit(self) -> sqlite3.Cursor:
        cursor = self._connection.execute("commit")
        [(_, _, file)] = self._connection.execute("pragma database_list").fetchall()
        died = pathlib.Path(file + ".died")
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return cursor


class _Lazy(_Connection):
    """Commits events at the beginning of the next transaction, when they have been answered."""

    def begun(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("commit")

    def commit(self) -> sqlite3.Cursor:
        return self._connection.execute("select 1")


def _connect_as(kind: type[_Connection]) -> None:
    connect = schema.connect_writer
    # As the writer has imported it.
    vars(sqlite_writer)["connect_writer"] = lambda path, sync: kind(connect(path, sync))


def dies_behind_a_commit() -> None:
    """The writer dies behind its first commit of events, before it reports it."""
    _connect_as(_Mortal)


def answers_before_the_commit() -> None:
    """Outcomes are reported before they are committed."""
    _connect_as(_Lazy)


def names_apart() -> None:
    """Names of requests are stored in a transaction behind that of the events."""
    insert = SqliteWriter._insert

    def apart(self: SqliteWriter, group: Any) -> None:
        names, group.names = group.names, {}
        insert(self, group)
        self._connection.execute("commit")
        self._connection.execute("begin immediate")
        group.names, group.values, group.tails = names, [], {}
        insert(self, group)

    SqliteWriter._insert = apart  # type: ignore[method-assign]


def deletes_first() -> None:
    """Events are deleted before the floor is raised."""
    raise_floor, delete_slice = SqliteWriter.raise_floor, SqliteWriter.delete_slice
    floors: dict[int, int] = {}

    def delete(self: SqliteWriter, number: int, floor: int) -> Any:
        floors[number] = floor
        topic = self._numbers[number]
        done = self._change(("delete from event where t = ? and id <= ?", (number, floor)))
        self._change(("update topic set count = ? where t = ?", (topic.count - done, number)))
        self._set(replace(topic, count=topic.count - done))
        return self._numbers[number]

    def raise_late(self: SqliteWriter, number: int) -> bool:
        if number in floors:
            raise_floor(self, number, floors.pop(number))
        return delete_slice(self, number)

    SqliteWriter.raise_floor, SqliteWriter.delete_slice = delete, raise_late  # type: ignore[method-assign]


def divides_versions() -> None:
    """Pages end anywhere."""
    init = sqlite_reader.RowScan.__init__

    def anywhere(self: sqlite_reader.RowScan, rows: Any, limit: int, size: int, version: Any, place: int) -> None:
        init(self, rows, limit, size, None, place)

    sqlite_reader.RowScan.__init__ = anywhere  # type: ignore[method-assign]


def skips_an_event() -> None:
    """A page leaves out its second event."""
    pieces = sqlite_reader.PageScan.__iter__

    def shorter(self: sqlite_reader.PageScan) -> Iterator[Any]:
        for index, rows in enumerate(pieces(self)):
            yield rows if index else rows[:1] + rows[2:]

    sqlite_reader.PageScan.__iter__ = shorter  # type: ignore[method-assign]


def compacts_deletions_early() -> None:
    """Compaction takes deletions above the floor as well."""
    doomed = Sweep._doomed_of_compacted

    def early(self: Sweep, topic: Topic) -> Doomed:
        found = doomed(self, topic)
        above = self._fetch(
            "select id, size from event where t = ? and id > ? and op = ?", (topic.number, topic.floor, _DELETE)
        ).fetchall()
        return replace(found, rows=sorted({*found.rows, *above}))

    Sweep._doomed_of_compacted = early  # type: ignore[method-assign]


CHANGES: Final[dict[str, Callable[[], None]]] = {
    "dies-behind-a-commit": dies_behind_a_commit,
    "answers-before-the-commit": answers_before_the_commit,
    "names-apart": names_apart,
    "deletes-first": deletes_first,
    "divides-versions": divides_versions,
    "compacts-deletions-early": compacts_deletions_early,
    "skips-an-event": skips_an_event,
}
"""All changes by name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a process of the store.

    Args:
        arguments: socket to the hub, changes, module, and the arguments of the process; None for those of this one.

    Returns:
        The exit status.
    """
    option, descriptor, changes, module, *rest = sys.argv[1:] if arguments is None else arguments
    for name in changes.split(","):
        CHANGES[name]()
    return int(importlib.import_module(module).main([option, descriptor, *rest]))


if __name__ == "__main__":
    sys.exit(main())
