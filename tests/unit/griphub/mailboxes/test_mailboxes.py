"""Mailboxes: commands and polls in, decisions and wake-ups out."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Iterable

import pytest

from griphub.mailboxes.bounds import Bounds, MailboxLimit
from griphub.mailboxes.commands import Command, CommandBatch
from griphub.mailboxes.decisions import (
    Applied,
    Checked,
    CommandDecision,
    Conflict,
    Emptied,
    Forbidden,
    Hold,
    Messages,
    PollDecision,
    Unknown,
    WakeUp,
)
from griphub.mailboxes.mailboxes import END_MAX, SUBSCRIBER_TIMEOUT, Mailboxes, OutOfOrder
from griphub.mailboxes.messages import MESSAGE_COST, Ended, Lost


class Hub:
    """Mailboxes with short calls, and a topic's last id in ``last``."""

    def __init__(self, bounds: Bounds | None = None, publisher_id: str = "p1") -> None:
        self.mailboxes = Mailboxes(publisher_id, bounds)
        self.last: dict[str, int | None] = {}
        self.now = 0.0
        self.ids: dict[str, str] = {}
        """Ids of the publisher, by subscriber."""

    def commands(self, sequence: int, *texts: str, subscriber: str = "s", owner: str = "o") -> CommandDecision:
        """Each text is ``+topic`` or ``-topic``, with a key behind a colon."""
        commands = tuple(Command(text[0] == "+", *_pair(text[1:])) for text in texts)
        batch = CommandBatch(sequence, commands)
        decision = self.mailboxes.commands(
            subscriber, owner, batch, lambda topic, key: self.last.get(topic, 0), self.now
        )
        if isinstance(decision, Applied):
            self.ids[subscriber] = decision.publisher_id
            return dataclasses.replace(decision, publisher_id=self.mailboxes.publisher_id)
        return decision

    def poll(
        self, number: int = 0, publisher: str | None = "", subscriber: str = "s", owner: str = "o"
    ) -> PollDecision:
        """Poll with the id of the last answer to commands, or with another one."""
        publisher = self.ids.get(subscriber) if publisher == "" else publisher
        return self.mailboxes.poll(subscriber, owner, number, publisher, self.now)

    def publish(self, id: int, text: str, size: int = 10) -> list[WakeUp]:
        topic, key = _pair(text)
        self.last[topic] = id
        return list(self.mailboxes.publish(topic, key, id, f"payload {id}", size, self.now))


def _pair(text: str) -> tuple[str, str | None]:
    topic, _, key = text.partition(":")
    return topic, key or None


def ids(decision: PollDecision) -> list[int]:
    assert isinstance(decision, Messages)
    return [message.id for message in decision.reply.messages]


def lost(decision: PollDecision) -> Iterable[Lost]:
    assert isinstance(decision, Messages)
    return decision.reply.lost


# --- scenarios


def test_23_a_number_counts_only_with_the_current_publisher_id() -> None:
    hub = Hub(publisher_id="p2")
    hub.commands(1, "+t")
    hub.publish(5, "t")
    assert ids(hub.poll(5, "p1.1")) == [5]
    assert ids(hub.poll(5, None)) == [5]
    assert isinstance(hub.poll(5), Hold)
    decision = hub.poll(5, "p1.1")
    assert isinstance(decision, Messages)
    assert (decision.older, decision.reply.publisher_id, ids(decision)) == (3, "p2.1", [])


def test_24_a_late_repetition_of_the_first_batch_does_not_hide_that_a_subscriber_was_forgotten() -> None:
    hub = Hub()
    hub.commands(1, "+t")
    former = hub.ids["s"]
    hub.mailboxes.forget("s")
    hub.publish(1, "t")
    hub.commands(1, "+t")
    decision = hub.poll(0, former)
    assert isinstance(decision, Messages)
    assert decision.reply.publisher_id == hub.ids["s"] != former
    assert hub.mailboxes.publisher_id_of("s") == hub.ids["s"]
    assert hub.mailboxes.publisher_id_of("unknown") is None


