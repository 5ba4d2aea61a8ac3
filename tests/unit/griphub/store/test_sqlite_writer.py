"""The SQLite engine passes the conformance suite; then what is its own: files, disks, epochs, crashes in a commit."""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from griphub.store import sqlite_reader
from griphub.store.cursor import EPOCH_SKIP, Cursor, is_known
from griphub.store.errors import StoreBroken, StoreFull, StoreInUse, StoreProblem
from griphub.store.event import Draft
from griphub.store.interface import KeyRange
from griphub.store.publication import Idempotency, Publication, Published, Refused
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.topic import Retention, TopicSettings
from tests.support.store_conformance import Conformance, HandClock, drafts, history, made, published, texts, trim


class SqliteStores:
    """A store in a file, with a writer and a reader."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.clock = HandClock()
        self.writer = self.open()
        self.reader = SqliteReader(path)

    def open(self, **options: Any) -> SqliteWriter:
        return SqliteWriter(self.path, "off", clock=self.clock, **options)

    def crash(self) -> None:
        # Nothing is written at a close that a killed process would miss: the connection has no open transaction.
        self.writer.close()
        self.writer = self.open()

    def close(self) -> None:
        self.writer.close()
        self.reader.close()


@pytest.fixture
def stores(tmp_path: pathlib.Path) -> Iterator[SqliteStores]:
    stores = SqliteStores(tmp_path / "hub.db")
    yield stores
    stores.close()


class TestSqlite(Conformance):
    pass


class TestFiles:
    def test_a_second_writer_is_refused_with_the_first_ones_process(self, stores: SqliteStores) -> None:
        with pytest.raises(StoreInUse, match=r"is open in process \d+: a store has one hub"):
            stores.open()

    def test_another_programs_database_is_left_alone(self, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "other.db"
        other = sqlite3.connect(path)
        other.execute("create table t(a)")
        other.close()
        before = path.read_bytes()
        with pytest.raises(StoreProblem, match="another program"):
            SqliteWriter(path)
        assert path.read_bytes() == before

    def test_a_newer_format_is_refused(self, tmp_path: pathlib.Path) -> None:
        path = tmp_path / "hub.db"
        SqliteWriter(path).close()
        newer = sqlite3.connect(path)
        newer.execute("pragma user_version = 99")
        newer.close()
        with pytest.raises(StoreProblem, match="has format 99"):
            SqliteWriter(path)

    def test_a_reader_needs_a_store(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(StoreProblem):
            SqliteReader(tmp_path / "none.db")
        (tmp_path / "empty.db").touch()
        with pytest.raises(StoreProblem, match="no tables"):
            SqliteReader(tmp_path / "empty.db")

    def test_the_folder_must_exist(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(StoreProblem, match="cannot make"):
            SqliteWriter(tmp_path / "missing" / "hub.db")


class TestSnapshots:
    def test_rows_that_the_engine_gives_in_another_order_are_sorted(
        self, stores: SqliteStores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = made(stores.writer, "t")
        stores.writer.append([Publication("t", tuple(Draft(b"1", key=key) for key in "cabd"))])
        scans: list[sqlite_reader.RowScan] = []

        class Backwards(sqlite_reader.RowScan):
            """Gives the rows of the first statement backwards."""

            def __iter__(self) -> Iterator[list[Any]]:
                scans.append(self)
                for piece in super().__iter__():
                    yield piece[::-1] if len(scans) == 1 else piece

        monkeypatch.setattr(sqlite_reader, "RowScan", Backwards)
        page = stores.reader.snapshot(topic.number, KeyRange(), 9, None, 3, 10_000)
        assert page is not None
        assert [event.key for event in page.events] == ["a", "b", "c"]
        assert (page.next_key, len(scans)) == ("c", 2)


class TestEpochs:
    def test_a_new_epoch_uses_no_number_of_a_topic_again(self, stores: SqliteStores) -> None:
        """Links name topics by their numbers, and those that were issued after the copy are not known."""
        first = made(stores.writer, "a")
        stores.writer.begin_epoch()
        second = made(stores.writer, "b")
        assert second.number >= first.number + EPOCH_SKIP
        stores.crash()
        assert made(stores.writer, "c").number == second.number + 1

    def test_a_new_epoch_skips_ids_and_ends_the_old_one(self, stores: SqliteStores) -> None:
        stores.writer.put_topic("t", TopicSettings())
        old = stores.writer.state().epoch
        newest = published(stores.writer, "t", "a").ids[0]
        new = stores.writer.begin_epoch()
        assert new != old
        [id] = published(stores.writer, "t", "b").ids
        assert id == newest + 1 + EPOCH_SKIP
        state = stores.reader.state()
        assert state.epoch == new
        # A backup was restored: what the lost store issued above it is gone, not waited for.
        assert is_known(Cursor(old, newest), state.intervals, state.newest)
        assert not is_known(Cursor(old, newest + 1), state.intervals, state.newest)
        assert is_known(Cursor(new, id), state.intervals, state.newest)
        stores.crash()
        assert stores.writer.state() == state


class TestFullDisk:
    def limit(self, stores: SqliteStores, pages: int) -> None:
        stores.writer._connection.execute(f"pragma max_page_count = {pages}")

    def pages(self, stores: SqliteStores) -> int:
        return int(stores.writer._connection.execute("pragma page_count").fetchone()[0])

    def test_nothing_of_a_group_is_stored(self, stores: SqliteStores) -> None:
        topic = made(stores.writer, "t")
        published(stores.writer, "t", "before")
        state = stores.writer.state()
        self.limit(stores, self.pages(stores) + 2)
        named = Publication("t", drafts("x" * 100_000), None, Idempotency("o", "k", b"d"))
        with pytest.raises(StoreFull):
            stores.writer.append([Publication("t", drafts("small")), named])
        assert stores.writer.state() == state
        assert texts(history(stores.reader, topic)) == ["before"]
        self.limit(stores, 1_000_000)
        [outcome] = stores.writer.append([named])
        assert isinstance(outcome, Published)
        assert outcome.ids[0] == state.newest + 1

    def test_without_ballast_publications_are_refused_and_retention_goes_on(self, tmp_path: pathlib.Path) -> None:
        stores = SqliteStores(tmp_path / "hub.db")
        stores.writer.close()
        stores.writer = stores.open(ballast=1_000_000)
        try:
            topic = made(stores.writer, "t", TopicSettings(Retention(events=1)))
            published(stores.writer, "t", "a", "b", "c")
            stores.writer.make_room()
            # Its space is gone to another program.
            (tmp_path / "hub.db.ballast").mkdir()
            with pytest.raises(StoreFull, match="until retention"):
                stores.writer.append([Publication("t", drafts("d"))])
            trim(stores.writer, topic.number)
            assert texts(history(stores.reader, topic)) == ["c"]
            (tmp_path / "hub.db.ballast").rmdir()
            published(stores.writer, "t", "d")
            assert (tmp_path / "hub.db.ballast").stat().st_size == 1_000_000
        finally:
            stores.close()


class TestFailures:
    @pytest.mark.parametrize("statement", ["insert into event", "update topic", "update meta", "commit"])
    def test_a_failure_at_any_statement_stores_nothing(
        self, stores: SqliteStores, statement: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = made(stores.writer, "t")
        published(stores.writer, "t", "a")
        state, connection = stores.writer.state(), stores.writer._connection
        stores.writer._connection = Failing(connection, statement)  # type: ignore[assignment]
        with pytest.raises(StoreBroken):
            stores.writer.append([Publication("t", drafts("b"), None, Idempotency("o", "k", b"d"))])
        stores.writer._connection = connection
        assert stores.writer.state() == state
        assert texts(history(stores.reader, topic)) == ["a"]
        [outcome] = stores.writer.append([Publication("t", drafts("b"), None, Idempotency("o", "k", b"d"))])
        assert isinstance(outcome, Published)

    def test_names_have_a_bound(self, tmp_path: pathlib.Path) -> None:
        stores = SqliteStores(tmp_path / "hub.db")
        stores.writer.close()
        stores.writer = stores.open(names_max=2)
        try:
            stores.writer.put_topic("t", TopicSettings())
            publications = [Publication("t", drafts("a"), None, Idempotency("o", str(n), b"d", 10.0)) for n in range(3)]
            outcomes = stores.writer.append(publications)
            assert [type(outcome) for outcome in outcomes] == [Published, Published, Refused]
            assert outcomes[2] == Refused("names")
            stores.clock.now += 11_000_000
            assert not stores.writer.forget_names()
            [again] = stores.writer.append([publications[2]])
            assert isinstance(again, Published)
        finally:
            stores.close()


class Failing:
    """A connection on which one statement fails."""

    def __init__(self, connection: sqlite3.Connection, statement: str) -> None:
        self._connection = connection
        self._statement = statement

    def execute(self, text: str, *values: Any) -> sqlite3.Cursor:
        if text.startswith(self._statement):
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(text, *values)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction
