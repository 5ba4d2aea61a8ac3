"""WebSockets with ids that share their position: when one of them leaves the others, and comes back."""

from __future__ import annotations

import pytest

from gripproxy.delivery import channel as channels
from gripproxy.delivery.channel import Cohort
from tests.support.session_doubles import House
from tests.unit.sessions.test_reliable_websocket import Talk, event, item, subscribe, texts


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr(channels, "COHORT_LEAST", 0)
    house = House()
    house.context.recover_interval = 60
    return house


@pytest.fixture
def talk(house: House) -> Talk:
    return Talk(house).open(subscribe(1))


def cohort_of(talk: Talk) -> Cohort | None:
    return talk.session.subscriptions[0].cohort


def test_those_at_one_position_are_one(talk: Talk, house: House) -> None:
    other = Talk(house).open(subscribe(1))
    assert cohort_of(talk) is cohort_of(other) is not None
    talk.publish(item(2), item(3))
    assert talk.heard() == other.heard() == texts(2, 3)


def test_while_a_request_is_under_way_each_item_is_noted(talk: Talk) -> None:
    talk.say(b"hello")
    assert cohort_of(talk) is None
    talk.publish(item(2))
    # What the backend names is older than what has come since it was asked.
    talk.answer(subscribe(1))
    assert talk.session.subscriptions[0].prev_id == b"2"
    assert cohort_of(talk) is not None
    talk.publish(item(3))
    assert talk.heard() == texts(2, 3)


def test_a_query_is_for_this_one_alone(talk: Talk, house: House) -> None:
    other = Talk(house).open(subscribe(1))
    talk.publish(item(2))
    assert talk.session.reliable is not None
    talk.session.reliable.recover()
    talk.updates()
    assert talk.posted() == [(b"", ((b"ch", b"2"),))]
    assert cohort_of(talk) is None
    talk.publish(item(3))
    talk.answer(subscribe(2))
    assert talk.heard() == other.heard() == texts(2, 3)
    assert cohort_of(talk) is not None
    assert other.posted() == []


def test_whose_backend_detaches_is_not_checked_any_more(talk: Talk) -> None:
    talk.publish(item(2))
    talk.say(b"hello")
    talk.answer(event(b'c:{"type":"detach"}'))
    assert cohort_of(talk) is None
    talk.publish(item(7))
    assert talk.heard() == texts(2, 7)


def test_a_detachment_in_between_ends_the_membership(talk: Talk) -> None:
    talk.session.backend_data(1, b'c:{"type":"detach"}', True, True)
    assert talk.session.subscriptions[0].prev_id is None
    talk.publish(item(7))
    assert talk.heard() == texts(7)


def test_the_quiet_time_counts_from_the_last_item_also_for_who_has_left(talk: Talk, house: House) -> None:
    house.pass_time(30)
    talk.publish(item(2))
    house.pass_time(10)
    talk.session.on_blocked()
    talk.session.on_writable()
    house.pass_time(40)
    house.scheduler.run()
    assert talk.posted() == []
    house.pass_time(15)
    house.scheduler.run()
    assert talk.posted() == [(b"", ((b"ch", b"2"),))]
