"""Index of subscriptions against a plain list."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from griphub.mailboxes.subscriptions import SubscriptionIndex

TOPICS = st.sampled_from(["t", "u"])
KEYS = st.sampled_from([None, "a", "b"])


def test_a_follower_of_topic_and_key_matches_once() -> None:
    index: SubscriptionIndex[str] = SubscriptionIndex()
    subject = index.add("t", None, "x")
    index.add("t", "a", "x")
    index.add("t", "a", "y")
    assert list(index.matching("t", "a")) == ["x", "y"]
    assert list(index.matching("t", None)) == ["x"]
    assert list(index.matching("t", "b")) == ["x"]
    assert list(index.matching("u", "a")) == []
    index.remove(subject, "x")
    assert list(index.matching("t", "a")) == ["x", "y"]
    assert index.find("t", None) is None
    assert [subject.key for subject in index.subjects("t")] == ["a"]


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(TOPICS, KEYS, st.integers(0, 3)), max_size=40))
def test_the_index_matches_like_a_scan(toggles: list[tuple[str, str | None, int]]) -> None:
    index: SubscriptionIndex[int] = SubscriptionIndex()
    plain: set[tuple[str, str | None, int]] = set()
    for topic, key, follower in toggles:
        subject = index.find(topic, key)
        if (topic, key, follower) in plain:
            assert subject is not None
            assert follower in subject
            index.remove(subject, follower)
            plain.remove((topic, key, follower))
        else:
            index.add(topic, key, follower)
            plain.add((topic, key, follower))
        for found_key in (None, "a", "b"):
            expected = {each for found, k, each in plain if found == topic and k in (None, found_key)}
            found = list(index.matching(topic, found_key))
            assert set(found) == expected
            assert len(found) == len(expected)
    assert {(s.topic, s.key, f) for t in "tu" for s in index.subjects(t) for f in s.followers} == plain
