"""Subscriptions of the push API in the SQLite engine."""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace

import pytest

from griphub.store.event import Draft
from griphub.store.maintenance import check
from griphub.store.publication import Condition, Publication, Published, Refused
from griphub.store.pubsub_subscription import BacklogProgress, PubsubSubscription
from griphub.store.schema import FORMAT
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.topic import TopicSettings

SETTINGS = {"name": "projects/p/subscriptions/one", "ackDeadlineSeconds": 10, "pushConfig": {}}


class Store:
    """A store with the topics ``p/tt`` and ``p/dead``."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.writer = SqliteWriter(path, "off")
        self.topic = self.make_topic("p/tt")
        self.make_topic("p/dead")
        self.reader = SqliteReader(path)

    def make_topic(self, name: str) -> int:
        made = self.writer.put_topic(name, TopicSettings())
        assert made is not None
        return made[0].number

    def draft(self, id: str = "one", project: str = "p", **changes: object) -> PubsubSubscription:
        plain = PubsubSubscription(0, project, id, self.topic, "owner", SETTINGS, 0, created=5, used=5)
        return replace(plain, **changes)  # type: ignore[arg-type]

    def made(self, id: str = "one", project: str = "p", **changes: object) -> PubsubSubscription:
        made = self.writer.pubsub.make(self.draft(id, project, **changes))
        assert isinstance(made, PubsubSubscription)
        return made

    def publish(self, topic: str = "p/tt", number: int = 1) -> int:
        [outcome] = self.writer.append([Publication(topic, (Draft(b"x"),) * number)])
        assert isinstance(outcome, Published)
        return outcome.ids[-1]

    @property
    def all(self) -> list[PubsubSubscription]:
        return self.reader.pubsub()

    def again(self) -> None:
        self.writer.close()
        self.writer = SqliteWriter(self.path, "off")

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[Store]:
    store = Store(tmp_path / "hub.db")
    yield store
    store.close()


def progress(of: PubsubSubscription, position: int, **changes: object) -> BacklogProgress:
    plain = BacklogProgress(of.number, of.generation, position, b"", {}, 0)
    return replace(plain, **changes)  # type: ignore[arg-type]


class TestMaking:
    def test_one_is_stored_as_it_is(self, store: Store) -> None:
        made = store.made()
        assert made == replace(store.draft(), number=1)
        assert store.all == [made]
        assert made.settings == SETTINGS

    def test_a_name_is_there_once(self, store: Store) -> None:
        made = store.made()
        assert store.writer.pubsub.make(store.draft()) == "exists"
        assert store.writer.pubsub.make(store.draft(owner="another")) == "exists"
        assert store.made("two").number == 2
        assert store.made("one", project="q").number == 3
        assert store.all[0] == made

    def test_it_needs_its_topic(self, store: Store) -> None:
        assert store.writer.pubsub.make(store.draft(topic=99)) is None

    def test_bounds(self, store: Store) -> None:
        store.made()
        other = store.make_topic("p/uu")
        make = store.writer.pubsub.make
        assert make(store.draft("two"), project_max=1) == "project"
        assert make(store.draft("two"), topic_max=1) == "topic"
        assert isinstance(make(store.draft("two", topic=other), project_max=2, topic_max=1), PubsubSubscription)
        # Of a name that is there, the bound makes no difference.
        assert make(store.draft("one"), project_max=1) == "exists"
        store.again()
        assert store.writer.pubsub.make(store.draft("three"), project_max=2) == "project"
        assert store.writer.pubsub.delete(1)
        assert isinstance(store.writer.pubsub.make(store.draft("three"), project_max=2), PubsubSubscription)

    def test_no_position_is_above_the_newest_event(self, store: Store) -> None:
        newest = store.publish()
        assert store.made(position=newest + 1000).position == newest

    def test_a_number_is_not_used_again(self, store: Store) -> None:
        store.made()
        assert store.writer.pubsub.delete(1)
        assert not store.writer.pubsub.delete(1)
        store.again()
        assert store.made().number == 2


class TestChanges:
    def test_settings(self, store: Store) -> None:
        store.made()
        changed = store.writer.pubsub.change(1, {"ackDeadlineSeconds": 20}, 9)
        assert changed is not None
        assert (changed.settings, changed.used) == ({"ackDeadlineSeconds": 20}, 9)
        assert store.all == [changed]
        assert store.writer.pubsub.change(2, {}, 9) is None

    def test_a_move_ends_the_deliveries_of_before(self, store: Store) -> None:
        newest = store.publish(number=10)
        made = store.made(position=newest, attempts={3: 1})
        moved = store.writer.pubsub.seek(1, 4, b"\x01\x01", 9)
        assert moved == replace(made, position=4, acked=b"\x01\x01", attempts={}, generation=1, used=9)
        store.writer.pubsub.save([progress(made, newest)])
        assert store.all == [moved]
        assert store.writer.pubsub.seek(2, 4, b"", 9) is None
        beyond = store.writer.pubsub.seek(1, newest + 5, b"", 9)
        assert beyond is not None
        assert beyond.position == newest


class TestProgress:
    def test_is_stored(self, store: Store) -> None:
        newest = store.publish(number=10)
        made = store.made()
        store.writer.pubsub.save([progress(made, newest - 3, acked=b"\x01\x01", attempts={newest: 4}, used=9)])
        assert store.all == [replace(made, position=newest - 3, acked=b"\x01\x01", attempts={newest: 4}, used=9)]

    def test_does_not_move_back(self, store: Store) -> None:
        newest = store.publish(number=10)
        made = store.made()
        store.writer.pubsub.save([progress(made, newest, used=9), progress(made, newest - 1, used=8)])
        assert (store.all[0].position, store.all[0].used) == (newest, 9)

    def test_beyond_the_newest_event_is_left_out(self, store: Store) -> None:
        newest = store.publish()
        made = store.made()
        store.writer.pubsub.save([progress(made, newest + 1), progress(replace(made, number=7), newest)])
        assert store.all == [made]

    def test_is_stored_with_a_publication_or_not_at_all(self, store: Store) -> None:
        store.publish()
        made = store.made()
        newest = store.publish()
        dead = Publication("p/dead", (Draft(b"x"),), progress=progress(made, newest))
        [outcome] = store.writer.append([dead])
        assert isinstance(outcome, Published)
        assert store.all[0].position == newest
        for topic, condition in (("p/none", None), ("p/dead", Condition(7))):
            refused = Publication(topic, (Draft(b"x"),), condition, progress=progress(made, newest + 1))
            [result] = store.writer.append([refused])
            assert isinstance(result, Refused)
        assert store.all[0].position == newest

    def test_both_are_lost_if_the_commit_fails(self, store: Store) -> None:
        made = store.made()
        newest = store.publish()
        store.writer._connection.execute(
            "create temp trigger broken before update on pubsub begin select raise(abort, 'broken'); end"
        )
        dead = Publication("p/dead", (Draft(b"x"),), progress=progress(made, newest))
        with pytest.raises(Exception, match="broken"):
            store.writer.append([dead])
        store.writer._connection.execute("drop trigger broken")
        assert store.all == [made]
        assert store.reader.events_after(newest, 10, 1000).events == ()


class TestTopics:
    def test_after_the_deletion_of_its_topic_a_subscription_stays_without_one(self, store: Store) -> None:
        made = store.made()
        store.writer.delete_topic("p/tt")
        assert store.all == [replace(made, topic=0, generation=1)]
        store.make_topic("p/tt")
        assert store.all[0].topic == 0
        store.again()
        assert isinstance(store.writer.pubsub.make(store.draft("two", topic=3), topic_max=1), PubsubSubscription)

    def test_a_damaged_store_is_noticed(self, store: Store) -> None:
        store.publish()
        store.made()
        store.close()
        with sqlite3.connect(store.path) as connection:
            connection.execute("update pubsub set t = 77, position = 5000")
        connection.close()
        problems = check(store.path)
        assert [text for text in problems if "push API" in text] == [
            "subscription 1 of the push API: there is no topic 77",
            "subscription 1 of the push API: its position is 5000, and ids were issued up to 1 only",
        ]
        store.writer, store.reader = SqliteWriter(store.path, "off"), SqliteReader(store.path)
        assert store.all[0].position == 1


def test_a_store_of_an_earlier_format_gets_the_table(tmp_path: pathlib.Path) -> None:
    store = Store(tmp_path / "hub.db")
    store.close()
    with sqlite3.connect(store.path) as connection:
        connection.execute("drop table pubsub")
        connection.execute("pragma user_version = 2")
    connection.close()
    store = Store(store.path)
    assert store.made().number == 1
    assert store.writer._connection.execute("pragma user_version").fetchone() == (FORMAT,)
    store.close()


def test_pages(store: Store) -> None:
    for number in range(5):
        store.made(f"sub{number}")
    assert [each.number for each in store.reader.pubsub(2, 2)] == [3, 4]
