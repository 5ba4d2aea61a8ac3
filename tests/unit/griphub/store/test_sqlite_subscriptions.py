"""Subscriptions in SQLite: a statement that fails changes nothing, a full disk lets them be deleted only."""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Callable, Iterator

import pytest

from griphub.store.errors import StoreBroken, StoreFull
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.subscription import SubscriptionProgress
from tests.support.store_conformance import draft_of, made, published, subscribed


class House:
    """A store with the topic 1, its event 1, and the subscription 1."""

    def __init__(self, path: pathlib.Path) -> None:
        self.writer = SqliteWriter(path, "off", ballast=8192)
        self.reader = SqliteReader(path)
        made(self.writer, "t")
        published(self.writer, "t", "a")
        self.first = subscribed(self.writer, 1)

    def refuse(self, action: int) -> None:
        """Have statements fail that do something in the table of subscriptions; 0: none any more."""

        def judge(found: int, table: str | None, *_: str | None) -> int:
            return sqlite3.SQLITE_DENY if (found, table) == (action, "subscription") else sqlite3.SQLITE_OK

        self.writer._connection.set_authorizer(judge if action else None)

    def close(self) -> None:
        self.writer.close()
        self.reader.close()


@pytest.fixture
def house(tmp_path: pathlib.Path) -> Iterator[House]:
    house = House(tmp_path / "hub.db")
    yield house
    house.close()


CHANGES: dict[str, tuple[int, Callable[[SqliteWriter], object]]] = {
    "make": (sqlite3.SQLITE_INSERT, lambda writer: writer.subscriptions.make(draft_of(1, "other"), 2, 2, 2)),
    "renew": (sqlite3.SQLITE_UPDATE, lambda writer: writer.subscriptions.renew(1, 9)),
    "keys": (sqlite3.SQLITE_UPDATE, lambda writer: writer.subscriptions.set_keys(1, (("k", None),))),
    "save": (
        sqlite3.SQLITE_UPDATE,
        lambda writer: writer.subscriptions.save([SubscriptionProgress(1, 1, True, "revoked", "")]),
    ),
    "delete": (sqlite3.SQLITE_DELETE, lambda writer: writer.subscriptions.delete(1, "o", "s")),
    "topic": (sqlite3.SQLITE_DELETE, lambda writer: writer.delete_topic("t")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_fails_changes_nothing_and_may_be_repeated(house: House, name: str) -> None:
    action, change = CHANGES[name]
    house.refuse(action)
    with pytest.raises(StoreBroken):
        change(house.writer)
    house.refuse(0)
    assert house.reader.subscriptions() == [house.first]
    assert house.reader.topic("t") is not None
    change(house.writer)
    assert house.reader.subscriptions() != [house.first]
    # The numbers in memory are those of the rows.
    rows = len(house.reader.subscriptions())
    if name != "topic":
        assert not isinstance(house.writer.subscriptions.make(draft_of(1, "last"), *[rows + 1] * 3), str)
        assert house.writer.subscriptions.make(draft_of(1, "beyond"), rows + 1) == "topic"


def test_one_position_that_fails_keeps_the_others_from_being_written(house: House) -> None:
    second = subscribed(house.writer, 1, "second")
    progress = [SubscriptionProgress(number, position, True, "", "") for number, position in ((1, 1), (2, 2**63))]
    with pytest.raises(OverflowError):
        house.writer.subscriptions.save(progress)
    assert house.reader.subscriptions() == [house.first, second]


def test_on_a_full_disk_subscriptions_can_only_be_deleted(house: House, tmp_path: pathlib.Path) -> None:
    house.writer.make_room()
    # Its space is gone to another program.
    (tmp_path / "hub.db.ballast").mkdir()
    for name in ("make", "renew", "keys", "save"):
        with pytest.raises(StoreFull, match="the disk is full"):
            CHANGES[name][1](house.writer)
    assert house.reader.subscriptions() == [house.first]
    CHANGES["delete"][1](house.writer)
    assert house.reader.subscriptions() == []
    (tmp_path / "hub.db.ballast").rmdir()
    CHANGES["make"][1](house.writer)
    assert [each.id for each in house.reader.subscriptions()] == ["other"]


def test_a_disk_that_becomes_full_stores_no_half(house: House) -> None:
    connection = house.writer._connection
    pages = connection.execute("pragma page_count").fetchone()[0]
    connection.execute(f"pragma max_page_count = {pages}")
    made_before, full = [house.first], False
    for count in range(1000):
        draft = draft_of(1, f"{count:0200d}")
        try:
            result = house.writer.subscriptions.make(draft)
        except StoreFull:
            full = True
            break
        assert not isinstance(result, str | None)
        made_before.append(result)
    assert full
    assert house.reader.subscriptions() == made_before
    connection.execute("pragma max_page_count = 1000000")
    assert house.writer.subscriptions.make(draft_of(1, "next"), len(made_before)) == "topic"
    assert subscribed(house.writer, 1, "next").number == made_before[-1].number + 1


def test_a_damaged_position_is_read_as_the_newest_id(house: House) -> None:
    house.writer._connection.execute("update subscription set position = 1000")
    assert [each.position for each in house.reader.subscriptions()] == [1]
