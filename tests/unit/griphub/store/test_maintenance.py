"""Check, vacuum, back up, restore, export and import of a store's file."""

from __future__ import annotations

import pathlib
import sqlite3

import orjson
import pytest

from griphub.store.cursor import Cursor, is_known
from griphub.store.errors import StoreInUse, StoreProblem
from griphub.store.event import Draft
from griphub.store.maintenance import back_up, check, export, import_events, restore, sizes, vacuum
from griphub.store.publication import Publication
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.subscription import SubscriptionProgress
from griphub.store.topic import Retention, TopicSettings
from tests.support.store_conformance import history, made, published, subscribed, texts, trim


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a store with two topics."""
    path = tmp_path / "hub.db"
    writer = SqliteWriter(path)
    writer.put_topic("a", TopicSettings(Retention(events=3), labels={"team": "x"}))
    writer.put_topic("b", TopicSettings())
    published(writer, "a", "1", "2", "k=3", "-k", "5")
    published(writer, "b", "only")
    writer.append([Publication("b", (Draft(b"\xff\x00", "image/png", None, "put", {"n": "v"}),))])
    subscribed(writer, 2, position=6)
    [topic] = [each for each in sizes(path) if each.name == "a"]
    trim(writer, topic.number)
    writer.close()
    return path


def damage(path: pathlib.Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_sound_store_has_no_problems(path: pathlib.Path) -> None:
    assert check(path) == []


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("update topic set count = 7 where name = 'a'", "topic a: it counts 7 events"),
        ("update topic set last = 99 where name = 'b'", "topic b: its last event is not 99"),
        ("update meta set v = 4 where k = 'next_id'", "event 4: ids were issued up to 4 only"),
        ("update event set ts = 1 where id = 7", "events 6 and 7: their times do not increase"),
        ("update event set prev = 4 where id = 7", "topic"),
        ("update event set t = 9 where id = 7", "event 7: there is no topic 9"),
        ("update subscription set t = 9", "subscription 1: there is no topic 9"),
        ("update subscription set position = 8", "subscription 1: its position is 8, and ids were issued up to 7 only"),
    ],
)
def test_damage_is_found(path: pathlib.Path, statement: str, problem: str) -> None:
    damage(path, statement)
    problems = check(path)
    if problem == "topic":
        assert "event 7: its predecessor is not 4" in problems
    else:
        assert [line for line in problems if line.startswith(problem)] != []


def test_a_torn_file_is_reported(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 5] = b"\xff" * 8192
    path.write_bytes(data)
    assert check(path) != []


def test_sizes_have_the_largest_first(path: pathlib.Path) -> None:
    assert [(topic.name, topic.count) for topic in sizes(path)] == [("a", 3), ("b", 2)]


def test_vacuum_gives_space_back(path: pathlib.Path) -> None:
    writer = SqliteWriter(path)
    topic = made(writer, "a", TopicSettings(Retention(events=1)))
    published(writer, "a", *["x" * 10_000] * 100)
    trim(writer, topic.number)
    with pytest.raises(StoreInUse):
        vacuum(path)
    writer.close()
    before, after = vacuum(path)
    assert after < before / 5
    assert check(path) == []


def test_a_backup_of_a_store_in_use_is_one_moment_of_it(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "copy.db"
    writer = SqliteWriter(path)
    back_up(path, copy)
    published(writer, "b", "later")
    writer.close()
    assert check(copy) == []
    assert [topic.last for topic in sizes(copy)] == [5, 7]
    with pytest.raises(StoreProblem, match="exists"):
        back_up(path, copy)
    assert sorted(file.name for file in tmp_path.iterdir() if ".part" in file.name) == []


def test_a_restore_begins_an_epoch(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    copy, restored = tmp_path / "copy.db", tmp_path / "restored.db"
    back_up(path, copy)
    writer = SqliteWriter(path)
    lost = Cursor(writer.state().epoch, published(writer, "b", "lost").ids[0])
    writer.close()
    with pytest.raises(StoreProblem, match="exists: move it away"):
        restore(copy, path)
    epoch = restore(copy, restored)
    reader = SqliteReader(restored)
    state = reader.state()
    assert state.epoch == epoch != lost.epoch
    assert not is_known(lost, state.intervals, state.newest)
    assert is_known(Cursor(lost.epoch, lost.id - 1), state.intervals, state.newest)
    reader.close()
    assert check(restored) == []


def test_subscriptions_go_on_where_they_were_when_a_backup_was_made(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    copy, restored = tmp_path / "copy.db", tmp_path / "restored.db"
    back_up(path, copy)
    writer = SqliteWriter(path)
    [lost] = published(writer, "b", "lost").ids
    # Events were delivered, and a subscription was made, that the backup does not have.
    writer.subscriptions.save([SubscriptionProgress(1, lost, True, "", "")])
    subscribed(writer, 2, "later")
    writer.close()
    restore(copy, restored)
    reader, writer = SqliteReader(restored), SqliteWriter(restored)
    [subscription] = reader.subscriptions()
    assert (subscription.id, subscription.position, subscription.confirmed) == ("s", 6, False)
    topic = reader.topic("b")
    assert topic is not None
    published(writer, "b", "further")
    # All that is retained behind the position is delivered, and nothing below a new id is waited for.
    further = history(reader, topic, subscription.position)
    assert [event.data for event in further] == [b"\xff\x00", b"further"]
    writer.subscriptions.save([SubscriptionProgress(1, further[-1].id, True, "", "")])
    assert reader.subscriptions()[0].position == further[-1].id
    reader.close()
    writer.close()
    assert check(restored) == []


def test_an_export_is_imported_again(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    lines = list(export(path))
    other = tmp_path / "other.db"
    assert import_events(other, lines) == 5
    stores = [SqliteReader(path), SqliteReader(other)]
    for name in ("a", "b"):
        topics = [reader.topic(name) for reader in stores]
        assert topics[0] is not None
        assert topics[1] is not None
        assert topics[0].settings == topics[1].settings
        events = [history(reader, topic, topic.floor) for reader, topic in zip(stores, topics, strict=True) if topic]
        assert [(e.data, e.key, e.op, e.content_type, dict(e.attributes)) for e in events[0]] == [
            (e.data, e.key, e.op, e.content_type, dict(e.attributes)) for e in events[1]
        ]
    assert texts(history(stores[1], stores[1].topics()[0])) == ["k=3", "-k", "5"]
    for reader in stores:
        reader.close()
    [header, first, *_] = map(orjson.loads, export(path, ["b"]))
    assert header["topic"] == "b"
    assert (first["id"], first["data"]) == ("6", "only")
    with pytest.raises(StoreProblem, match="has no topic 'none'"):
        list(export(path, ["none"]))


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"{}", b'{"topic": "t"}', b'{"id": "1", "version": "1", "content_type": "a", "data": 5}']
)
def test_a_bad_line_is_named(tmp_path: pathlib.Path, line: bytes) -> None:
    header = b'{"topic": "t", "settings": {"retention": {}, "labels": {}}}'
    with pytest.raises(StoreProblem, match="line 2 is no line of an export"):
        import_events(tmp_path / "hub.db", [header, line])
