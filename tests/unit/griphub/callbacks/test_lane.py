"""Lanes: places at a pace."""

from __future__ import annotations

from griphub.callbacks.lane import BURST, Lane
from griphub.sender.host_shares import HostShares


def lane(interval: float = 0.0, part: float = 1.0) -> Lane[int]:
    made: Lane[int] = Lane(HostShares(1000, 1000, 1000), interval, part)
    for number in range(100):
        made.shares.add(number, "o", "h")
    return made


def taken(one: Lane[int], now: float, seconds: float = 0.0) -> int:
    """Take as many as there are at a moment; each takes some seconds."""
    count = 0
    while one.take(now) is not None:
        one.taken(now, now + seconds)
        count += 1
    return count


def test_places_without_a_pace_are_taken_immediately() -> None:
    one = lane()
    assert taken(one, 5.0, 1.0) == 100
    assert not one.waits


def test_an_interval_is_kept_with_a_bounded_burst() -> None:
    one = lane(0.01)
    # As if nothing had been taken for the time of a burst.
    assert taken(one, 50.0) == int(BURST / 0.01) + 1
    assert one.waits
    assert 50.0 < one.at <= 50.01
    assert taken(one, 50.005) == 0
    assert taken(one, 50.055) == 5
    assert taken(one, 1000.0) == int(BURST / 0.01) + 1


def test_a_part_of_the_time_is_left_to_others() -> None:
    one = lane(part=0.25)
    assert taken(one, 10.0, 0.5) == 1
    # Half a second, and three times that.
    assert one.at == 12.0
    assert one.waits
    assert taken(one, 11.9, 0.5) == 0
    assert taken(one, 12.0, 0.5) == 1


def test_a_lane_without_requests_waits_for_no_time() -> None:
    one: Lane[int] = Lane(HostShares(1, 1, 1), 1.0)
    one.shares.add(1, "o", "h")
    one.shares.add(2, "o", "h")
    assert taken(one, 0.0) == 1
    # There is no place: its time is not the reason.
    assert one.take(1.0) is None
    assert not one.waits
    one.shares.remove(2)
    assert one.take(0.5) is None
    assert not one.waits
