"""docs/grip.md §6.4 (first subscription), §6.8 (linger), over all workers."""

import pytest

from gripproxy.pipe import RESPONSE, SOCKET, STREAM
from handler.directory import LINGER_COST, LINGER_MIN, Directory


@pytest.fixture
def directory() -> Directory[str]:
    return Directory(60)


def test_the_first_subscription_of_all_workers_is_told(directory: Directory[str]) -> None:
    assert directory.subscribe("w1", b"a", 0)
    assert not directory.subscribe("w2", b"a", 0)
    assert not directory.subscribe("w1", b"a", 0)
    assert list(directory.channels[b"a"].workers) == ["w1", "w2"]


def test_the_last_unsubscription_of_all_workers_is_told(directory: Directory[str]) -> None:
    directory.subscribe("w1", b"a", 0)
    directory.subscribe("w2", b"a", 0)
    assert not directory.unsubscribe("w1", b"a", False, 0)
    assert directory.unsubscribe("w2", b"a", False, 0)
    assert not directory.unsubscribe("w2", b"a", False, 0)
    assert directory.channels == {}


class TestUpdate:
    def test_it_is_due_a_second_after_the_first_subscription(self, directory: Directory[str]) -> None:
        directory.subscribe("w1", b"a", 10)
        directory.subscribe("w2", b"a", 10.5)
        assert directory.next_due() == 11
        assert directory.due_updates(10.99) == []
        assert directory.due_updates(11) == [(b"a", ["w1", "w2"])]
        assert directory.due_updates(12) == []
        assert directory.next_due() is None

    def test_a_channel_left_before_is_not_updated(self, directory: Directory[str]) -> None:
        directory.subscribe("w1", b"a", 0)
        directory.unsubscribe("w1", b"a", False, 0.5)
        assert directory.due_updates(1) == []

    def test_a_channel_left_and_subscribed_anew_waits_its_own_second(self, directory: Directory[str]) -> None:
        directory.subscribe("w1", b"a", 0)
        directory.unsubscribe("w1", b"a", False, 0.5)
        directory.subscribe("w1", b"a", 0.6)
        assert directory.due_updates(1.5) == []
        assert directory.due_updates(1.6) == [(b"a", ["w1"])]

    def test_who_comes_back_while_it_lingers_is_updated_with_the_first_one(self, directory: Directory[str]) -> None:
        directory.subscribe("w1", b"a", 0)
        directory.unsubscribe("w1", b"a", True, 0.2)
        directory.subscribe("w2", b"a", 0.3)
        assert directory.due_updates(1) == [(b"a", ["w2"])]

    def test_announced_channels_are_no_first_subscriptions(self, directory: Directory[str]) -> None:
        assert directory.announce("w1", b"a", (0, 5, 0))
        assert not directory.announce("w2", b"a", (0, 1, 0))
        assert directory.next_due() is None
        assert not directory.subscribe("w3", b"a", 0)

    def test_it_can_be_switched_off(self) -> None:
        directory: Directory[str] = Directory(60, update=False)
        assert directory.subscribe("w1", b"a", 0)
        assert directory.next_due() is None


