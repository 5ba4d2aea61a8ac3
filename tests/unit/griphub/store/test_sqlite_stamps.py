"""Stamps in SQLite: what is kept never falls, also over a restart."""

from __future__ import annotations

import pathlib
import sqlite3

import pytest

from griphub.store.errors import StoreBroken
from griphub.store.sqlite_writer import SqliteWriter


def test_the_greatest_number_is_kept_over_a_restart(tmp_path: pathlib.Path) -> None:
    for expected, until in ((0, 100), (100, 50), (100, 300)):
        writer = SqliteWriter(tmp_path / "hub.db", "off")
        assert writer.stamps.reserve(until) == expected
        writer.close()
    writer = SqliteWriter(tmp_path / "hub.db", "off")
    assert [writer.stamps.reserve(until) for until in (400, 350, 500)] == [300, 400, 400]
    writer.close()


def test_a_failed_write_is_told(tmp_path: pathlib.Path) -> None:
    writer = SqliteWriter(tmp_path / "hub.db", "off")
    writer._connection.set_authorizer(
        lambda action, table, *_: sqlite3.SQLITE_DENY if (action, table) == (sqlite3.SQLITE_INSERT, "meta") else 0
    )
    with pytest.raises(StoreBroken):
        writer.stamps.reserve(100)
    writer.close()
