"""Outbox: items and outcomes in, bodies out. No channel loses an item without a hint behind it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.notify.outbox import Outbox, OutboxState


def hint(channel: str) -> bytes | None:
    return None if channel.startswith("gone") else b'"hint %b"' % channel.encode()


def made(batch_max: int = 1000, queue_max: int = 1000, body_max: int = 1000) -> Outbox:
    outbox = Outbox(hint, body_max, batch_max, queue_max)
    outbox.connected()
    return outbox


def items(body: bytes) -> list[str]:
    found: list[str] = json.loads(body)["items"] if body else []
    return found


def test_items_leave_in_order_a_batch_at_a_time() -> None:
    outbox = made()
    outbox.add("a", b'"a1"')
    outbox.add("b", b'"b1"')
    assert items(outbox.next_body()) == ["a1", "b1"]
    outbox.add("a", b'"a2"')
    assert outbox.next_body() == b"", "one request at a time"
    outbox.delivered()
    assert items(outbox.next_body()) == ["a2"]
    outbox.delivered()
    assert (outbox.next_body(), outbox.state, outbox.waiting) == (b"", OutboxState.READY, 0)


def test_a_request_with_an_item_that_is_counted_asks_for_numbers_of_all_of_them() -> None:
    outbox = made(batch_max=27)
    for item, counted in (("a1", False), ("b1", True), ("a2", False), ("c1", False)):
        outbox.add(item[0], b'"%b"' % item.encode(), counted=counted)
    assert items(outbox.next_body()) == ["a1", "b1", "a2"]
    assert outbox.counts
    assert outbox.delivered() == ["a", "b", "a"]
    assert items(outbox.next_body()) == ["c1"]
    assert not outbox.counts
    assert outbox.delivered() == ["c"]


@pytest.mark.parametrize("size", [34, 35])
def test_the_whole_body_is_within_its_bound(size: int) -> None:
    outbox = made(batch_max=size)
    for number in range(1000, 1009):
        outbox.add("a", b'"%d"' % number)
    bodies = []
    while body := outbox.next_body():
        outbox.delivered()
        bodies.append(body)
    assert [len(items(body)) for body in bodies] == [3, 3, 3]
    assert max(map(len, bodies)) <= size
    assert outbox.waiting == 0


def test_hints_are_bounded_in_the_same_way() -> None:
    outbox = made(batch_max=40)
    outbox.miss([f"channel {number}" for number in range(5)])
    bodies = []
    while body := outbox.next_body():
        outbox.delivered()
        bodies.append(body)
    assert [items(body) for body in bodies] == [[f"hint channel {number}"] for number in range(5)]
    assert max(map(len, bodies)) <= 40


def test_an_item_that_the_port_would_refuse_is_a_hint() -> None:
    outbox = made(body_max=24)
    outbox.add("b", b'"b1"')
    outbox.add("a", b'"a1"')
    outbox.add("a", b'"%b"' % (b"x" * 10))
    assert (outbox.missed, outbox.waiting) == (0, 20), "one of the greatest size is taken"
    outbox.add("a", b'"%b"' % (b"x" * 11))
    assert (outbox.missed, outbox.waiting) == (1, 4), "the hint stands for earlier items of the channel as well"
    bodies = []
    while body := outbox.next_body():
        outbox.delivered()
        bodies.append(body)
    assert [items(body) for body in bodies] == [["hint a"], ["b1"]]


def test_no_body_is_longer_than_the_port_takes() -> None:
    outbox = made(body_max=30, batch_max=1000)
    for number in range(5):
        outbox.add("a", b'"%b%d"' % (b"x" * 9, number))
    while body := outbox.next_body():
        outbox.delivered()
        assert len(items(body)) == 1


def test_an_item_beyond_the_bound_of_batches_goes_alone() -> None:
    outbox = made(batch_max=20)
    long = b'"%b"' % (b"x" * 100)
    for item in (b'"a"', long, b'"b"'):
        outbox.add("a", item)
    sizes = []
    while body := outbox.next_body():
        outbox.delivered()
        sizes.append(len(items(body)))
    assert sizes == [1, 1, 1]


def test_channels_are_remembered_while_the_handler_is_away() -> None:
    outbox = Outbox(hint, 1000)
    for channel in ("a", "b", "a", "gone"):
        outbox.add(channel, b'"lost"')
    assert (outbox.missed, outbox.waiting, outbox.next_body()) == (3, 0, b"")
    outbox.connected()
    assert items(outbox.next_body()) == ["hint a", "hint b"]
    outbox.delivered()
    assert (outbox.missed, outbox.next_body()) == (0, b"")


def test_only_channels_without_followers_leave_nothing_to_send() -> None:
    outbox = made()
    outbox.miss(["gone 1", "gone 2"])
    assert (outbox.next_body(), outbox.missed, outbox.state) == (b"", 0, OutboxState.READY)


@pytest.mark.parametrize("answered", [False, True])
def test_a_lost_connection_turns_items_into_hints(answered: bool) -> None:
    outbox = made()
    outbox.add("a", b'"a1"')
    outbox.next_body()
    outbox.add("b", b'"b1"')
    if answered:
        outbox.delivered()
    outbox.lost()
    assert (outbox.state, outbox.waiting) == (OutboxState.AWAY, 0)
    outbox.connected()
    assert items(outbox.next_body()) == (["hint b"] if answered else ["hint a", "hint b"])


def test_hints_under_way_are_not_lost_with_their_connection() -> None:
    outbox = made()
    outbox.miss(["a"])
    outbox.next_body()
    outbox.lost()
    outbox.connected()
    assert items(outbox.next_body()) == ["hint a"]


def test_a_refused_request_becomes_hints_and_later_items_of_its_channels_too() -> None:
    outbox = made()
    outbox.add("a", b'"a1"')
    outbox.next_body()
    outbox.add("b", b'"b1"')
    outbox.refused()
    outbox.add("a", b'"a2"')
    assert items(outbox.next_body()) == ["hint a", "b1"]


def test_a_full_queue_turns_items_into_hints() -> None:
    outbox = made(queue_max=10)
    outbox.add("a", b'"a1"')
    outbox.next_body()
    outbox.add("a", b'"a2"')
    outbox.add("b", b'"b1"')
    assert outbox.waiting == 8
    outbox.add("c", b'"c1"')
    assert (outbox.waiting, outbox.overflows, outbox.missed) == (0, 1, 3)
    outbox.add("d", b'"d1"')
    outbox.add("a", b'"a3"')
    assert outbox.waiting == 4
    outbox.delivered()
    assert items(outbox.next_body()) == ["hint a", "hint b", "hint c", "d1"]


def test_a_missed_channel_gets_its_hint_before_its_items() -> None:
    outbox = made()
    outbox.miss(["a"])
    outbox.add("a", b'"a1"')
    assert items(outbox.next_body()) == ["hint a"], "the item is what the hint stands for"
    outbox.add("a", b'"a2"')
    outbox.delivered()
    assert items(outbox.next_body()) == ["a2"]


ACTS = ("send", "delivered", "refused", "lost", "connected")

steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "add", "long"]), st.sampled_from("abc")),
        st.tuples(st.sampled_from([*ACTS, "miss"]), st.sampled_from("ab")),
    ),
    max_size=60,
)


@given(steps)
def test_behind_each_item_that_may_be_lost_its_channel_has_a_hint(steps: list[tuple[str, str]]) -> None:
    outbox = Outbox(hint, body_max=60, batch_max=50, queue_max=80)
    published: dict[str, int] = dict.fromkeys("abc", 0)
    reached: dict[str, int] = dict.fromkeys("abc", 0)
    """Number of the last item of each channel up to which a follower has all, or was told to ask."""
    under_way: list[str] = []

    def send() -> None:
        nonlocal under_way
        body = outbox.next_body()
        assert len(body) <= 60
        under_way = items(body) or under_way

    def deliver() -> None:
        nonlocal under_way
        if outbox.state is not OutboxState.SENDING:
            return
        for item in under_way:
            channel = item[-1] if item.startswith("hint") else item[0]
            if item.startswith("hint"):
                # The follower asks now, and the store has everything.
                reached[channel] = published[channel]
            elif int(item[1:]) > reached[channel]:
                assert int(item[1:]) == reached[channel] + 1, "an item was lost without a hint"
                reached[channel] += 1
        under_way = []
        outbox.delivered()

    acts: dict[str, Callable[[], None]] = {
        "send": send,
        "delivered": deliver,
        "refused": lambda: outbox.refused() if outbox.state is OutboxState.SENDING else None,
        "lost": outbox.lost,
        "connected": lambda: outbox.connected() if outbox.state is OutboxState.AWAY else None,
    }
    for act, channel in [*steps, ("connected", ""), *[("send", ""), ("delivered", "")] * 20]:
        if act in ("add", "long"):
            published[channel] += 1
            space = b" " * 60 if act == "long" else b""
            outbox.add(channel, b'"%b%d"%b' % (channel.encode(), published[channel], space))
        elif act == "miss":
            outbox.miss([channel])
        else:
            acts[act]()
        assert outbox.waiting <= 80
    assert reached == published
