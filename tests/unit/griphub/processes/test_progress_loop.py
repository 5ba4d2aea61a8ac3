"""Progress loop: the turns of the schedule, the handler that is away, and the stamps that the store keeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import orjson
import pytest

from griphub.processes import progress_loop
from griphub.processes.progress_loop import WAITING_MAX, ProgressLoop
from griphub.store.cursor import EpochInterval
from griphub.store.errors import StoreFull
from griphub.store.interface import WHOLE, KeyRange
from griphub.store.topic import Topic, TopicSettings
from griphub.topics.channel_index import ChannelIndex, HeldRange
from griphub.topics.event_text import Epochs, Representation
from griphub.topics.fanout import FanOut
from griphub.topics.topic_table import TopicTable


class House:
    """A progress loop, with a writer, a handler and a clock that the test decides."""

    def __init__(self) -> None:
        self.index = ChannelIndex("")
        self.items: list[Any] = []
        epochs = Epochs([EpochInterval("e", 1, None)])
        self.fanout = FanOut(self.index, epochs, lambda _, item: self.items.append(orjson.loads(item)), 3, 1000)
        self.topics = TopicTable()
        self.topics.set(Topic(7, "t", 0, 0, 0, 0, 0, 0, 1, TopicSettings(progress=1.0)))
        self.wall = 1000.0
        self.waiting: int | None = 0
        self.kept = 0
        self.full = False
        self.loop = ProgressLoop(cast(Any, self), self.topics, self.fanout, lambda: self.waiting, lambda: self.wall)

    async def reserve_stamps(self, until: int) -> int:
        """Reserve as the writer does."""
        if self.full:
            raise StoreFull("the disk is full")
        kept, self.kept = self.kept, max(self.kept, until)
        return kept

    def watch(self, keys: KeyRange = WHOLE, *, subscribed: bool = True) -> HeldRange:
        """Begin a watch."""
        held = self.index.range(7, keys) or self.fanout.enter(7, keys, 0, "")
        channel = self.index.lease(held, Representation.WATCH_LINES, 60.0, float("inf"))
        channel.subscribed = subscribed
        self.loop.watch(held)
        return held

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for something."""
        deadline = time.monotonic() + 30
        while not true():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)


def run(case: Callable[[House], Awaitable[None]]) -> None:
    async def with_house() -> None:
        house = House()
        await house.loop.open(0)
        try:
            await case(house)
        finally:
            house.loop.close()

    asyncio.run(with_house())


def test_a_watched_range_gets_progress_again_and_again() -> None:
    async def case(house: House) -> None:
        house.watch()
        house.watch()
        await house.until(lambda: len(house.items) >= 2)
        first, second = house.items[:2]
        assert (first["prev-id"], first["id"]) == ("e.3", "e.3.1000000000")
        assert (second["prev-id"], second["id"]) == (first["id"], "e.3.1000000001")

    run(case)


def test_without_watchers_it_rests() -> None:
    async def case(house: House) -> None:
        held = house.watch()
        (channel,) = held.channels
        channel.subscribed, channel.lease = False, 0.0
        assert house.index.expire(1.0) == [held]
        await house.until(lambda: not held.watched and not len(house.loop.schedule))
        await house.until(lambda: house.loop.rests)
        assert house.items == []
        house.watch()
        await house.until(lambda: bool(house.items))

    run(case)


def test_a_channel_that_nobody_has_subscribed_to_gets_none() -> None:
    async def case(house: House) -> None:
        house.watch(KeyRange("a", "b"), subscribed=False)
        house.watch()
        await house.until(lambda: len(house.items) >= 2)
        assert {item["channel"] for item in house.items} == {"7/wlines/"}

    run(case)


@pytest.mark.parametrize("waiting", [None, WAITING_MAX + 1])
def test_progress_waits_while_the_handler_is_away_or_behind(waiting: int | None) -> None:
    async def case(house: House) -> None:
        house.waiting = waiting
        house.watch()
        now = asyncio.get_running_loop().time
        await house.until(lambda: house.loop.schedule.lag(now()) > 0.2)
        assert house.items == []
        house.waiting = 0
        await house.until(lambda: bool(house.items))

    run(case)


def test_a_turn_has_a_bounded_number_of_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_loop, "SLICE", 3)

    async def case(house: House) -> None:
        house.waiting = None
        for number in range(20):
            house.watch(KeyRange(f"k{number:02}", None))
        now = asyncio.get_running_loop().time
        await house.until(lambda: house.loop.schedule.lag(now()) > 1.0)
        counts: list[int] = []
        progress = house.fanout.progress

        def counted(held: HeldRange, stamp: int) -> bool:
            counts[-1] += 1
            return progress(held, stamp)

        monkeypatch.setattr(house.fanout, "progress", counted)

        def waiting() -> int:
            counts.append(0)
            return 0

        monkeypatch.setattr(house.loop, "_waiting", waiting)
        await house.until(lambda: len(house.items) >= 20)
        assert max(counts) == 3

    run(case)


def test_within_a_version_it_comes_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(house: House) -> None:
        version = house.fanout.version
        tries: list[float] = []

        def later(held: HeldRange) -> int | None:
            tries.append(asyncio.get_running_loop().time())
            return None if len(tries) == 1 else version(held)

        monkeypatch.setattr(house.fanout, "version", later)
        house.watch()
        await house.until(lambda: bool(house.items))
        assert len(tries) == 2
        assert tries[1] - tries[0] < 0.9

    run(case)


def test_stamps_are_above_those_that_the_store_has_kept() -> None:
    async def case(house: House) -> None:
        assert house.loop.mark(3) == "e.3.1000000000"
        assert house.kept == 1_060_000_000
        house.wall = 500.0
        later = ProgressLoop(cast(Any, house), house.topics, house.fanout, lambda: 0, lambda: house.wall)
        await later.open(0)
        assert later.mark(3) == "e.3.1060000001"

    run(case)


def test_a_full_disk_stops_no_progress() -> None:
    async def case(house: House) -> None:
        house.full = True
        later = ProgressLoop(cast(Any, house), house.topics, house.fanout, lambda: 0, lambda: house.wall)
        await later.open(2_000_000_000)
        assert later.mark(3) == "e.3.2000000001"
        later.close()

    run(case)


def test_more_stamps_are_reserved_in_time() -> None:
    async def case(house: House) -> None:
        house.watch()
        await house.until(lambda: bool(house.items))
        before = house.kept
        house.wall += 45.0
        await house.until(lambda: house.kept > before)
        assert house.kept == 1_105_000_000
        assert house.loop.stamps.last <= 1_045_000_000

    run(case)
