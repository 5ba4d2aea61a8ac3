"""docs/grip.md §6.4 (first subscription), §6.8 (linger), over all workers."""

import pytest

from gripproxy.pipe import RESPONSE, SOCKET, STREAM
from handler.dispatch.subscriptions import LINGER_COST, LINGER_MIN, Subscriptions


@pytest.fixture
def subscriptions() -> Subscriptions[str]:
    return Subscriptions(60)


def test_the_first_subscription_of_all_workers_is_told(subscriptions: Subscriptions[str]) -> None:
    assert subscriptions.subscribe("w1", b"a", 0)
    assert not subscriptions.subscribe("w2", b"a", 0)
    assert not subscriptions.subscribe("w1", b"a", 0)
    assert list(subscriptions.channels[b"a"].workers) == ["w1", "w2"]


def test_the_last_unsubscription_of_all_workers_is_told(subscriptions: Subscriptions[str]) -> None:
    subscriptions.subscribe("w1", b"a", 0)
    subscriptions.subscribe("w2", b"a", 0)
    assert not subscriptions.unsubscribe("w1", b"a", False, 0)
    assert subscriptions.unsubscribe("w2", b"a", False, 0)
    assert not subscriptions.unsubscribe("w2", b"a", False, 0)
    assert subscriptions.channels == {}


