"""Index of subscriptions against a plain list."""

from __future__ import annotations

import tracemalloc
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from griphub.mailboxes.subscriptions import SubscriptionIndex

TOPICS = st.sampled_from(["t", "u"])
KEYS = st.sampled_from([None, "a", "b"])


class Box(NamedTuple):
    """Follower."""

    owner: str
    name: str


X, Y, Z = Box("o", "x"), Box("o", "y"), Box("p", "z")


def matching(index: SubscriptionIndex[Box], topic: str, key: str | None) -> list[Box]:
    """Return the followers that a message is for."""
    followers = index.find(topic)
    if followers is None:
        return []
    return [box for owner in followers.owners(key) for box in followers.of(owner, key)]


def test_a_follower_of_topic_and_key_matches_once() -> None:
    index: SubscriptionIndex[Box] = SubscriptionIndex()
    whole = index.add("t", None, X)
    for box in (X, Y, Z):
        index.add("t", "a", box)
    assert matching(index, "t", "a") == [X, Y, Z]
    assert matching(index, "t", None) == matching(index, "t", "b") == [X]
    assert matching(index, "u", "a") == []
    index.remove(whole, None, X)
    assert matching(index, "t", "a") == [X, Y, Z]
    assert not whole.has(None, X)


def test_a_topic_that_was_taken_out_is_another_one_than_the_next_of_its_name() -> None:
    index: SubscriptionIndex[Box] = SubscriptionIndex()
    index.add("t", "a", X)
    index.add("t", None, Y)
    taken = index.take("t")
    assert taken is not None
    assert (index.find("t"), index.take("t")) == (None, None)
    index.add("t", "a", Z)
    index.remove(taken, "a", X)
    assert taken.pop() == (None, [Y])
    assert not taken
    with pytest.raises(KeyError):
        taken.pop()
    assert matching(index, "t", "a") == [Z]


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(TOPICS, KEYS, st.integers(0, 4)), max_size=40))
def test_the_index_matches_like_a_scan(toggles: list[tuple[str, str | None, int]]) -> None:
    index: SubscriptionIndex[Box] = SubscriptionIndex()
    boxes = [Box("op"[number % 2], str(number)) for number in range(5)]
    plain: set[tuple[str, str | None, Box]] = set()
    for topic, key, number in toggles:
        box = boxes[number]
        followers = index.find(topic)
        assert (followers is not None and followers.has(key, box)) == ((topic, key, box) in plain)
        if (topic, key, box) in plain:
            assert followers is not None
            index.remove(followers, key, box)
            plain.remove((topic, key, box))
        else:
            index.add(topic, key, box)
            plain.add((topic, key, box))
        for found_key in (None, "a", "b"):
            expected = {each for found, k, each in plain if found == topic and k in (None, found_key)}
            found = matching(index, topic, found_key)
            assert set(found) == expected
            assert len(found) == len(expected)
            now = index.find(topic)
            owners = [] if now is None else now.owners(found_key)
            assert sorted(owners) == sorted({each.owner for each in expected})
    left = [each for topic in "tu" if (each := index.take(topic)) is not None]
    assert all(left)
    assert {(each.name, key, box) for each in left for key, box in each} == plain
    popped: set[tuple[str, str | None, Box]] = set()
    for each in left:
        while each:
            key, boxes_of_key = each.pop()
            popped |= {(each.name, key, box) for box in boxes_of_key}
    assert popped == plain


def test_a_key_with_one_follower_takes_a_place_in_a_dict() -> None:
    index: SubscriptionIndex[Box] = SubscriptionIndex()
    keys = [str(number) for number in range(10_000)]
    tracemalloc.start()
    for key in keys:
        index.add("t", key, X)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(keys) < 80
