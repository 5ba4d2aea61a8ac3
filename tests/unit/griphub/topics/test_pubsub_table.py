"""Table of the subscriptions of the push API."""

from __future__ import annotations

from dataclasses import replace

from griphub.store.pubsub_subscription import PubsubSubscription
from griphub.topics.pubsub_table import PubsubTable


def subscription(number: int, id: str, topic: int = 1, project: str = "p") -> PubsubSubscription:
    return PubsubSubscription(number, project, id, topic, "o", {}, 0)


def test_subscriptions_are_found_by_number_name_and_topic() -> None:
    table = PubsubTable()
    one, two, other = subscription(1, "one"), subscription(2, "two", 2), subscription(3, "one", 1, "q")
    for each in (one, two, other):
        table.set(each)
    assert (len(table), list(table)) == (3, [one, two, other])
    assert table.numbered(2) is two
    assert table.numbered(9) is None
    assert table.named("q", "one") is other
    assert table.named("q", "two") is None
    assert table.of_topic(1) == [one, other]
    assert (table.follows(2), table.follows(3)) == (True, False)
    assert table.of_topic(3) == []


def test_a_subscription_whose_topic_is_deleted_is_one_of_none() -> None:
    table = PubsubTable()
    table.set(subscription(1, "one"))
    table.set(replace(subscription(1, "one"), topic=0))
    assert not table.follows(1)
    assert [each.number for each in table.of_topic(0)] == [1]
    assert [each.number for each in table.page("p", "", 10)] == [1]


def test_pages_are_in_the_order_of_the_ids_and_survive_a_deletion() -> None:
    table = PubsubTable()
    for number, id in enumerate(("c", "a", "d", "b"), 1):
        table.set(subscription(number, id))
    assert [each.id for each in table.page("p", "", 2)] == ["a", "b"]
    removed = table.remove(4)
    assert removed is not None
    assert removed.id == "b"
    assert [each.id for each in table.page("p", "b", 2)] == ["c", "d"]
    assert table.page("q", "", 2) == []


def test_nothing_is_left_of_a_removed_subscription() -> None:
    table = PubsubTable()
    table.set(subscription(1, "one"))
    table.remove(1)
    assert table.remove(1) is None
    assert (len(table), table.named("p", "one"), table.follows(1), table.page("p", "", 9)) == (0, None, False, [])