class TestUpdate:
    def test_it_is_due_a_second_after_the_first_subscription(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.subscribe("w1", b"a", 10)
        subscriptions.subscribe("w2", b"a", 10.5)
        assert subscriptions.next_due() == 11
        assert subscriptions.due_updates(10.99) == []
        assert subscriptions.due_updates(11) == [(b"a", ["w1", "w2"])]
        assert subscriptions.due_updates(12) == []
        assert subscriptions.next_due() is None

    def test_a_channel_left_before_is_not_updated(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.subscribe("w1", b"a", 0)
        subscriptions.unsubscribe("w1", b"a", False, 0.5)
        assert subscriptions.due_updates(1) == []

    def test_a_channel_left_and_subscribed_anew_waits_its_own_second(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.subscribe("w1", b"a", 0)
        subscriptions.unsubscribe("w1", b"a", False, 0.5)
        subscriptions.subscribe("w1", b"a", 0.6)
        assert subscriptions.due_updates(1.5) == []
        assert subscriptions.due_updates(1.6) == [(b"a", ["w1"])]

    def test_who_comes_back_while_it_lingers_is_updated_with_the_first_one(
        self, subscriptions: Subscriptions[str]
    ) -> None:
        subscriptions.subscribe("w1", b"a", 0)
        subscriptions.unsubscribe("w1", b"a", True, 0.2)
        subscriptions.subscribe("w2", b"a", 0.3)
        assert subscriptions.due_updates(1) == [(b"a", ["w2"])]

    def test_announced_channels_are_no_first_subscriptions(self, subscriptions: Subscriptions[str]) -> None:
        assert subscriptions.announce("w1", b"a", (0, 5, 0))
        assert not subscriptions.announce("w2", b"a", (0, 1, 0))
        assert subscriptions.next_due() is None
        assert not subscriptions.subscribe("w3", b"a", 0)

    def test_it_can_be_switched_off(self) -> None:
        subscriptions: Subscriptions[str] = Subscriptions(60, update=False)
        assert subscriptions.subscribe("w1", b"a", 0)
        assert subscriptions.next_due() is None


class TestLinger:
    def test_a_response_hold_keeps_the_channel_for_a_while(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.subscribe("w1", b"a", 0)
        subscriptions.due_updates(1)
        assert not subscriptions.unsubscribe("w1", b"a", True, 5)
        assert b"a" in subscriptions.channels
        assert subscriptions.next_due() == 65
        assert subscriptions.due_ends(64.9) == []
        assert subscriptions.due_ends(65) == [b"a"]
        assert subscriptions.channels == {}

    def test_coming_back_cancels_it_and_is_no_first_subscription(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.subscribe("w1", b"a", 0)
        subscriptions.due_updates(1)
        subscriptions.unsubscribe("w1", b"a", True, 5)
        assert not subscriptions.subscribe("w2", b"a", 50)
        assert subscriptions.due_ends(65) == []
        assert subscriptions.due_updates(65) == []
        assert subscriptions.unsubscribe("w2", b"a", False, 66)

    def test_a_second_response_hold_starts_it_again(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.subscribe("w1", b"a", 0)
        subscriptions.unsubscribe("w1", b"a", True, 5)
        subscriptions.subscribe("w1", b"a", 6)
        subscriptions.unsubscribe("w1", b"a", True, 30)
        assert subscriptions.due_ends(65) == []
        assert subscriptions.due_ends(90) == [b"a"]

    def test_a_stream_that_ends_meanwhile_does_not_cut_it_short(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.subscribe("w1", b"a", 0)
        subscriptions.count("w1", b"a", RESPONSE, 1, 0)
        subscriptions.count("w1", b"a", STREAM, 1, 0)
        subscriptions.count("w1", b"a", RESPONSE, 0, 10)
        assert not subscriptions.unsubscribe("w1", b"a", False, 20)
        assert subscriptions.due_ends(70) == [b"a"]

    def test_zero_seconds_end_at_once(self) -> None:
        subscriptions: Subscriptions[str] = Subscriptions(0, update=False)
        subscriptions.subscribe("w1", b"a", 0)
        assert subscriptions.unsubscribe("w1", b"a", True, 5)

    def test_a_hold_that_is_updated_comes_back_to_the_same_subscription(self) -> None:
        """Or its update would be a first subscription, and so be updated, for ever."""
        subscriptions: Subscriptions[str] = Subscriptions(0)
        subscriptions.subscribe("w1", b"a", 0)
        assert subscriptions.due_updates(1) == [(b"a", ["w1"])]
        assert not subscriptions.unsubscribe("w1", b"a", True, 1.1)
        assert not subscriptions.subscribe("w1", b"a", 1.1 + LINGER_MIN - 0.1)
        assert subscriptions.due_updates(10) == []
        assert not subscriptions.unsubscribe("w1", b"a", True, 10)
        assert subscriptions.due_ends(10 + LINGER_MIN) == [b"a"]

    def test_next_due_is_the_earlier_of_update_and_end(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.subscribe("w1", b"a", 0)
        subscriptions.unsubscribe("w1", b"a", True, 0)
        subscriptions.subscribe("w1", b"b", 0.5)
        assert subscriptions.next_due() == 1
        subscriptions.due_updates(2)
        assert subscriptions.next_due() == 60


class TestCounts:
    def test_they_add_up_over_workers_and_modes(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.subscribe("w1", b"a", 0)
        subscriptions.announce("w2", b"a", (1, 2, 3))
        subscriptions.count("w1", b"a", STREAM, 10, 0)
        assert subscriptions.subscribers(b"a", (STREAM,)) == 12
        assert subscriptions.subscribers(b"a", (RESPONSE, STREAM, SOCKET)) == 16
        assert subscriptions.subscribers(b"a", ()) == 0
        assert subscriptions.subscribers(b"nobody", (STREAM,)) == 0

    def test_a_late_count_is_ignored(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.count("w1", b"a", STREAM, 1, 0)
        subscriptions.subscribe("w2", b"a", 0)
        subscriptions.count("w1", b"a", STREAM, 1, 0)
        assert subscriptions.subscribers(b"a", (STREAM,)) == 0


class TestDeathOfAWorker:
    def test_its_subscriptions_end_with_it(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.announce("w1", b"a", (0, 1, 0))
        subscriptions.announce("w1", b"b", (0, 1, 0))
        subscriptions.announce("w2", b"b", (0, 1, 0))
        assert subscriptions.lost("w1", 0) == [b"a"]
        assert list(subscriptions.channels) == [b"b"]
        assert subscriptions.lost("w1", 0) == []

    def test_its_response_holds_linger(self, subscriptions: Subscriptions[str]) -> None:
        subscriptions.announce("w1", b"a", (1, 0, 0))
        assert subscriptions.lost("w1", 0) == []
        assert subscriptions.due_ends(60) == [b"a"]


def test_channels_that_linger_are_bounded_in_bytes() -> None:
    subscriptions: Subscriptions[str] = Subscriptions(60, lingering_max=10 * (LINGER_COST + 1000))
    ended = 0
    for number in range(100):
        channel = b"%04d" % number + b"c" * 996
        subscriptions.subscribe("w1", channel, 0)
        ended += subscriptions.unsubscribe("w1", channel, True, 0)
    assert len(subscriptions.channels) == 10
    assert ended == 90
    assert subscriptions.lingering_bytes == subscriptions.lingering_max
    assert len(subscriptions.due_ends(60)) == 10
    assert (subscriptions.lingering_bytes, subscriptions.channels) == (0, {})
    subscriptions.subscribe("w1", b"a", 61)
    assert not subscriptions.unsubscribe("w1", b"a", True, 61), "there is room again"