def test_24_a_forgotten_subscriber_is_unknown_until_its_next_commands() -> None:
    hub = Hub()
    assert hub.poll() == Unknown()
    hub.commands(1, "+t")
    hub.now = SUBSCRIBER_TIMEOUT
    assert hub.mailboxes.check(hub.now).forgotten == ("s",)
    hub.publish(1, "t")
    assert hub.poll() == Unknown()
    assert len(hub.mailboxes) == 0
    assert hub.commands(2, "+t") == Conflict(2, (1,))
    assert hub.commands(1, "+t") == Applied("p1", 1, (1,))
    assert isinstance(hub.poll(), Hold)


def test_25_a_repeated_batch_gets_the_stored_answer_and_an_older_one_undoes_nothing() -> None:
    hub = Hub()
    hub.last["t"] = 7
    assert hub.commands(1, "+t") == Applied("p1", 1, (7,))
    hub.publish(9, "u")
    hub.last["t"] = 8
    assert hub.commands(1, "+t") == Applied("p1", 1, (7,), repeated=True)
    assert hub.commands(2, "-t") == Applied("p1", 2, ())
    assert hub.commands(1, "+t") == Conflict(1, (2, 3))
    assert hub.commands(4, "+t") == Conflict(4, (2, 3))
    assert hub.publish(10, "t") == []
    assert isinstance(hub.poll(), Hold)


def test_25_other_commands_under_the_last_number_are_a_conflict() -> None:
    hub = Hub()
    hub.commands(1, "+t")
    assert hub.commands(1, "+u") == Conflict(1, (1, 2))


def test_26_the_newest_of_two_polls_is_held_and_has_everything() -> None:
    hub = Hub()
    hub.commands(1, "+t")
    first = hub.poll()
    assert first == Hold(1)
    assert hub.poll() == Hold(2, older=1)
    assert hub.publish(1, "t") == [WakeUp("s", 2)]
    assert hub.publish(2, "t") == []
    assert ids(hub.poll()) == [1, 2]
    assert ids(hub.poll()) == [1, 2]
    assert hub.poll(2) == Hold(5)
    assert hub.poll(0) == Hold(6, older=5), "an older poll that arrives late: acknowledged messages do not return"
    assert hub.poll(2) == Hold(7, older=6)


def test_27_a_message_above_the_reply_size_is_given_alone() -> None:
    hub = Hub(Bounds(reply_bytes=100))
    hub.commands(1, "+t")
    for id, size in ((1, 1000), (2, 1000), (3, 50), (4, 50), (5, 1)):
        hub.publish(id, "t", size)
    assert ids(hub.poll()) == [1]
    assert ids(hub.poll(1)) == [2]
    assert ids(hub.poll(2)) == [3, 4]
    assert ids(hub.poll(4)) == [5]


def test_28_key_and_topic_followed_deliver_once() -> None:
    hub = Hub()
    hub.commands(1, "+t:k", "+t", "+t:j")
    assert hub.mailboxes.keys == 3
    assert hub.poll() == Hold(1)
    assert hub.publish(1, "t:k") == [WakeUp("s", 1)]
    hub.publish(2, "t")
    hub.publish(3, "t:x")
    assert ids(hub.poll()) == [1, 2, 3]


# --- commands


def test_the_answer_names_the_last_id_of_each_subscribe_and_refuses_some() -> None:
    hub = Hub()
    hub.last.update(t=7, gone=None)
    assert hub.commands(1, "+t:a", "-t:b", "+gone", "+u") == Applied("p1", 1, (7, None, 0))
    assert hub.mailboxes.keys == 2


def test_a_refused_subscribe_ends_an_earlier_subscription() -> None:
    hub = Hub()
    hub.commands(1, "+t")
    hub.last["t"] = None
    assert hub.commands(2, "+t") == Applied("p1", 2, (None,))
    assert hub.mailboxes.keys == 0


def test_the_last_command_of_a_batch_wins() -> None:
    hub = Hub()
    hub.commands(1, "+t", "-t", "+u", "-u", "+u")
    hub.publish(1, "t")
    hub.publish(2, "u")
    hub.commands(2, "-u", "+u")
    assert ids(hub.poll()) == [2]


