"""Connections to a store: a reading one takes little memory and cannot write. Formats: earlier ones are taken over."""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3

import pytest

from griphub.store.errors import StoreProblem
from griphub.store.maintenance import back_up, check, restore
from griphub.store.schema import CACHE_KIB, FORMAT, READER_CACHE_KIB, connect_reader
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.topic import TopicSettings
from tests.support.store_conformance import history, published, subscribed, texts


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


@pytest.fixture
def first_format(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a store of format 1, which had no subscriptions, with one topic and its event."""
    path = tmp_path / "hub.db"
    writer = SqliteWriter(path, "off")
    writer.put_topic("t", TopicSettings())
    published(writer, "t", "a")
    writer.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("drop table subscription; drop table pubsub; pragma user_version = 1")
    return path


def version(path: pathlib.Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("pragma user_version").fetchone()[0])


def works(path: pathlib.Path) -> None:
    """Use a store that was of format 1: its topic goes on, and may have subscriptions."""
    writer, reader = SqliteWriter(path, "off"), SqliteReader(path)
    topic = reader.topic("t")
    assert topic is not None
    assert texts(history(reader, topic)) == ["a"]
    assert reader.subscriptions() == []
    made = subscribed(writer, topic.number)
    published(writer, "t", "b")
    writer.close()
    assert reader.subscriptions() == [made]
    reader.close()
    assert version(path) == FORMAT
    assert check(path) == []


def test_a_store_of_the_first_format_goes_on(first_format: pathlib.Path) -> None:
    works(first_format)
    SqliteWriter(first_format).close()


def test_a_backup_of_the_first_format_is_restored(first_format: pathlib.Path, tmp_path: pathlib.Path) -> None:
    copy, restored = tmp_path / "copy.db", tmp_path / "restored.db"
    assert check(first_format) == []
    back_up(first_format, copy)
    restore(copy, restored)
    works(restored)
    assert [version(first_format), version(copy)] == [1, 1]


def test_a_store_that_cannot_be_taken_over_stays_as_it_is(
    first_format: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # The second statement fails.
        patch.setattr("griphub.store.schema._STEPS", ("", "create table subscription(n); create table meta(k)"))
        with pytest.raises(StoreProblem, match="cannot be opened as a store"):
            SqliteWriter(first_format, "off")
    assert version(first_format) == 1
    works(first_format)


def test_a_store_that_was_made_and_not_begun_is_taken_over(first_format: pathlib.Path) -> None:
    with contextlib.closing(sqlite3.connect(first_format, isolation_level=None)) as connection:
        # The process ended between the tables and their first rows.
        for table in ("meta", "secret", "epoch", "topic", "event"):
            connection.execute(f"delete from {table}")
    writer = SqliteWriter(first_format, "off")
    topic = writer.put_topic("t", TopicSettings())
    assert topic is not None
    assert subscribed(writer, topic[0].number).number == 1
    writer.close()
