"""Connections to a store: a reading one takes little memory and cannot write."""

from __future__ import annotations

import contextlib
import pathlib

from griphub.store.schema import CACHE_KIB, READER_CACHE_KIB, connect_reader
from griphub.store.sqlite_writer import SqliteWriter


def test_a_reading_connection_has_a_small_cache(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hub.db"
    SqliteWriter(path, "off").close()
    with contextlib.closing(connect_reader(path)) as connection:
        assert connection.execute("pragma cache_size").fetchone() == (-READER_CACHE_KIB,)
    assert READER_CACHE_KIB < CACHE_KIB


def test_a_reading_connection_cannot_write(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "hub.db"
    SqliteWriter(path, "off").close()
    with contextlib.closing(connect_reader(path)) as connection:
        assert connection.execute("pragma query_only").fetchone() == (1,)
