"""Couriers: contents of requests, and reports that write a position when it is due."""

from __future__ import annotations

import json

from griphub.callbacks.courier import Courier
from griphub.callbacks.push_event import PushEvent
from griphub.sender.address_policy import AddressPolicy
from griphub.sender.callback import parse_callback
from griphub.sender.delivery import Delivery
from griphub.sender.delivery_actions import DeliveryLimits
from griphub.sender.delivery_states import RestReason
from griphub.sender.failure_class import SUCCESS, FailureClass
from griphub.sender.signature import Signer, SigningKey
from griphub.sender.window import WindowBudget


def courier(id: str = "s", topic: str = "news") -> Courier:
    delivery: Delivery[PushEvent] = Delivery(0, DeliveryLimits(), WindowBudget(), lambda: 0.5, confirmed=True)
    url = parse_callback("https://receiver.example/", AddressPolicy())
    made = Courier(7, 1, topic, id, "owner", url, Signer([SigningKey(b"k" * 32)]), delivery)
    delivery.start()
    return made


def deliver(one: Courier, id: int) -> None:
    """Deliver one event that is read from the store."""
    one.delivery.admitted()
    one.delivery.page([PushEvent(id, 0, 5, b"{}")], id, False, 0.0)
    one.delivery.answered(SUCCESS, 0.0)
    one.delivered += 1


def test_the_content_is_that_of_all_followers_with_subscription_and_topic_before() -> None:
    one = courier('s"1', "ü/π")
    body = one.body(PushEvent(3, 0, 5, b'{"type":"event","id":"3"}'))
    assert list(json.loads(body).items()) == [
        ("subscription_id", 's"1'),
        ("topic", "ü/π"),
        ("type", "event"),
        ("id", "3"),
    ]


def test_a_position_is_written_when_it_is_due_or_at_the_end() -> None:
    one = courier()
    deliver(one, 3)
    assert one.report(1.0) == (7, 3, True, "", "", "live", False, 1, 0, {}, False)
    assert one.report(5.0)[-1]
    assert not one.report(5.0)[-1]
    one.delivery.hint(4)
    deliver(one, 4)
    assert not one.report(1.0)[-1]
    assert one.report(1.0, final=True)[-1]
    assert not one.report(1.0, final=True)[-1]


def test_a_change_of_the_subscription_itself_is_written_immediately() -> None:
    one = courier()
    one.delivery.rest(RestReason.REVOKED)
    report = one.report(0.0)
    assert report[3:6] == ("revoked", "", "resting")
    assert report[-1]
    assert not one.report(0.0)[-1]


def test_failures_are_reported_by_class_only() -> None:
    one = courier()
    one.failures[FailureClass.TIMEOUT] += 2
    assert one.report(0.0)[9] == {"timeout": 2}
    assert repr(one) == "Courier(7, 's')"
