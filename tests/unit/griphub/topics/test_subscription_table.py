"""Subscriptions in memory: by number, by name, by topic and by owner."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from griphub.store.subscription import Subscription
from griphub.topics.subscription_table import SubscriptionTable

FIRST = Subscription(1, 10, "s", "alice", "https://example.com/", "after=0", 0, (("whsec_a", None),), 0, 0)


def test_a_subscription_is_found_in_every_way() -> None:
    table = SubscriptionTable()
    assert (len(table), list(table), table.numbered(1), table.find(10, "alice", "s")) == (0, [], None, None)
    assert (table.follows(10), list(table.of_topic(10)), list(table.of_owner("alice"))) == (False, [], [])
    table.set(FIRST)
    assert (len(table), list(table), table.numbered(1), table.find(10, "alice", "s")) == (1, [FIRST], FIRST, FIRST)
    assert (table.follows(10), list(table.of_topic(10)), list(table.of_owner("alice"))) == (True, [FIRST], [FIRST])


def test_an_id_belongs_to_its_owner_and_its_topic() -> None:
    table = SubscriptionTable()
    others = [FIRST, replace(FIRST, number=2, owner="bob"), replace(FIRST, number=3, topic=11)]
    for subscription in reversed(others):
        table.set(subscription)
    assert [table.find(each.topic, each.owner, each.id) for each in others] == others
    assert table.find(11, "bob", "s") is None
    # In the order of their numbers.
    assert list(table.of_topic(10)) == others[:2]
    assert list(table.of_owner("alice")) == [others[0], others[2]]


def test_a_later_state_replaces_the_earlier() -> None:
    table = SubscriptionTable()
    table.set(FIRST)
    later = replace(FIRST, position=9, rest="callback")
    table.set(later)
    assert (len(table), table.numbered(1), list(table.of_topic(10))) == (1, later, [later])


def test_a_subscription_made_again_is_another_one() -> None:
    table = SubscriptionTable()
    table.set(FIRST)
    assert table.remove(1) == FIRST
    assert table.remove(1) is None
    assert not table.follows(10)
    again = replace(FIRST, number=2)
    table.set(again)
    assert (table.find(10, "alice", "s"), table.numbered(1)) == (again, None)


CHANGES = st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.integers(10, 11), st.sampled_from("ab")), max_size=30)


@given(CHANGES)
def test_all_ways_lead_to_the_same_subscriptions(changes: list[tuple[bool, int, int, str]]) -> None:
    table = SubscriptionTable()
    model: dict[int, Subscription] = {}
    for present, index, topic, owner in changes:
        # The number of a name stays that of its name.
        number = index * 100 + topic * 2 + "ab".index(owner)
        if present:
            model[number] = replace(FIRST, number=number, topic=topic, owner=owner, id=str(index))
            table.set(model[number])
        else:
            assert table.remove(number) == model.pop(number, None)
    assert sorted(each.number for each in table) == sorted(model)
    assert len(table) == len(model)
    for topic in (10, 11):
        wanted = [each for _, each in sorted(model.items()) if each.topic == topic]
        assert (list(table.of_topic(topic)), table.follows(topic)) == (wanted, bool(wanted))
    for owner in "ab":
        assert list(table.of_owner(owner)) == [each for _, each in sorted(model.items()) if each.owner == owner]
    for each in model.values():
        assert table.find(each.topic, each.owner, each.id) == each