def test_an_unsubscribe_drops_messages_unless_another_subscription_matches() -> None:
    hub = Hub()
    hub.commands(1, "+t:a", "+t:b", "+u")
    for id, text in enumerate(("t:a", "t:b", "u"), 1):
        hub.publish(id, text)
    hub.commands(2, "+t", "-t:a")
    assert ids(hub.poll()) == [1, 2, 3]
    hub.commands(3, "-t")
    assert ids(hub.poll()) == [2, 3]
    hub.commands(4, "-t:b", "-u")
    assert hub.mailboxes.size == 0
    assert isinstance(hub.poll(), Hold)


def test_the_mailbox_of_another_owner_is_forbidden() -> None:
    hub = Hub()
    hub.commands(1, "+t")
    assert hub.commands(2, "-t", owner="x") == Forbidden()
    assert hub.poll(owner="x") == Forbidden()
    assert (hub.mailboxes.owner_of("s"), hub.mailboxes.owner_of("z")) == ("o", None)


def test_limits_refuse_a_batch_whole() -> None:
    hub = Hub(Bounds(keys_each=2, keys_total=3, mailboxes_each=1, mailboxes_total=2))
    with pytest.raises(MailboxLimit, match="2 keys per mailbox"):
        hub.commands(1, "+a", "+b", "+c")
    assert len(hub.mailboxes) == 0
    hub.commands(1, "+a", "+b")
    with pytest.raises(MailboxLimit, match="2 keys per mailbox"):
        hub.commands(2, "+c")
    assert hub.commands(2, "+c", "-a", "+b") == Applied("p1", 2, (0, 0))
    with pytest.raises(MailboxLimit, match="1 mailboxes per owner"):
        hub.commands(1, "+a", subscriber="s2")
    with pytest.raises(MailboxLimit, match="3 keys in total"):
        hub.commands(1, "+a", "+b", subscriber="s2", owner="o2")
    hub.commands(1, "+a", subscriber="s2", owner="o2")
    with pytest.raises(MailboxLimit, match="2 mailboxes in total"):
        hub.commands(1, subscriber="s3", owner="o3")
    assert hub.mailboxes.keys == 3


# --- bounds of messages


def test_over_its_bound_a_mailbox_loses_the_oldest_and_reports_them() -> None:
    hub = Hub(Bounds(messages=2))
    hub.commands(1, "+t:a", "+t:b")
    for id, text in enumerate(("t:a", "t:b", "t:a", "t:a"), 1):
        hub.publish(id, text)
    decision = hub.poll()
    assert (lost(decision), ids(decision)) == ((("t", "a", 1), ("t", "b", 2)), [3, 4])
    decision = hub.poll(1)
    assert (lost(decision), ids(decision)) == ((("t", "b", 2),), [3, 4])
    decision = hub.poll(3)
    assert (lost(decision), ids(decision)) == ((), [4])
    assert hub.mailboxes.lost == 2


def test_a_loss_to_a_follower_of_the_whole_topic_names_the_topic() -> None:
    hub = Hub(Bounds(messages=1))
    hub.commands(1, "+t", "+t:a")
    hub.publish(1, "t:a")
    hub.publish(2, "t:b")
    assert lost(hub.poll()) == (("t", None, 1),)


def test_a_message_above_the_bound_of_a_mailbox_is_a_loss_that_wakes() -> None:
    hub = Hub(Bounds(bytes_each=500))
    hub.commands(1, "+t")
    assert hub.poll() == Hold(1)
    assert hub.publish(1, "t", 1000) == [WakeUp("s", 1)]
    decision = hub.poll()
    assert (lost(decision), ids(decision)) == ((("t", None, 1),), [])
    assert hub.poll(1) == Hold(3)


def test_messages_given_but_lost_before_the_acknowledgement_are_no_loss_to_who_has_them() -> None:
    hub = Hub(Bounds(messages=2))
    hub.commands(1, "+t")
    hub.publish(1, "t")
    hub.publish(2, "t")
    assert ids(hub.poll()) == [1, 2]
    hub.publish(3, "t")
    hub.publish(4, "t")
    decision = hub.poll(2)
    assert (lost(decision), ids(decision)) == ((), [3, 4])


