"""Commands of the writer about subscriptions of the push API; the store is a real one."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from griphub.processes.frames import packed, unpacked
from griphub.processes.pubsub_commands import PubsubCommands
from griphub.processes.writer_process import _methods
from griphub.store.pubsub_subscription import PubsubSubscription
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.topic import TopicSettings
from tests.support.store_conformance import published

DRAFT = PubsubSubscription(0, "p", "one", 1, "owner", {"ackDeadlineSeconds": 10}, 0, created=5, used=5)


class Commands(PubsubCommands):
    """Commands that are carried out at their call; their arguments and results cross as between processes."""

    def __init__(self, path: pathlib.Path) -> None:
        self.writer = SqliteWriter(path, "off")
        self.reader = SqliteReader(path)
        self.owners: list[str] = []

    async def call(self, method: str, *arguments: Any, owner: str = "") -> Any:
        self.owners.append(owner)
        return unpacked(packed((_methods(self.writer)[method](*unpacked(packed(arguments))),)))[0]


@pytest.fixture
def commands(tmp_path: pathlib.Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "hub.db")
    commands.writer.put_topic("p/tt", TopicSettings())
    yield commands
    commands.writer.close()
    commands.reader.close()


async def test_subscriptions_are_made_changed_moved_and_deleted(commands: Commands) -> None:
    [newest] = published(commands.writer, "p/tt", "a").ids
    made = await commands.make_pubsub(DRAFT, 1, 1, owner="o")
    assert made == replace(DRAFT, number=1)
    assert await commands.make_pubsub(DRAFT, None, None, owner="o") == "exists"
    assert await commands.make_pubsub(replace(DRAFT, id="two"), 1, None, owner="o") == "project"
    assert await commands.make_pubsub(replace(DRAFT, id="two", topic=9), 9, 9, owner="o") is None
    changed = await commands.change_pubsub(1, {"labels": {"a": "b"}}, 7, owner="o")
    assert changed == replace(made, settings={"labels": {"a": "b"}}, used=7)
    assert await commands.change_pubsub(2, {}, 7, owner="o") is None
    moved = await commands.seek_pubsub(1, newest, b"\x01", 8, owner="o")
    assert moved == replace(changed, position=newest, acked=b"\x01", generation=1, used=8)
    assert await commands.seek_pubsub(2, newest, b"", 8, owner="o") is None
    assert commands.reader.pubsub() == [moved]
    assert await commands.delete_pubsub(1, owner="o")
    assert not await commands.delete_pubsub(1, owner="o")
    assert commands.reader.pubsub() == []
    assert set(commands.owners) == {"o"}


async def test_states_of_deliveries_are_stored(commands: Commands) -> None:
    [newest] = published(commands.writer, "p/tt", "a").ids
    made = await commands.make_pubsub(DRAFT, None, None)
    await commands.save_backlogs([(1, 0, newest, b"\x01\x01", '{"9":2}', 8)])
    assert commands.reader.pubsub() == [
        replace(made, position=newest, acked=b"\x01\x01", attempts={9: 2}, used=8)  # type: ignore[type-var]
    ]