class TestLinger:
    def test_a_response_hold_keeps_the_channel_for_a_while(self, directory: Directory[str]) -> None:
        directory.subscribe("w1", b"a", 0)
        directory.due_updates(1)
        assert not directory.unsubscribe("w1", b"a", True, 5)
        assert b"a" in directory.channels
        assert directory.next_due() == 65
        assert directory.due_ends(64.9) == []
        assert directory.due_ends(65) == [b"a"]
        assert directory.channels == {}

    def test_coming_back_cancels_it_and_is_no_first_subscription(self, directory: Directory[str]) -> None:
        directory.subscribe("w1", b"a", 0)
        directory.due_updates(1)
        directory.unsubscribe("w1", b"a", True, 5)
        assert not directory.subscribe("w2", b"a", 50)
        assert directory.due_ends(65) == []
        assert directory.due_updates(65) == []
        assert directory.unsubscribe("w2", b"a", False, 66)

    def test_a_second_response_hold_starts_it_again(self, directory: Directory[str]) -> None:
        directory.subscribe("w1", b"a", 0)
        directory.unsubscribe("w1", b"a", True, 5)
        directory.subscribe("w1", b"a", 6)
        directory.unsubscribe("w1", b"a", True, 30)
        assert directory.due_ends(65) == []
        assert directory.due_ends(90) == [b"a"]

    def test_a_stream_that_ends_meanwhile_does_not_cut_it_short(self, directory: Directory[str]) -> None:
        directory.subscribe("w1", b"a", 0)
        directory.count("w1", b"a", RESPONSE, 1, 0)
        directory.count("w1", b"a", STREAM, 1, 0)
        directory.count("w1", b"a", RESPONSE, 0, 10)
        assert not directory.unsubscribe("w1", b"a", False, 20)
        assert directory.due_ends(70) == [b"a"]

    def test_zero_seconds_end_at_once(self) -> None:
        directory: Directory[str] = Directory(0, update=False)
        directory.subscribe("w1", b"a", 0)
        assert directory.unsubscribe("w1", b"a", True, 5)

    def test_a_hold_that_is_updated_comes_back_to_the_same_subscription(self) -> None:
        """Or its update would be a first subscription, and so be updated, for ever."""
        directory: Directory[str] = Directory(0)
        directory.subscribe("w1", b"a", 0)
        assert directory.due_updates(1) == [(b"a", ["w1"])]
        assert not directory.unsubscribe("w1", b"a", True, 1.1)
        assert not directory.subscribe("w1", b"a", 1.1 + LINGER_MIN - 0.1)
        assert directory.due_updates(10) == []
        assert not directory.unsubscribe("w1", b"a", True, 10)
        assert directory.due_ends(10 + LINGER_MIN) == [b"a"]

    def test_next_due_is_the_earlier_of_update_and_end(self, directory: Directory[str]) -> None:
        directory.subscribe("w1", b"a", 0)
        directory.unsubscribe("w1", b"a", True, 0)
        directory.subscribe("w1", b"b", 0.5)
        assert directory.next_due() == 1
        directory.due_updates(2)
        assert directory.next_due() == 60


class TestCounts:
    def test_they_add_up_over_workers_and_modes(self, directory: Directory[str]) -> None:
        directory.subscribe("w1", b"a", 0)
        directory.announce("w2", b"a", (1, 2, 3))
        directory.count("w1", b"a", STREAM, 10, 0)
        assert directory.subscribers(b"a", (STREAM,)) == 12
        assert directory.subscribers(b"a", (RESPONSE, STREAM, SOCKET)) == 16
        assert directory.subscribers(b"a", ()) == 0
        assert directory.subscribers(b"nobody", (STREAM,)) == 0

    def test_a_late_count_is_ignored(self, directory: Directory[str]) -> None:
        directory.count("w1", b"a", STREAM, 1, 0)
        directory.subscribe("w2", b"a", 0)
        directory.count("w1", b"a", STREAM, 1, 0)
        assert directory.subscribers(b"a", (STREAM,)) == 0


class TestDeathOfAWorker:
    def test_its_subscriptions_end_with_it(self, directory: Directory[str]) -> None:
        directory.announce("w1", b"a", (0, 1, 0))
        directory.announce("w1", b"b", (0, 1, 0))
        directory.announce("w2", b"b", (0, 1, 0))
        assert directory.lost("w1", 0) == [b"a"]
        assert list(directory.channels) == [b"b"]
        assert directory.lost("w1", 0) == []

    def test_its_response_holds_linger(self, directory: Directory[str]) -> None:
        directory.announce("w1", b"a", (1, 0, 0))
        assert directory.lost("w1", 0) == []
        assert directory.due_ends(60) == [b"a"]


def test_channels_that_linger_are_bounded_in_bytes(directory: Directory[str]) -> None:
    directory.most = 10 * (LINGER_COST + 1000)
    ended = 0
    for number in range(100):
        channel = b"%04d" % number + b"c" * 996
        directory.subscribe("w1", channel, 0)
        ended += directory.unsubscribe("w1", channel, True, 0)
    assert len(directory.channels) == 10
    assert ended == 90
    assert directory.lingering_bytes == directory.most
    assert len(directory.due_ends(60)) == 10
    assert (directory.lingering_bytes, directory.channels) == (0, {})
    directory.subscribe("w1", b"a", 61)
    assert not directory.unsubscribe("w1", b"a", True, 61), "there is room again"