def test_over_the_total_the_largest_owner_loses_and_the_others_do_not() -> None:
    hub = Hub(Bounds(bytes_total=10_000))
    hub.commands(1, "+small", subscriber="small", owner="a")
    hub.commands(1, "+large", subscriber="large", owner="b")
    hub.publish(1, "small", 900)
    for id in range(2, 30):
        hub.publish(id, "large", 900)
        assert hub.mailboxes.size <= 10_000
    assert ids(hub.poll(subscriber="small", owner="a")) == [1]
    decision = hub.poll(subscriber="large", owner="b")
    assert (lost(decision), ids(decision)) == ((("large", None, 20),), list(range(21, 30)))


def test_ids_have_to_grow() -> None:
    hub = Hub()
    hub.publish(5, "t")
    with pytest.raises(OutOfOrder, match="message 5 of 't' follows message 5"):
        hub.publish(5, "t")


def test_a_payload_is_in_memory_once() -> None:
    hub = Hub()
    for name in ("a", "b"):
        hub.commands(1, "+t", subscriber=name)
    hub.publish(1, "t")
    found = [hub.poll(subscriber=name) for name in ("a", "b")]
    assert ids(found[0]) == [1]
    assert found[0].reply.messages[0] is found[1].reply.messages[0]  # type: ignore[union-attr]


# --- ends


def test_a_deleted_topic_ends_its_subscriptions_and_is_reported() -> None:
    hub = Hub()
    hub.commands(1, "+t", "+t:a", "+u")
    hub.commands(1, "+u", subscriber="s2")
    hub.publish(1, "t:a")
    hub.publish(2, "u")
    hub.poll()
    assert hub.poll(2) == Hold(2)
    assert hub.mailboxes.delete_topic("t", 0) == [WakeUp("s", 2)]
    assert hub.mailboxes.keys == 2
    decision = hub.poll(2)
    assert isinstance(decision, Messages)
    assert set(decision.reply.ended) == {Ended("t", None), Ended("t", "a")}
    hub.commands(2, "-t", "+t:a")
    assert isinstance(hub.poll(2), Hold)
    assert hub.mailboxes.keys == 3


def test_a_topic_of_many_keys_ends_in_slices() -> None:
    mailboxes = Mailboxes("p")
    for number in range(3):
        for sequence in range(1, 3):
            keys = [Command(True, "t", f"{number}.{sequence}.{key}") for key in range(2000)]
            mailboxes.commands(f"s{number}", "o", CommandBatch(sequence, tuple(keys)), lambda topic, key: 0, 0.0)
    mailboxes.delete_topic("t", 0.0)
    left = [mailboxes.keys]
    assert not mailboxes.follows("t")
    while mailboxes.ending:
        mailboxes.end_more(0.0)
        left.append(mailboxes.keys)
    assert left == [12_000 - END_MAX, 12_000 - 2 * END_MAX, 12_000 - 3 * END_MAX, 0]


def test_a_topic_with_many_followers_ends_in_slices_and_a_later_one_keeps_its_own() -> None:
    hub = Hub(Bounds(mailboxes_each=2 * END_MAX))
    names = [f"s{number}" for number in range(END_MAX + 10)]
    for name in names:
        hub.commands(1, "+t", "+u", subscriber=name)
    assert hub.poll(subscriber=names[-1]) == Hold(1)
    assert hub.mailboxes.delete_topic("t", 0) == []
    assert (hub.mailboxes.ending, hub.mailboxes.keys) == (True, END_MAX + 20)
    # A topic of that name is made again, and followed before the end of the former one has come to the subscriber.
    hub.commands(2, "+t", subscriber=names[-2])
    hub.mailboxes.forget(names[-3])
    assert hub.mailboxes.end_more(0) == [WakeUp(names[-1], 1)]
    assert not hub.mailboxes.ending
    hub.publish(1, "t")
    ended = {name: hub.poll(subscriber=name) for name in names[-2:]}
    assert ids(ended[names[-2]]) == [1]
    assert [bool(each.reply.ended) for each in ended.values() if isinstance(each, Messages)] == [False, True]


