"""What a backend has the proxy send by itself: when, and when not."""

from __future__ import annotations

import pytest

from gripproxy.sessions.websocket_timers import Upkeep
from gripproxy.stats.counters import RouteCounters
from tests.support.session_doubles import House


class Sender:
    """Notes what is sent and when, in seconds from the beginning. As a session does, it notes the time of writing."""

    def __init__(self) -> None:
        self.house = House()
        self.log: list[tuple[float, bytes]] = []
        self.upkeep = Upkeep(self.house.context, self.send, RouteCounters())

    def send(self, frame: bytes) -> None:
        self.log.append((round(self.house.clock.now - 1000, 1), frame))
        self.upkeep.written = self.house.clock.now

    def write(self) -> None:
        """Something else is written to the client."""
        self.upkeep.written = self.house.clock.now

    def times(self, seconds: float) -> list[float]:
        """When something was sent, in the time that passes now."""
        self.log.clear()
        self.house.pass_time(seconds)
        return [when for when, _ in self.log]


@pytest.fixture
def sender() -> Sender:
    return Sender()


class TestKeepAlive:
    # The random part is half a second here: a timeout of 10 s means 9.5 s, and up to a tick more.

    @pytest.mark.parametrize("idle", [True, False])
    def test_is_sent_again_and_again(self, sender: Sender, idle: bool) -> None:
        sender.upkeep.keep_alive(b".", idle, 10)
        assert sender.upkeep.active
        first, second, third = sender.times(30)
        assert 9.5 <= first <= 9.7
        assert 9.4 <= second - first <= 9.7
        assert 9.4 <= third - second <= 9.7
        assert sender.house.context.keep_alives == 3

    def test_idle_counts_from_the_last_write(self, sender: Sender) -> None:
        sender.upkeep.keep_alive(b".", True, 10)
        assert sender.times(6) == []
        sender.write()
        assert sender.times(9) == []
        [when] = sender.times(1)
        assert 15.5 <= when <= 15.7

    def test_interval_does_not(self, sender: Sender) -> None:
        sender.upkeep.keep_alive(b".", False, 10)
        assert sender.times(6) == []
        sender.write()
        assert len(sender.times(4)) == 1

    def test_another_one_replaces_it(self, sender: Sender) -> None:
        sender.upkeep.keep_alive(b".", True, 10)
        sender.upkeep.keep_alive(b"!", False, 20)
        sender.house.pass_time(20)
        assert [frame for _, frame in sender.log] == [b"!"]

    def test_none_ends_it(self, sender: Sender) -> None:
        sender.upkeep.keep_alive(b".", True, 10)
        sender.upkeep.keep_alive(None, True, 10)
        assert not sender.upkeep.active
        assert sender.times(30) == []
        assert len(sender.house.wheel) == 0


class TestDelayed:
    def test_is_sent_once_after_its_time(self, sender: Sender) -> None:
        sender.upkeep.delay(b"d", 3)
        [when] = sender.times(20)
        assert 3.0 <= when <= 3.1

    def test_another_one_sends_the_first_at_once(self, sender: Sender) -> None:
        sender.upkeep.delay(b"1", 3)
        sender.house.pass_time(1)
        sender.upkeep.delay(b"2", 3)
        sender.house.pass_time(20)
        assert [frame for _, frame in sender.log] == [b"1", b"2"]
        assert [int(when) for when, _ in sender.log] == [1, 4]

    def test_flush_sends_it_at_once_and_only_once(self, sender: Sender) -> None:
        sender.upkeep.flush()
        sender.upkeep.delay(b"d", 3)
        sender.upkeep.flush()
        sender.upkeep.flush()
        assert sender.log == [(0.0, b"d")]
        assert sender.times(20) == []

    def test_goes_with_a_keep_alive(self, sender: Sender) -> None:
        sender.upkeep.keep_alive(b".", False, 10)
        sender.upkeep.delay(b"d", 3)
        sender.house.pass_time(11)
        assert [frame for _, frame in sender.log] == [b"d", b"."]


def test_the_end_of_the_session_ends_both(sender: Sender) -> None:
    sender.upkeep.keep_alive(b".", True, 10)
    sender.upkeep.delay(b"d", 3)
    sender.upkeep.cancel()
    assert sender.times(30) == []
    assert len(sender.house.wheel) == 0
