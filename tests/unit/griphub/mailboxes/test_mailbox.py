"""One mailbox: order, acknowledgement, bounds of a reply, losses and ended subscriptions."""

from __future__ import annotations

import pytest

from griphub.mailboxes.bounds import Bounds
from griphub.mailboxes.mailbox import Mailbox, MailboxOwner
from griphub.mailboxes.messages import MESSAGE_COST, Message, Reply
from griphub.mailboxes.subscriptions import TopicFollowers

BOUNDS = Bounds(reply_messages=3, reply_bytes=100, reply_ended=2)


def filled(*sizes: int) -> Mailbox:
    mailbox = Mailbox("s", MailboxOwner("o"), 0)
    for number, size in enumerate(sizes, 1):
        mailbox.add(Message("t", "k", number * 10, size, None))
    return mailbox


def ids(reply: Reply) -> list[int]:
    return [message.id for message in reply.messages]


def test_a_reply_removes_nothing() -> None:
    mailbox = filled(1, 1)
    assert ids(mailbox.reply("p", BOUNDS)) == [10, 20]
    assert ids(mailbox.reply("p", BOUNDS)) == [10, 20]
    mailbox.acknowledge(10)
    assert ids(mailbox.reply("p", BOUNDS)) == [20]
    assert mailbox.size == 1 + MESSAGE_COST
    mailbox.acknowledge(20)
    assert not mailbox.waiting
    assert mailbox.size == 0


def test_a_number_above_all_replies_counts_as_the_last_one_given() -> None:
    mailbox = filled(60, 60)
    assert ids(mailbox.reply("p", BOUNDS)) == [10]
    mailbox.acknowledge(999)
    assert ids(mailbox.reply("p", BOUNDS)) == [20]


def test_a_reply_is_bounded_by_number_and_bytes() -> None:
    assert ids(filled(1, 1, 1, 1).reply("p", BOUNDS)) == [10, 20, 30]
    assert ids(filled(50, 50, 1).reply("p", BOUNDS)) == [10, 20]
    assert ids(filled(500, 1).reply("p", BOUNDS)) == [10]


def test_losses_go_before_messages_and_are_acknowledged_like_them() -> None:
    mailbox = filled(1, 1)
    mailbox.lose("t", "k", mailbox.take_oldest().id, 9)
    mailbox.lose("t", "j", 15, 9)
    assert mailbox.reply("p", Bounds(reply_messages=1)).lost == (("t", "k", 10),)
    reply = mailbox.reply("p", Bounds(reply_messages=3))
    assert (reply.lost, ids(reply)) == ((("t", "k", 10), ("t", "j", 15)), [20])
    mailbox.acknowledge(10)
    assert mailbox.reply("p", BOUNDS).lost == (("t", "j", 15),)
    mailbox.acknowledge(15)
    assert mailbox.reply("p", Bounds()).lost == ()


def test_a_message_waits_behind_losses_that_the_reply_has_no_room_for() -> None:
    mailbox = filled(1)
    for number in range(1, 4):
        mailbox.lose("t", f"k{number}", number, 9)
    reply = mailbox.reply("p", Bounds(reply_messages=2))
    assert (len(reply.lost), ids(reply)) == (2, [])
    mailbox.acknowledge(2)
    reply = mailbox.reply("p", Bounds(reply_messages=2))
    assert (len(reply.lost), ids(reply)) == (1, [10])


def test_messages_and_losses_without_subscription_go() -> None:
    mailbox = filled(1, 1)
    mailbox.add(Message("u", None, 30, 7, None))
    mailbox.lose("t", "k", 5, 9)
    mailbox.lose("u", None, 6, 9)
    mailbox.follow(TopicFollowers("u"), None, 0)
    mailbox.keep({"u": {"x"}}, lambda topic, key: False)
    assert len(mailbox.reply("p", Bounds()).lost) == 2
    mailbox.keep({"t": {"k", None}}, lambda topic, key: (topic, key) == ("u", None))
    reply = mailbox.reply("p", Bounds())
    assert (reply.lost, ids(reply), mailbox.size) == ((("u", None, 6),), [30], 7 + MESSAGE_COST)
    mailbox.keep({"u": {None}}, lambda topic, key: False)
    assert len(mailbox) == 0


def test_an_ended_subscription_is_reported_until_a_command_confirms_it() -> None:
    mailbox = filled()
    for key in ("a", "b", "c"):
        mailbox.report("t", key)
    assert mailbox.reply("p", BOUNDS).ended == (("t", "a"), ("t", "b"))
    assert mailbox.reply("p", BOUNDS).ended == (("t", "a"), ("t", "b"))
    assert mailbox.confirm("t", "a")
    assert not mailbox.confirm("t", "a")
    assert (mailbox.reply("p", BOUNDS).ended, mailbox.ended) == ((("t", "b"), ("t", "c")), 2)


def test_bounds_of_a_mailbox_on_both_sides() -> None:
    assert not filled(1, 1).exceeds(Bounds(messages=2, bytes_each=2 + 2 * MESSAGE_COST))
    assert filled(1, 1).exceeds(Bounds(messages=1))
    assert filled(1, 1).exceeds(Bounds(bytes_each=1 + 2 * MESSAGE_COST))
    with pytest.raises(IndexError, match="empty"):
        filled().take_oldest()


def test_the_stored_answer() -> None:
    mailbox = filled()
    mailbox.answered(3, 77, (5, None, 2**63 - 1))
    assert (mailbox.sequence, mailbox.digest, mailbox.last_ids) == (3, 77, (5, None, 2**63 - 1))


def test_it_knows_what_it_follows_and_since_when() -> None:
    mailbox = filled()
    topic, other = TopicFollowers[Mailbox]("t"), TopicFollowers[Mailbox]("u")

    def wanted(id: int, key: str | None) -> bool:
        return mailbox.wants(topic, Message("t", key, id, 1, None))

    assert (mailbox.keys_of(topic), mailbox.follows(topic, None), wanted(9, None)) == ([], False, False)
    mailbox.follow(topic, None, 5)
    assert (mailbox.keys_of(topic), mailbox.keys) == ([None], 1)
    assert [wanted(id, key) for id, key in ((5, None), (6, None), (6, "a"))] == [False, True, True]
    mailbox.follow(topic, "a", 7)
    mailbox.follow(other, "a", 0)
    assert (mailbox.keys_of(topic), mailbox.keys, len(mailbox.topics)) == ([None, "a"], 3, 2)
    mailbox.unfollow(topic, None)
    assert [wanted(id, key) for id, key in ((7, "a"), (8, "a"), (8, "b"), (8, None))] == [False, True, False, False]
    assert [mailbox.follows(topic, key) for key in (None, "a")] == [False, True]
    mailbox.unfollow(topic, "a")
    assert (mailbox.keys_of(topic), list(mailbox.topics)) == ([], [other])
    mailbox.follow(topic, None, 0)
    assert list(mailbox.topics) == [topic, other]
    mailbox.unfollow(other, "a")
    assert list(mailbox.topics) == [topic]
    mailbox.follow(other, None, 0)
    mailbox.unfollow(topic, None)
    mailbox.follow(other, "b", 0)
    assert (list(mailbox.topics), mailbox.keys_of(other)) == ([other], [None, "b"])
    mailbox.close()
    assert (mailbox.keys, list(mailbox.topics)) == (0, [])
