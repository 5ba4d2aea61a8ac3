"""Channels on which pulls are held: their names, positions and items."""

from __future__ import annotations

import json

import pytest

from griphub.api import pull_channels
from griphub.api.pull_channels import PULL_TIME, SPARE, PullChannels, TooManyPulls, is_pull


class House:
    """Channels, and the items that they publish."""

    def __init__(self, total: int = 10) -> None:
        self.items: list[tuple[str, str, str, str]] = []
        self.channels = PullChannels("hub/", self._publish, "p1", total)

    def _publish(self, channel: str, item: bytes) -> None:
        found = json.loads(item)
        action = found["formats"]["http-response"]["action"]
        self.items.append((channel, found["prev-id"], found["id"], action))


def test_each_pull_has_a_channel_of_its_own() -> None:
    channels = House().channels
    one, two = channels.hold(7, [], 100.0), channels.hold(7, [], 100.0)
    assert (one.channel, one.position, one.until) == ("hub/pull/p1/1", 1, 100.0 + PULL_TIME)
    assert two.channel == "hub/pull/p1/2"
    assert is_pull("hub/", one.channel)
    assert not is_pull("hub/", "hub/mailbox/1")


def test_a_message_has_the_held_pulls_repeated_each_on_its_channel() -> None:
    house = House()
    first = house.channels.hold(7, [], 100.0)
    other = house.channels.hold(8, [], 100.0)
    house.channels.wake(7)
    assert house.items == [("hub/pull/p1/1", "1", "2", "hint")]
    # The pull that was decided before the message is held at the place of before: the proxy sees that it has missed it.
    assert first.position == 1
    again = house.channels.hold(7, [(first.channel, "2")], 105.0)
    assert (again.channel, again.position, again.until) == (first.channel, 2, first.until)
    house.channels.wake_all()
    assert house.items[1:] == [(first.channel, "2", "3", "hint"), (other.channel, "1", "2", "hint")]


def test_a_pull_of_an_earlier_process_keeps_its_channel() -> None:
    house = House()
    held = house.channels.hold(7, [("hub/pull/p0/5", "3"), ("others", "x")], 100.0)
    assert (held.channel, held.position) == ("hub/pull/p0/5", 3)
    house.channels.wake(7)
    assert house.items == [("hub/pull/p0/5", "3", "4", "hint")]


def test_a_pull_of_another_subscription_gets_another_channel() -> None:
    house = House()
    first = house.channels.hold(7, [], 100.0)
    assert house.channels.hold(8, [(first.channel, "1")], 100.0).channel != first.channel


@pytest.mark.parametrize("id", ["", "x", "9" * 30, "²"])
def test_any_last_id_is_taken(id: str) -> None:
    assert House().channels.hold(7, [("hub/pull/p0/5", id)], 100.0).position == 1


def test_answered_pulls_and_old_ones_are_forgotten() -> None:
    house = House()
    first, second = house.channels.hold(7, [], 100.0), house.channels.hold(7, [], 101.0)
    assert first.channel in house.channels
    house.channels.release(first.channel)
    house.channels.release(first.channel)
    assert first.channel not in house.channels
    house.channels.expire(101.0 + PULL_TIME + SPARE - 0.1)
    assert len(house.channels) == 1
    house.channels.expire(second.until + SPARE)
    assert len(house.channels) == 0
    house.channels.wake(7)
    assert house.items == []


def test_held_pulls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(total=3)
    for number in (7, 7, 8):
        house.channels.hold(number, [], 100.0)
    with pytest.raises(TooManyPulls):
        house.channels.hold(9, [], 100.0)
    monkeypatch.setattr(pull_channels, "PER_SUBSCRIPTION", 2)
    large = House()
    for _ in range(2):
        large.channels.hold(7, [], 100.0)
    with pytest.raises(TooManyPulls):
        large.channels.hold(7, [], 100.0)
    large.channels.hold(8, [], 100.0)
