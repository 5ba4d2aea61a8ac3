"""Events of a store as the desk reads them."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from griphub.callbacks.desk_subscription import Unreadable
from griphub.callbacks.event_source import StoreSource
from griphub.store.event import Draft
from griphub.store.sqlite_reader import RowReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.topic import TopicSettings
from tests.support.store_conformance import published


class Store:
    """A store with a topic, and a source of its events."""

    def __init__(self, path: pathlib.Path) -> None:
        self.writer = SqliteWriter(path, "off")
        self.writer.put_topic("t", TopicSettings())
        self.rows = RowReader(path)
        self.known = 10**9
        self.source = StoreSource(self.rows, lambda: self.known)


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[Store]:
    store = Store(tmp_path / "hub.db")
    yield store
    store.rows.close()
    store.writer.close()


def ids(store: Store, after: int = 0, limit: int = 100) -> list[int]:
    page = store.source.page(1, after, limit)
    assert page is not None
    return [event.id for event in page.events]


def test_pages(store: Store) -> None:
    published(store.writer, "t", "a", "b", "c")
    assert (ids(store), ids(store, 1, 1), ids(store, 3)) == ([1, 2, 3], [2], [])
    page = store.source.page(1, 0, 100)
    assert page is not None
    assert (page.last, page.floor) == (3, 0)
    assert page.events[0].message().data == b"a"


def test_events_that_the_hub_does_not_know_are_not_read(store: Store) -> None:
    published(store.writer, "t", "a", "b", "c")
    store.known = 2
    assert ids(store) == [1, 2]


def test_the_floor_is_that_of_the_topic(store: Store) -> None:
    published(store.writer, "t", "a", "b", "c")
    store.writer.raise_floor(1, 2)
    page = store.source.page(1, 0, 100)
    assert page is not None
    assert page.floor == 2


def test_one_event(store: Store) -> None:
    published(store.writer, "t", "a")
    event = store.source.event(1, 1)
    assert event is not None
    assert event.message().data == Draft(b"a").data
    assert store.source.event(1, 2) is None
    assert store.source.event(2, 1) is None


def test_a_store_that_cannot_be_read_has_nothing_now(store: Store) -> None:
    published(store.writer, "t", "a")
    store.writer._connection.execute("alter table event rename to away")
    assert store.source.page(1, 0, 100) is None
    with pytest.raises(Unreadable, match="no such table"):
        store.source.event(1, 1)
    store.writer._connection.execute("alter table away rename to event")
    assert ids(store) == [1]


def test_a_topic_that_does_not_exist(store: Store) -> None:
    assert store.source.page(9, 0, 100) is None
