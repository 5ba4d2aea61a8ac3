"""The handler's end of the pipe: announcements, wrong peers, slow peers. The transport is only memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gripproxy import pipe
from gripproxy.grip.item import Item, StreamFormat
from gripproxy.grip.item_pack import pack_item
from handler.dispatch.dispatcher import Dispatcher
from handler.dispatch.worker_links import AHEAD, FIRST_WATER, HIGH_WATER, PACE_TIME, STALL_TIME, WorkerLinks
from tests.support.log_lines import LogLines


class Wire(asyncio.Transport):
    """A connection whose other end reads when it is told to."""

    def __init__(self, link: pipe.PipeConnection) -> None:
        super().__init__()
        self.link = link
        self.decoder = pipe.Decoder()
        self.got: list[pipe.Message] = []
        self.closed = False
        self.unsent = 0
        link.connection_made(self)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.got += self.decoder.feed(bytes(data))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.link.connection_lost(None)

    abort = close

    def say(self, *messages: pipe.Message) -> None:
        """The worker sends these in one frame."""
        self.link.data_received(pipe.encode(list(messages)))

    async def take(self) -> list[pipe.Message]:
        """What the worker got up to the end of this turn of the loop."""
        await asyncio.sleep(0)
        got, self.got = self.got, []
        return got


class House:
    """The links of an dispatcher, with a clock set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.changes = 0
        self.dispatcher = Dispatcher()
        self.links = WorkerLinks(self.dispatcher, self._changed, lambda: self.now)

    def _changed(self) -> None:
        self.changes += 1

    def connect(self) -> Wire:
        return Wire(self.links.accept())

    def worker(self, name: str = "1", *channels: Any) -> Wire:
        wire = self.connect()
        wire.say((pipe.HELLO, pipe.VERSION, 1, name, list(channels)))
        return wire


@pytest.fixture
async def house() -> House:
    return House()


