"""Places of a subscriber: deliveries once, and histories without hole or repetition."""

from __future__ import annotations

from griphub.client.mailbox_actions import Cause, Deliver, Loss, MailboxMessage, Pair, Place, ReadHistory, Report
from griphub.client.mailbox_places import Places

T, TA, TB = Pair("t"), Pair("t", "a"), Pair("t", "b")


def settled(**last: int) -> Places:
    """Subscriptions to the topic (``t``) or keys (``a``, ``b``), settled at a last id."""
    places = Places()
    for name, id in last.items():
        pair = T if name == "t" else Pair("t", name)
        places.add(pair, None)
        assert places.settle(pair, Place(id), 0) is None
    return places


def message(id: int, key: str | None = "a") -> MailboxMessage:
    return MailboxMessage("t", key, Place(id), None)


def test_a_message_is_delivered_once_and_only_above_the_place() -> None:
    places = settled(t=5, a=7)
    assert places.receive(message(5)) == []
    assert places.receive(message(6)) == [Deliver(message(6))]
    assert places.receive(message(8)) == [Deliver(message(8))]
    assert places.receive(message(8)) == []


def test_a_message_of_an_unsettled_subscription_waits() -> None:
    places = Places()
    places.add(TA, None)
    assert places.receive(message(6)) is None
    assert places.receive(message(6, "b")) == []
    assert places.lose(Loss(TA, Place(6))) is None
    assert places.lose(Loss(T, Place(6))) is None


def test_a_subscription_from_a_place_reads_the_history_up_to_its_begin() -> None:
    places = Places()
    places.add(TA, Place(3, "e.3"))
    assert places.settle(TA, Place(9, "e.9"), 0) == ReadHistory(TA, Place(3, "e.3"), Place(9, "e.9"))
    assert places.receive(message(9)) == []
    places.add(TB, Place(9))
    assert places.settle(TB, Place(9), 0) is None


def test_in_another_life_each_subscription_is_read_from_its_place() -> None:
    places = settled(t=6, a=5)
    places.begin_again()
    assert places.receive(message(10)) is None
    assert places.settle(T, Place(9), 0) == ReadHistory(T, Place(6), Place(9))
    assert places.settle(TA, Place(9), 0) == ReadHistory(TA, Place(5), Place(9))


def test_a_loss_of_a_topic_is_read_for_a_key_that_has_less() -> None:
    places = settled(t=6, a=5, b=6)
    assert places.lose(Loss(T, Place(8))) == [
        *(Report(Cause.LOST, TA), ReadHistory(TA, Place(5), Place(6))),
        *(Report(Cause.LOST, T), ReadHistory(T, Place(6), Place(8))),
    ]


def test_a_loss_of_a_topic_is_read_for_each_key() -> None:
    places = settled(a=5, b=8)
    found = places.lose(Loss(T, Place(7)))
    assert found == [Report(Cause.LOST, TA), ReadHistory(TA, Place(5), Place(7))]
    assert places.lose(Loss(TA, Place(7))) == []
    assert places.lose(Loss(Pair("t", "z"), Place(9))) == []
    whole = settled(t=5)
    assert whole.lose(Loss(TA, Place(7))) == [Report(Cause.LOST, T), ReadHistory(T, Place(5), Place(7))]


def test_an_end_is_not_that_of_a_newer_subscription() -> None:
    places = Places()
    assert places.may_have_ended(T, 1)
    places.add(T, None)
    assert not places.may_have_ended(T, 1)
    places.settle(T, Place(1), 1)
    assert not places.may_have_ended(T, 1)
    assert places.may_have_ended(T, 2)
    assert list(places) == [T]
    assert places.remove(T)
    assert not places.remove(T)
    assert len(places) == 0
