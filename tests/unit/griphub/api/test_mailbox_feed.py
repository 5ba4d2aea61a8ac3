"""Stored events in, messages and wake-ups of the mailboxes out."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

from griphub.api.mailbox_channel import MailboxChannels
from griphub.api.mailbox_feed import MailboxFeed, reply_body
from griphub.mailboxes.commands import Command, CommandBatch
from griphub.mailboxes.decisions import Messages
from griphub.mailboxes.mailboxes import CHECK_INTERVAL, Mailboxes
from griphub.mailboxes.messages import Ended, Lost, Reply
from griphub.store.cursor import EpochInterval
from griphub.store.event import Event
from griphub.store.topic import Topic, TopicSettings
from griphub.topics.event_text import Epochs
from griphub.topics.topic_table import TopicTable

EPOCHS = Epochs([EpochInterval("e", 1, None)])


class House:
    """A feed with the topics "t" (7) and "u" (8), and a subscriber "s" of the owner "o" that follows the first."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.now = 0.0
        topics = TopicTable()
        for number, name in ((7, "t"), (8, "u")):
            topics.set(Topic(number, name, 0, 0, 0, 0, 0, 0, 0, TopicSettings()))
        mailboxes = Mailboxes("p", subscriber_timeout=100)
        channels = MailboxChannels("hub/", lambda channel, item: self.items.append(json.loads(item)), 0)
        self.later: deque[Callable[[], None]] = deque()
        self.feed = MailboxFeed(mailboxes, channels, topics, EPOCHS, lambda: self.now, self.later.append)
        batch = CommandBatch(1, (Command(True, "t"),))
        mailboxes.commands("s", "o", batch, lambda topic, key: 0, 0.0)

    def poll(self) -> dict[str, Any] | None:
        """Poll; return the answer, None if the poll is held."""
        decision = self.feed.mailboxes.poll("s", "o", 0, None, self.now)
        if isinstance(decision, Messages):
            return dict(json.loads(reply_body(decision.reply, EPOCHS)))
        self.feed.channels.hold("s")
        return None


def event(id: int, key: str | None = None) -> Event:
    return Event(id, id - 1, id, id * 10**6, b"%d" % id, "application/json", key, "put", {})


def test_only_topics_with_subscriptions_are_wanted() -> None:
    house = House()
    assert [house.feed.wants(number) for number in (7, 8, 9)] == [True, False, False]
    house.feed.forget("s")
    assert not house.feed.wants(7)


def test_a_held_poll_is_woken_once_and_has_all_messages() -> None:
    house = House()
    assert house.poll() is None
    house.feed.take(7, [event(1), event(2, "k")])
    assert [item["formats"]["http-response"] for item in house.items] == [{"action": "hint"}]
    answer = house.poll()
    assert answer is not None
    assert [(message["sequence_id"], message["topic"]) for message in answer["messages"]] == [("1", "t"), ("2", "t")]
    assert answer["messages"][1]["event"]["key"] == "k"


def test_losses_and_ends_are_reported_by_cursor_and_name() -> None:
    reply = Reply("p", lost=(Lost("t", None, 4), Lost("t", "k", 5)), ended=(Ended("u", None), Ended("u", "k")))
    assert json.loads(reply_body(reply, EPOCHS)) == {
        "publisher_id": "p",
        "messages": [],
        "lost": [{"topic": "t", "last_id": "e.4"}, {"topic": "t", "key": "k", "last_id": "e.5"}],
        "ended": [{"topic": "u"}, {"topic": "u", "key": "k"}],
    }


def test_the_end_of_a_right_wakes_the_poll() -> None:
    house = House()
    house.poll()
    house.feed.withdraw("s", {"t"})
    assert len(house.items) == 1
    answer = house.poll()
    assert answer is not None
    assert answer["ended"] == [{"topic": "t"}]


def test_what_is_for_very_many_goes_on_in_later_turns() -> None:
    house = House()
    batch = CommandBatch(1, (Command(True, "t"),))
    for number in range(900):
        house.feed.mailboxes.commands(f"o{number}", "other", batch, lambda topic, key: 0, 0.0)
    house.feed.take(7, [event(1), event(2)])
    assert house.feed.mailboxes.size == 2 * message_cost(house), "those of another owner have them"
    turns = 0
    while house.later:
        assert len(house.later) == 1
        house.later.popleft()()
        turns += 1
    assert (turns, house.feed.mailboxes.size) == (3, 2 * 901 * message_cost(house))
    house.feed.take(7, [event(3)])
    house.feed.end("t")
    assert len(house.later) == 1, "one call for all that is left"
    house.later.popleft()()
    answer = house.poll()
    assert answer is not None
    assert (answer["messages"], answer["ended"]) == ([], [{"topic": "t"}])
    assert (house.feed.mailboxes.size, len(house.later)) == (0, 0)


def message_cost(house: House) -> int:
    """Return the bytes that a message counts for."""
    [box] = house.feed.mailboxes.summaries("o", 0.0)
    return box.bytes // box.messages


def test_a_removed_mailbox_wakes_its_poll() -> None:
    house = House()
    house.poll()
    assert house.feed.forget("s")
    assert [item["formats"]["http-response"] for item in house.items] == [{"action": "hint"}]
    assert not house.feed.forget("s")
    assert not house.feed.channels.has("s")


def test_silent_subscribers_are_looked_for_now_and_then() -> None:
    house = House()
    house.poll()
    house.now = 101.0
    house.feed.check()
    [answer] = house.items
    assert json.loads(answer["formats"]["http-response"]["body"])["messages"] == []
    house.now = 101.0 + CHECK_INTERVAL - 1
    house.feed.check()
    house.now = 202.0
    house.feed.check()
    assert len(house.feed.mailboxes) == 0
    assert not house.feed.channels.has("s")
