"""Commands of the writer: records in, plain calls out; plain results in, records out. The store is a real one."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from griphub.processes.frames import packed, unpacked
from griphub.processes.writer_commands import WriterCommands
from griphub.processes.writer_process import _methods
from griphub.store.sqlite_reader import SqliteReader
from griphub.store.sqlite_writer import SqliteWriter
from griphub.store.subscription import SubscriptionProgress
from griphub.store.topic import Retention, TopicSettings
from tests.support.store_conformance import draft_of, published


class Commands(WriterCommands):
    """Commands that are carried out at their call; their arguments and results cross as between processes."""

    def __init__(self, path: pathlib.Path) -> None:
        self.writer = SqliteWriter(path, "off")
        self.reader = SqliteReader(path)
        self.calls: list[tuple[str, str]] = []
        """Methods and owners."""

    async def call(self, method: str, *arguments: Any, owner: str = "") -> Any:
        self.calls.append((method, owner))
        return unpacked(packed((_methods(self.writer)[method](*unpacked(packed(arguments))),)))[0]

    def close(self) -> None:
        self.writer.close()
        self.reader.close()


@pytest.fixture
def commands(tmp_path: pathlib.Path) -> Iterator[Commands]:
    commands = Commands(tmp_path / "hub.db")
    yield commands
    commands.close()


async def test_topics_are_made_changed_and_deleted(commands: Commands) -> None:
    settings = TopicSettings(Retention(events=1))
    made = await commands.put_topic("t", settings, "o", 1)
    assert made is not None
    topic, new = made
    assert (topic, new) == (commands.reader.topic("t"), True)
    assert await commands.put_topic("u", settings, "o", 1) is None
    raised = await commands.raise_access("t", owner="p")
    assert raised == replace(topic, access=1)
    published(commands.writer, "t", "a", "b")
    floor = await commands.wanted_floor(topic.number)
    assert floor == 1
    floored = await commands.raise_floor(topic.number, floor)
    assert floored is not None
    assert floored.floor == 1
    assert await commands.delete_slice(topic.number) is False
    deleted = await commands.delete_topic("t", owner="p")
    assert deleted is not None
    assert deleted.number == topic.number
    assert await commands.delete_topic("t") is None
    assert await commands.gone_topics() == [topic.number]
    assert await commands.forget_names() is False
    await commands.make_room()
    assert await commands.state() == commands.writer.state()
    assert commands.calls[:4] == [("put_topic", "o"), ("put_topic", "o"), ("raise_access", "p"), ("wanted_floor", "")]


async def test_subscriptions_are_made_changed_and_deleted(commands: Commands) -> None:
    await commands.put_topic("t", TopicSettings())
    [newest] = published(commands.writer, "t", "a").ids
    draft = draft_of(1)
    made = await commands.make_subscription(draft, 1, None, None, owner="o")
    assert made == replace(draft, number=1)
    assert await commands.make_subscription(draft, 1, None, None, owner="o") == made
    assert await commands.make_subscription(draft_of(1, "b"), 1, None, None, owner="o") == "topic"
    assert await commands.make_subscription(draft_of(9), None, None, None, owner="o") is None
    await commands.save_progress([SubscriptionProgress(1, newest, True, "callback", "tls")])
    assert commands.reader.subscriptions() == [
        replace(draft, number=1, position=newest, confirmed=True, rest="callback", failure="tls")
    ]
    renewed = await commands.renew_subscription(1, 77, owner="o")
    assert renewed == replace(draft, number=1, position=newest, confirmed=True, rights_end=77)
    keys = (("whsec_x", None), *draft.keys)
    assert await commands.set_subscription_keys(1, keys, owner="o") == replace(renewed, keys=keys)
    assert await commands.renew_subscription(2, 77, owner="o") is None
    assert await commands.set_subscription_keys(2, keys, owner="o") is None
    assert await commands.delete_subscription(1, "o", "s", owner="p") == 1
    assert await commands.delete_subscription(1, "o", "s", owner="p") is None
    assert commands.reader.subscriptions() == []
    assert commands.calls[-1] == ("delete_subscription", "p")
