"""Channels with followers: which ranges are in the index, and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from griphub.store.interface import WHOLE, KeyRange
from griphub.topics.channel_index import LEASE, UNKNOWN, ChannelIndex
from griphub.topics.event_text import Representation

SSE, LINES, WS, POLL = Representation.SSE, Representation.LINES, Representation.WS, Representation.POLL

INFINITE = float("inf")


def names(index: ChannelIndex) -> set[str]:
    return {channel.name for channel in index}


def test_a_range_enters_with_the_first_follower() -> None:
    index = ChannelIndex("hub/")
    assert index.range(7, WHOLE) is None
    assert index.ranges(7) == 0
    assert index.matching(7, "a") == []
    held = index.enter(7, WHOLE, 40, 0, "anna")
    channel = index.lease(held, SSE, LEASE, INFINITE)
    assert (channel.name, held.tail, held.owner) == ("hub/7/sse/", 40, "anna")
    assert index.range(7, WHOLE) is held
    assert index.find("hub/7/sse/") is channel
    assert (len(index), index.ranges(7), index.ranges(8)) == (1, 1, 0)
    assert index.matching(7, None) == [held]
    assert index.matching(8, None) == []


def test_representations_of_a_range_share_its_position() -> None:
    index = ChannelIndex("hub/")
    held = index.enter(7, KeyRange("a", "b"), 40, UNKNOWN, "")
    assert index.lease(held, SSE, 1.0, INFINITE).held is index.lease(held, POLL, 1.0, INFINITE).held
    assert names(index) == {"hub/7/sse/YQ~Yg", "hub/7/poll/YQ~Yg"}


def test_a_lease_is_renewed_and_never_shortened_and_the_first_end_of_rights_counts() -> None:
    index = ChannelIndex("hub/")
    held = index.enter(7, WHOLE, 40, 0, "")
    channel = index.lease(held, SSE, 60.0, 5000.0)
    assert index.lease(held, SSE, 50.0, 4000.0) is channel
    assert (channel.lease, channel.rights_end) == (60.0, 4000.0)
    index.lease(held, SSE, 70.0, INFINITE)
    assert (channel.lease, channel.rights_end) == (70.0, 4000.0)


def test_watchers_are_those_that_the_handler_has_counted_last() -> None:
    index = ChannelIndex("hub/")
    held = index.enter(7, WHOLE, 40, 0, "")
    for form in (SSE, Representation.WATCH_SSE, Representation.WATCH_LINES):
        index.lease(held, form, 60.0, INFINITE)
    follower, sse, lines = (channel.name for channel in index)
    index.count([sse], [7])
    assert index.watchers == 0, "the answer was on its way when the last one left"
    for name in (follower, sse, lines):
        index.subscribed(name)
    assert index.watchers == 2, "of each channel one at least"
    index.count([follower, lines, "hub/8/sse/"], [50, 3, 2])
    assert (index.watchers, index.counted) == (4, True)
    index.count([lines], [0])
    assert index.watchers == 2, "the last one is leaving"
    index.count([sse], [20])
    index.unsubscribed(sse)
    index.unsubscribed(lines)
    assert index.watchers == 0
    index.subscribed(sse)
    assert index.watchers == 1
    index.count([sse], None)
    assert not index.counted


def test_a_range_leaves_when_it_has_neither_subscriber_nor_lease() -> None:
    index = ChannelIndex("hub/")
    held = index.enter(7, WHOLE, 40, 0, "")
    index.lease(held, SSE, 60.0, INFINITE)
    assert index.subscribed("hub/7/sse/")
    assert index.expire(1000.0) == []
    index.unsubscribed("hub/7/sse/")
    assert index.expire(59.9) == []
    assert index.expire(60.0) == [held]
    assert len(index) == 0
    assert index.range(7, WHOLE) is None
    assert index.ranges(7) == 0
    assert index.expire(60.0) == []


def test_one_channel_of_a_range_leaves_and_the_range_stays() -> None:
    index = ChannelIndex("hub/")
    held = index.enter(7, WHOLE, 40, 0, "")
    index.lease(held, SSE, 60.0, INFINITE)
    index.lease(held, POLL, 90.0, INFINITE)
    assert index.expire(60.0) == []
    assert names(index) == {"hub/7/poll/"}
    assert [channel.representation for channel in held.channels] == [POLL]
    assert index.expire(90.0) == [held]


def test_a_subscription_of_an_unknown_channel_is_reported_and_remembered() -> None:
    index = ChannelIndex("hub/")
    assert not index.subscribed("hub/7/sse/")
    assert index.subscribers == 1
    held = index.enter(7, WHOLE, 40, 0, "")
    assert index.lease(held, SSE, 60.0, INFINITE).subscribed
    assert index.expire(1000.0) == [], "the subscription counts, though it was there before the channel"
    index.unsubscribed("hub/7/sse/")
    index.unsubscribed("hub/8/sse/")
    assert index.subscribers == 0
    assert index.expire(1000.0) == [held]


def test_a_range_that_left_enters_again_with_a_position_of_its_own() -> None:
    index = ChannelIndex("hub/")
    first = index.enter(7, WHOLE, 40, 0, "")
    index.lease(first, SSE, 60.0, INFINITE)
    index.expire(60.0)
    second = index.enter(7, WHOLE, 50, 0, "")
    index.lease(second, SSE, 120.0, INFINITE)
    assert index.matching(7, None) == [second]
    assert second.tail == 50
    assert first.channels == (), "items that are still made for it reach no channel"


def test_a_discarded_range_has_no_channels() -> None:
    index = ChannelIndex("hub/")
    held, other = index.enter(7, WHOLE, 40, 0, ""), index.enter(7, KeyRange("a", None), 40, 0, "")
    for each in (held, other):
        index.lease(each, SSE, 60.0, INFINITE)
        index.lease(each, WS, 60.0, INFINITE)
    index.discard(held)
    assert held.channels == ()
    assert names(index) == {"hub/7/sse/YQ~*", "hub/7/ws/YQ~*"}
    assert list(index.of_topic(7)) == [other]
    for each in index.of_topic(7):
        index.discard(each)
    assert list(index.of_topic(7)) == []
    assert len(index) == 0


KEYS = [WHOLE, KeyRange("a", "a\0"), KeyRange("a", "c"), KeyRange(None, "b")]

steps = st.lists(
    st.tuples(
        st.sampled_from(["follow", "subscribe", "unsubscribe", "wait"]),
        st.integers(1, 2),
        st.sampled_from(KEYS),
        st.sampled_from([SSE, POLL]),
        st.sampled_from([1.0, 30.0, 61.0]),
    ),
    max_size=40,
)


@given(steps)
def test_exactly_the_channels_with_subscriber_or_lease_are_in_the_index(
    steps: list[tuple[str, int, KeyRange, Representation, float]],
) -> None:
    index, now = ChannelIndex("hub/"), 0.0
    leases: dict[str, float] = {}
    subscribed: set[str] = set()
    other = ChannelIndex("hub/")
    for act, number, keys, form, seconds in steps:
        name = other.lease(other.range(number, keys) or other.enter(number, keys, 0, 0, ""), form, 0.0, INFINITE).name
        if act == "follow":
            held = index.range(number, keys) or index.enter(number, keys, 0, 0, "")
            assert index.lease(held, form, now + LEASE, INFINITE).name == name
            leases[name] = now + LEASE
        elif act == "subscribe":
            assert index.subscribed(name) == (name in leases)
            subscribed.add(name)
        elif act == "unsubscribe":
            index.unsubscribed(name)
            subscribed.discard(name)
        else:
            now += seconds
        index.expire(now)
        leases = {each: end for each, end in leases.items() if end > now or each in subscribed}
        assert names(index) == set(leases)
        assert index.subscribers == len(subscribed)
        held_names = {channel.name for held in index.of_topic(number) for channel in held.channels}
        assert held_names == {each for each in leases if each.startswith(f"hub/{number}/")}