@pytest.fixture(autouse=True)
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged."""
    return LogLines(monkeypatch, None).lines


ITEM = Item(b"ch", stream=StreamFormat("send", b"x"))


class TestHello:
    async def test_a_worker_joins_with_its_channels(self, house: House) -> None:
        wire = house.worker("1", (b"ch", 0, 2, 0, None))
        assert (house.links.joined, house.changes) == (1, 1)
        house.dispatcher.accept(ITEM, 0)
        assert await wire.take() == [(pipe.ITEM, pack_item(ITEM), 0)]

    async def test_a_connection_that_has_not_announced_itself_does_not_count(self, house: House) -> None:
        wire = house.connect()
        assert house.links.joined == 0
        wire.close()

    @pytest.mark.parametrize(
        ("message", "reason"),
        [
            ((pipe.SUBSCRIBE, b"ch", 1), "first message must be HELLO"),
            ((pipe.HELLO, 99, 1, "1", []), f"protocol version 99, this handler speaks {pipe.VERSION}"),
            ((pipe.HELLO,), "not enough values"),
            ((), "tuple index out of range"),
            (("HELLO",), "first message must be HELLO"),
        ],
    )
    async def test_anything_else_first_ends_the_connection(
        self, house: House, lines: list[str], message: pipe.Message, reason: str
    ) -> None:
        wire = house.connect()
        wire.say(message)
        assert wire.closed
        assert house.links.joined == 0
        assert reason in lines[0]

    async def test_a_second_hello_ends_it_too(self, house: House) -> None:
        wire = house.worker()
        wire.say((pipe.HELLO, pipe.VERSION, 1, "1", []))
        assert wire.closed
        assert house.links.joined == 0

    async def test_a_worker_that_connects_anew_takes_the_place_of_its_old_self(self, house: House) -> None:
        old = house.worker("1", (b"ch", 0, 1, 0, None))
        new = house.worker("1")
        assert old.closed
        assert house.links.joined == 1
        house.dispatcher.accept(ITEM, 0)
        assert await new.take() == []

    async def test_two_processes_of_one_number_are_two_workers(self, house: House, lines: list[str]) -> None:
        old = house.worker("1", (b"ch", 0, 1, 0, None))
        old.say((pipe.RETIRING, 4711))
        assert house.links.joined == 0
        new = house.connect()
        new.say((pipe.HELLO, pipe.VERSION, 2, "1", [(b"ch", 0, 1, 0, None)]))
        assert house.links.joined == 1
        house.dispatcher.accept(ITEM, 0)
        assert await old.take() == await new.take() == [(pipe.ITEM, pack_item(ITEM), 0)]
        old.close()
        assert lines[-1] == 'worker left: worker="1 (retiring, process 4711)"'
        assert house.links.joined == 1

    async def test_a_retiring_worker_that_connects_anew_is_still_one(self, house: House) -> None:
        old = house.worker("1")
        old.say((pipe.RETIRING, 4711))
        new = house.worker("1")
        assert old.closed
        assert house.links.joined == 1
        new.say((pipe.RETIRING, 4711))
        assert house.links.joined == 0

    async def test_noise_ends_the_connection(self, house: House, lines: list[str]) -> None:
        wire = house.worker("1", (b"ch", 0, 1, 0, None))
        wire.link.data_received(b"\xff\xff\xff\xff")
        assert wire.closed
        assert house.dispatcher.subscriptions.channels == {}
        assert any("frame of 4294967295 bytes" in line for line in lines)


class TestDeath:
    async def test_the_end_of_the_connection_is_the_end_of_its_subscriptions(self, house: House) -> None:
        wire = house.worker("1", (b"ch", 0, 1, 0, None))
        changes = house.changes
        wire.close()
        assert (house.links.joined, house.dispatcher.subscriptions.channels) == (0, {})
        assert house.changes == changes + 1


class TestSlowWorkers:
    async def test_a_queue_over_its_bound_is_dropped_whole_and_the_worker_told(
        self, house: House, lines: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wire = house.worker("1", (b"ch", 0, 1, 0, None))
        monkeypatch.setattr(wire.link, "_bound", 10)
        wire.link.pause_writing()
        for _ in range(11):
            house.dispatcher.accept(ITEM, 0)
        house.dispatcher.accept(ITEM, 0)
        assert house.dispatcher.counters.overflows == 1
        assert "queue of a worker dropped: worker=1" in lines[-1]
        wire.link.resume_writing()
        assert [message[0] for message in await wire.take()] == [pipe.LOST, pipe.ITEM]

    async def test_the_bound_of_its_queue_is_configured_in_bytes(self) -> None:
        house = House()
        house.links = WorkerLinks(house.dispatcher, lambda: None, lambda: house.now, queue_max=64 * pipe.LOAD_BYTES)
        wire = house.worker("1", (b"ch", 0, 1, 0, None))
        wire.link.pause_writing()
        fill(wire, 64)
        assert house.dispatcher.counters.overflows == 0
        fill(wire, 1)
        assert house.dispatcher.counters.overflows == 1

    async def test_publishers_wait_for_a_worker_that_still_works(self, house: House) -> None:
        wire = house.worker("1", (b"ch", 0, 1, 0, None))
        assert not house.links.congested()
        wire.link.pause_writing()
        fill(wire, FIRST_WATER)
        assert not house.links.congested()
        fill(wire, 1)
        assert house.links.congested()
        house.now = STALL_TIME
        fill(wire, 100)
        assert house.links.congested()
        house.now += STALL_TIME
        shorten(wire, 10)
        assert house.links.congested(), "it took ten messages meanwhile"
        house.now += STALL_TIME
        wire.unsent -= 1
        assert house.links.congested(), "it took a part of what was written"
        shorten(wire, FIRST_WATER)
        assert not house.links.congested()
        house.now += STALL_TIME * 5
        fill(wire, FIRST_WATER)
        assert house.links.congested(), "a new jam has its own time"

    async def test_what_waits_for_a_worker_is_what_it_takes_in_a_moment(self, house: House) -> None:
        wire = house.worker("1", (b"ch", 0, 1, 0, None))
        wire.link.pause_writing()
        house.now = 1
        fill(wire, FIRST_WATER)
        assert not house.links.congested(), "its pace is not known yet"
        house.now += PACE_TIME
        wire.link.written += 10_000
        assert house.links.congested()
        quick = int(10_000 / PACE_TIME * AHEAD)
        shorten(wire, FIRST_WATER - quick)
        assert not house.links.congested()
        house.now += PACE_TIME
        wire.link.written += 10
        assert house.links.congested(), "it takes only a few"
        shorten(wire, quick - HIGH_WATER)
        assert not house.links.congested()

    async def test_nobody_waits_for_a_worker_that_is_stuck(self, house: House, lines: list[str]) -> None:
        wire = house.worker("1", (b"ch", 0, 1, 0, None))
        wire.link.pause_writing()
        fill(wire, FIRST_WATER + 1)
        assert house.links.congested()
        house.now = STALL_TIME + 0.1
        assert not house.links.congested()
        assert "worker does not take its items: worker=1" in lines[-1]
        fill(wire, 1)
        assert not house.links.congested()
        shorten(wire, FIRST_WATER)
        assert not house.links.congested()
        fill(wire, FIRST_WATER)
        assert house.links.congested(), "it is alive again"


def fill(wire: Wire, count: int) -> None:
    for _ in range(count):
        wire.link.send((pipe.LOST,))


def shorten(wire: Wire, count: int) -> None:
    del wire.link._queue[:count]
    wire.link._load -= count
    wire.link._weighed -= count
