"""Dead letter: the message that takes the place of one whose attempts have all failed."""

from __future__ import annotations

from griphub.pubsub.dead_letter import dead_letter_attributes
from griphub.pubsub.message import Message

TIME = 1_660_319_789_732_000
SOURCE = {
    "CloudPubSubDeadLetterSourceDeliveryCount": "5",
    "CloudPubSubDeadLetterSourceSubscription": "ss",
    "CloudPubSubDeadLetterSourceSubscriptionProject": "p",
    "CloudPubSubDeadLetterSourceTopicPublishTime": "2022-08-12T15:56:29.732+00:00",
}


def test_the_four_attributes_name_the_source() -> None:
    message = Message(7, TIME, b"x", {"a": "b"}, "")
    assert dead_letter_attributes(message, "p", "ss", 5) == {"a": "b", **SOURCE}


def test_the_ordering_key_is_kept() -> None:
    message = Message(7, TIME, b"x", {}, "k")
    assert dead_letter_attributes(message, "p", "ss", 5) == {**SOURCE, "goog-ordering-key": "k"}


def test_a_dead_letter_of_a_dead_letter_names_the_latest_source() -> None:
    first = dead_letter_attributes(Message(7, TIME, b"x", {}, ""), "p", "ss", 5)
    second = dead_letter_attributes(Message(8, TIME, b"x", first, ""), "q", "tt", 9)
    assert second["CloudPubSubDeadLetterSourceSubscription"] == "tt"
    assert second["CloudPubSubDeadLetterSourceSubscriptionProject"] == "q"
    assert second["CloudPubSubDeadLetterSourceDeliveryCount"] == "9"
