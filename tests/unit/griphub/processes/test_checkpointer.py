"""Checkpoints: made soon after a commit, and never again after a failed write."""

from __future__ import annotations

import pathlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from griphub.processes import checkpointer
from griphub.processes.checkpointer import Checkpointer
from griphub.store.sqlite_writer import SqliteWriter
from tests.support.store_conformance import made, published


@pytest.fixture
def writer(tmp_path: pathlib.Path) -> Iterator[SqliteWriter]:
    writer = SqliteWriter(tmp_path / "hub.db", "off")
    made(writer, "t")
    yield writer
    writer.close()


class Failing:
    """Connection on which each checkpoint fails."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self.error = sqlite3.OperationalError("disk I/O error")
        self.error.sqlite_errorname = name

    def execute(self, text: str) -> Any:
        if "checkpoint" in text:
            raise self.error
        return self._connection.execute(text)

    def close(self) -> None:
        self._connection.close()


def test_a_commit_is_copied_to_the_file(writer: SqliteWriter, tmp_path: pathlib.Path) -> None:
    path, failures = tmp_path / "hub.db", []
    checkpoints = Checkpointer(path, "off", lambda: failures.append(1))
    try:
        before = path.stat().st_size
        published(writer, "t", "x" * 5_000_000)
        checkpoints.committed(5_000_000)
        end = time.monotonic() + 30
        while path.stat().st_size < before + 5_000_000 and time.monotonic() < end:
            time.sleep(0.005)
        assert path.stat().st_size >= before + 5_000_000
        assert (tmp_path / "hub.db-wal").stat().st_size > 5_000_000
        assert checkpoints.truncate()
        assert (tmp_path / "hub.db-wal").stat().st_size == 0
        assert not failures
    finally:
        checkpoints.close()


def test_a_reader_delays_only_the_truncation(writer: SqliteWriter, tmp_path: pathlib.Path) -> None:
    checkpoints = Checkpointer(tmp_path / "hub.db", "off", lambda: None)
    reader = sqlite3.connect(tmp_path / "hub.db", isolation_level=None)
    try:
        reader.execute("begin")
        reader.execute("select count(*) from event").fetchone()
        published(writer, "t", "a")
        assert not checkpoints.truncate()
        reader.execute("commit")
        assert checkpoints.truncate()
    finally:
        reader.close()
        checkpoints.close()


def test_a_long_log_asks_for_the_writer(
    writer: SqliteWriter, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "LOG_PAGES", 1)
    checkpoints = Checkpointer(tmp_path / "hub.db", "off", lambda: None)
    try:
        published(writer, "t", "x" * 50_000)
        checkpoints.committed(checkpointer.EARLY)
        end = time.monotonic() + 30
        while not checkpoints.behind and time.monotonic() < end:
            time.sleep(0.005)
        assert checkpoints.behind
        checkpoints.passive()
        assert not checkpoints.behind
    finally:
        checkpoints.close()


@pytest.mark.parametrize(
    ("name", "fails"), [("SQLITE_IOERR_FSYNC", True), ("SQLITE_FULL", False), ("SQLITE_BUSY", False)]
)
def test_failures(
    writer: SqliteWriter, tmp_path: pathlib.Path, name: str, fails: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = threading.Event()
    checkpoints = Checkpointer(tmp_path / "hub.db", "off", failed.set)
    try:
        connection = checkpoints._connection
        checkpoints._connection = Failing(connection, name)  # type: ignore[assignment]
        assert not checkpoints.truncate()
        assert not checkpoints.truncate()
        assert bool(checkpoints.failure) == failed.is_set() == fails
        assert capfd.readouterr().out.count("write-ahead log grows") == (name == "SQLITE_FULL")
    finally:
        checkpoints.close()