def test_an_owner_leaves_keys_for_the_others() -> None:
    mailboxes = Mailboxes("p", Bounds(keys_owner=3))
    pair = CommandBatch(1, (Command(True, "t", "a"), Command(True, "t", "b")))
    mailboxes.commands("a", "o", pair, lambda topic, key: 0, 0.0)
    with pytest.raises(MailboxLimit, match="3 keys per owner"):
        mailboxes.commands("b", "o", pair, lambda topic, key: 0, 0.0)
    mailboxes.commands("b", "other", pair, lambda topic, key: 0, 0.0)
    mailboxes.forget("a")
    assert isinstance(mailboxes.commands("c", "o", pair, lambda topic, key: 0, 0.0), Applied)


def test_a_withdrawn_right_ends_the_subscriptions_of_its_owner_and_drops_their_messages() -> None:
    hub = Hub()
    hub.commands(1, "+t", "+u")
    hub.commands(1, "+t", subscriber="s2", owner="o2")
    hub.publish(1, "t")
    hub.publish(2, "u")
    assert hub.mailboxes.withdraw("s", {"t"}, 0) == []
    assert ids(hub.poll()) == [2]
    assert ids(hub.poll(subscriber="s2", owner="o2")) == [1]
    assert hub.mailboxes.withdraw("s", {"unknown"}, 0) == []
    assert hub.mailboxes.withdraw("unknown", {"t"}, 0) == []


def test_without_polls_a_held_one_is_answered_and_then_the_subscriber_forgotten() -> None:
    hub = Hub()
    hub.commands(1, "+t")
    assert hub.poll() == Hold(1)
    assert hub.mailboxes.check(299.9) == Checked((), (), False)
    assert hub.mailboxes.check(300.0) == Checked((Emptied("s", 1, 2),), (), False)
    assert hub.mailboxes.check(599.9) == Checked((), (), False)
    assert hub.mailboxes.check(600.0) == Checked((), ("s",), False)
    assert (hub.poll(), hub.mailboxes.keys) == (Unknown(), 0)
    hub.commands(1, "+t")
    assert hub.poll() == Hold(3), "numbers of polls are never used again"


def test_a_woken_subscriber_has_the_whole_timeout_to_return() -> None:
    hub = Hub()
    hub.commands(1, "+t")
    hub.poll()
    hub.now = 299.0
    assert hub.publish(1, "t") == [WakeUp("s", 1)]
    assert hub.mailboxes.check(301.0) == Checked((), (), False)
    assert hub.mailboxes.check(599.0).forgotten == ("s",)
    assert hub.mailboxes.size == 0


def test_a_check_ends_early_behind_many_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("griphub.mailboxes.mailboxes.FORGET_MAX", 2)
    hub = Hub()
    for name in "abc":
        hub.commands(1, "+t", subscriber=name)
    assert hub.mailboxes.check(300.0) == Checked((), ("a",), True)
    assert hub.mailboxes.check(300.0) == Checked((), ("b",), True)
    assert hub.mailboxes.check(300.0) == Checked((), ("c",), False)
    assert not hub.mailboxes.forget("c")


# --- cost


@pytest.mark.parametrize(("distinct", "most"), [(False, 2000), (True, 3500)])
def test_memory_of_an_idle_mailbox_with_ten_keys(distinct: bool, most: int) -> None:
    hub = Hub()
    number = 500

    def batch(subscriber: int) -> CommandBatch:
        keys = (f"key {subscriber if distinct else subscriber % 50} {key}" for key in range(10))
        return CommandBatch(1, tuple(Command(True, "topic", key) for key in keys))

    hub.mailboxes.commands("warm", "o", batch(0), lambda topic, key: 10**6, 0)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for subscriber in range(number):
            name = f"subscriber {subscriber}"
            hub.mailboxes.commands(name, "o", batch(subscriber), lambda topic, key: 10**6, 0.5)
            hub.mailboxes.poll(name, "o", 0, None, 0.5)
        taken = (tracemalloc.get_traced_memory()[0] - before) / number
    finally:
        tracemalloc.stop()
    assert MESSAGE_COST < taken < most
