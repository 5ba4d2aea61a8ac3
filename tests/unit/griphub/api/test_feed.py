"""Feed: outcomes of commits in, publications of the fan-out out, in the order of the ids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import orjson
import pytest

from griphub.api.context import HubCounters
from griphub.api.feed import Feed, StoredEvent, events_of
from griphub.store.cursor import EpochInterval
from griphub.store.errors import StoreError
from griphub.store.event import Draft, Event
from griphub.store.interface import WHOLE
from griphub.store.publication import Published
from griphub.topics.channel_index import ChannelIndex
from griphub.topics.event_text import Epochs, Representation
from griphub.topics.fanout import FanOut

TOPIC = 7


class Listener:
    """Keeps the events of the topics that it wants."""

    def __init__(self) -> None:
        self.wanted: set[int] = set()
        self.taken: list[int] = []

    def wants(self, number: int) -> bool:
        return number in self.wanted

    def take(self, number: int, events: Sequence[Event]) -> None:
        self.taken += [event.id for event in events]


class House:
    """A feed and a fan-out whose items are collected as pairs of ``prev-id`` and ``id``; the newest id is 3."""

    def __init__(self, *, followed: bool = True) -> None:
        self.index = ChannelIndex("")
        self.items: list[tuple[str, str]] = []
        self.fanout = FanOut(self.index, Epochs([EpochInterval("e", 1, None)]), self._take, 3, 1000)
        self.counters = HubCounters()
        self.listener = Listener()
        self.feed = Feed(self.fanout, self.counters, [self.listener])
        self.stored: list[StoredEvent] = []
        """Events of the store."""
        if followed:
            self.index.lease(self.fanout.enter(TOPIC, WHOLE, 0, ""), Representation.SSE, 60.0, float("inf"))

    def _take(self, channel: str, item: bytes) -> None:
        parsed = orjson.loads(item)
        self.items.append((parsed["prev-id"], parsed["id"]))

    def store(self, first: int, number: int = 1) -> tuple[Published, list[Draft]]:
        """Store events; return the outcome and the drafts."""
        ids = range(first, first + number)
        drafts = [Draft(b"%d" % id, "application/json") for id in ids]
        published = Published(TOPIC, first - 1, tuple(ids), tuple(id * 10**6 for id in ids))
        self.stored += [(TOPIC, event) for event in events_of(published, drafts)]
        return published, drafts

    async def read(self, after: int) -> Sequence[StoredEvent]:
        await asyncio.sleep(0)
        versions = sorted({event.version for _, event in self.stored if event.id > after})[:2]
        return [(number, event) for number, event in self.stored if event.id > after and event.version in versions]

    async def quiet(self) -> None:
        """Wait until the fan-out has done its work."""
        while self.fanout.newest < self.fanout.added:  # noqa: ASYNC110 - a turn of the loop each
            await asyncio.sleep(0)


def chain(first: int, last: int) -> list[tuple[str, str]]:
    return [(f"e.{id - 1}", f"e.{id}") for id in range(first, last + 1)]


def test_the_events_of_a_publication_share_its_version() -> None:
    drafts = [Draft(b"a", "text/plain", "k", "delete", {"x": "y"}), Draft(b"b")]
    assert events_of(Published(TOPIC, 5, (8, 9), (80, 90)), drafts) == (
        Event(8, 5, 9, 80, b"a", "text/plain", "k", "delete", {"x": "y"}),
        Event(9, 8, 9, 90, b"b", "application/octet-stream", None, "put", {}),
    )


async def test_a_publication_becomes_items_in_a_later_turn() -> None:
    house = House()
    house.feed.published(*house.store(4, 2))
    house.feed.published(*house.store(6))
    assert (house.items, house.fanout.stored) == ([], 6)
    await house.quiet()
    assert house.items == chain(4, 6)
    assert (house.counters.published, house.counters.published_bytes, house.counters.topics[TOPIC]) == (3, 3, 3)


async def test_a_topic_without_followers_costs_no_turn() -> None:
    house = House(followed=False)
    house.feed.published(*house.store(4, 2))
    assert (house.fanout.newest, house.counters.published) == (5, 2)


async def test_unseen_commits_are_read_from_the_store_before_later_ones() -> None:
    house = House()
    house.store(4, 3)
    house.store(7)
    house.store(8, 2)
    catching_up = asyncio.create_task(house.feed.catch_up(9, house.read))
    await asyncio.sleep(0)
    house.feed.published(*house.store(10, 2))
    assert house.fanout.stored == 11, "a place that a publisher was given is a place of this store"
    await catching_up
    house.feed.published(*house.store(12))
    await house.quiet()
    assert house.items == chain(4, 12)


async def test_events_that_were_seen_are_not_read_again() -> None:
    house = House()
    house.feed.published(*house.store(4))
    await house.feed.catch_up(4, house.read)
    await house.quiet()
    assert house.items == chain(4, 4)


async def test_a_second_return_of_the_writer_extends_the_catch_up() -> None:
    house = House()
    house.store(4)
    first = asyncio.create_task(house.feed.catch_up(4, house.read))
    await asyncio.sleep(0)
    house.store(5)
    await house.feed.catch_up(5, house.read)
    await first
    await house.quiet()
    assert house.items == chain(4, 5)


async def test_nothing_overtakes_what_cannot_be_read_now() -> None:
    house = House()
    house.store(4)

    async def broken(after: int) -> Sequence[StoredEvent]:
        raise StoreError("no reader")

    with pytest.raises(StoreError):
        await house.feed.catch_up(4, broken)
    house.feed.published(*house.store(5))
    await house.quiet()
    assert (house.items, house.fanout.stored) == ([], 5)
    await house.feed.catch_up(4, house.read)
    house.feed.published(*house.store(6))
    await house.quiet()
    assert house.items == chain(4, 6)


async def test_deleted_events_are_passed_over() -> None:
    house = House()
    house.store(4)
    house.store(5)
    del house.stored[-1]
    await house.feed.catch_up(5, house.read)
    await house.quiet()
    assert (house.items, house.fanout.newest) == (chain(4, 4), 5)
    house.feed.published(*house.store(6))
    await house.quiet()
    assert house.items == [*chain(4, 4), ("e.4", "e.6")]


async def test_the_fan_out_gets_turns_until_all_is_done() -> None:
    house = House()
    for first in range(4, 1300):
        house.feed.published(*house.store(first))
    await house.quiet()
    assert house.items == chain(4, 1299)


async def test_an_id_without_an_event_is_reached_at_once_and_behind_what_waits() -> None:
    house = House()
    house.fanout.reach(4)
    assert (house.fanout.newest, house.fanout.whole) == (4, 4)
    house.feed.published(*house.store(5))
    house.fanout.reach(6)
    assert house.fanout.newest == 4
    await house.quiet()
    assert (house.fanout.newest, house.items) == (6, [("e.3", "e.5")])


async def test_an_id_without_an_event_waits_for_the_catch_up() -> None:
    house = House()
    house.store(4)
    catching_up = asyncio.create_task(house.feed.catch_up(4, house.read))
    await asyncio.sleep(0)
    house.fanout.reach(5)
    assert (house.fanout.newest, house.fanout.stored) == (3, 5)
    await catching_up
    await house.quiet()
    assert (house.fanout.newest, house.items) == (5, chain(4, 4))
