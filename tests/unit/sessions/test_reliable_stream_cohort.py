"""Streams with a next link that share their position: when one of them leaves the others, and what it takes along."""

from __future__ import annotations

import pytest

from gripproxy.delivery import channel as channels
from gripproxy.delivery import fanout, turns
from gripproxy.delivery.channel import Cohort
from gripproxy.grip.instruct import KeepAlive
from gripproxy.grip.item import Item, StreamFormat
from gripproxy.sessions.recovery_states import State
from tests.support.session_doubles import House, chunks, text, want
from tests.unit.sessions.test_reliable_stream import Stream, held


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr(channels, "COHORT_LEAST", 0)
    return House()


def cohort_of(stream: Stream) -> Cohort | None:
    return stream.hold.subscriptions[0].cohort


def test_streams_at_one_position_are_one(house: House) -> None:
    streams = [Stream(house) for _ in range(3)]
    assert len({id(cohort_of(stream)) for stream in streams}) == 1
    house.publish(text(b"two", b"2", b"1"), text(b"three", b"3", b"2"))
    assert [stream.take() for stream in streams] == [[chunks(b"two", b"three")]] * 3
    assert [stream.hold.subscriptions[0].prev_id for stream in streams] == [b"3"] * 3


def test_a_gap_concerns_each_and_then_they_are_one_again(house: House) -> None:
    streams = [Stream(house) for _ in range(2)]
    house.publish(text(b"four", b"4", b"3"))
    assert [cohort_of(stream) for stream in streams] == [None, None]
    for stream in streams:
        house.scheduler.discard(stream.hold)
        stream.house.context.fetch = stream.fetch
        stream.hold.update()
        assert stream.question() == (b"http://h/start", b"/next", ((b"ch", b"1"),))
        stream.answer(held(b"4", body=b"all"))
    assert [stream.take() for stream in streams] == [[chunks(b"all")]] * 2
    assert cohort_of(streams[0]) is cohort_of(streams[1]) is not None


@pytest.mark.parametrize(
    "channels_of_it", [(want(b"ch", b"1"), want(b"other", b"1")), (want(b"ch", b"1", "skip-self"),)]
)
def test_several_channels_and_filters_are_checked_one_by_one(house: House, channels_of_it: tuple[object, ...]) -> None:
    stream = Stream(house, *channels_of_it)  # type: ignore[arg-type]
    assert cohort_of(stream) is None


def test_a_client_that_does_not_read_is_alone_until_it_does(house: House) -> None:
    slow, other = Stream(house), Stream(house)
    house.fanout.item(text(b"two", b"2", b"1"))
    slow.hold.on_blocked()
    assert cohort_of(slow) is None
    house.fanout.flush()
    slow.hold.on_writable()
    assert slow.take() == other.take() == [chunks(b"two")]
    assert cohort_of(slow) is cohort_of(other)


def test_the_quiet_time_counts_from_the_last_item_also_for_who_has_left(house: House) -> None:
    stream = Stream(house, timeout=60)
    house.pass_time(30)
    house.publish(text(b"two", b"2", b"1"))
    house.pass_time(10)
    stream.hold.on_blocked()
    stream.hold.on_writable()
    house.pass_time(49)
    assert stream.hold not in house.scheduler
    house.pass_time(2)
    assert stream.hold in house.scheduler


def test_a_keep_alive_counts_from_the_last_item_also_for_who_has_left(house: House) -> None:
    stream = Stream(house, keep_alive=KeepAlive(b":\n", "idle", 20))
    house.pass_time(10)
    house.publish(text(b"two", b"2", b"1"))
    house.pass_time(1)
    stream.hold.on_blocked()
    stream.hold.on_writable()
    stream.take()
    house.pass_time(17)
    assert stream.take() == []
    house.pass_time(3)
    assert stream.take() == [chunks(b":\n")]


def test_a_hint_makes_each_ask(house: House) -> None:
    stream = Stream(house)
    house.publish(Item(b"ch", stream=StreamFormat("hint")))
    assert cohort_of(stream) is None
    assert stream.hold._recovery.state is State.QUERYING


def test_an_item_still_to_be_written_goes_before_the_query(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STEP", "FEW"):
        monkeypatch.setattr(fanout, name, 1)
    monkeypatch.setattr(turns, "TURN_TIME", 0.0)
    streams = [Stream(house) for _ in range(3)]
    house.publish(text(b"two", b"2", b"1"))
    last = streams[-1]
    assert last.take() == []
    last.ask()
    assert last.question()[2] == ((b"ch", b"2"),)
    last.answer(held(b"3", body=b"three"))
    house.turns.run_all()
    assert last.take() == [chunks(b"two"), chunks(b"three")]
    assert [stream.take() for stream in streams[:-1]] == [[chunks(b"two")]] * 2
