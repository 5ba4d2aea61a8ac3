"""Feed of soft topics: lines in, items out, and hints in place of silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

import orjson
import pytest

from griphub.access.quota import Limit, Quotas
from griphub.api import soft_feed
from griphub.api.soft_feed import SoftFeed
from griphub.store.topic import Topic, TopicSettings
from griphub.topics.channel_index import ChannelIndex, HeldRange
from griphub.topics.event_text import Representation
from griphub.topics.ranges import key_range
from griphub.topics.topic_table import TopicTable
from griphub.windows.bounds import WindowBounds, WindowLimit
from griphub.windows.decisions import Accepted, Refused
from griphub.windows.ingest_lines import IngestLine, Progress, Reset
from griphub.windows.span import ALL, Span
from griphub.windows.window_table import WindowTable
from tests.support.soft_world import event

INFINITY = float("inf")


class Site:
    """Feed with an index and a handler that keeps the items."""

    def __init__(self, **bounds: int) -> None:
        self.items: list[tuple[str, Any]] = []
        self.hints: list[str] = []
        self.waiting: int | None = 0
        self.index = ChannelIndex("hub/")
        self.topics = TopicTable()
        self.quotas = Quotas({"ranges": Limit(100, 100)})
        epochs = count(1)
        self.feed = SoftFeed(
            WindowTable(lambda: f"e{next(epochs)}", WindowBounds(**bounds)),
            self.topics,
            self.index,
            self.quotas,
            lambda name, item: self.items.append((name, orjson.loads(item))),
            self.hints.append,
            lambda: self.waiting,
            lambda: 1.0,
            65_536,
        )

    def topic(self, number: int = 1, owner: str = "o", progress: float = 1.0) -> Topic:
        settings = TopicSettings(store="none", progress=progress)
        topic = Topic(number, f"t{number}", 0, 0, 0, 0, 0, 0, 0, settings, owner)
        self.topics.set(topic)
        return topic

    def follow(self, topic: Topic, span: Span = ALL, form: Representation = Representation.WATCH_LINES) -> HeldRange:
        """Have a range followed, as a page would."""
        window, keys = self.feed.window(topic), key_range(*span.bounds)
        assert window.follow(span)
        self.quotas.take("ranges", "o")
        held = self.index.enter(topic.number, keys, 0, 0, "o")
        held.mark = str(window.tail(span, 5))
        channel = self.index.lease(held, form, INFINITY, INFINITY)
        self.index.subscribed(channel.name)
        self.feed.watch(topic, held)
        return held

    async def ingest(self, topic: Topic, *lines: IngestLine) -> Any:
        return await self.feed.submit(topic, lines, None)

    def given(self) -> list[list[Any]]:
        """Return the objects of each item, and forget them."""
        items, self.items = self.items, []
        return [
            [orjson.loads(line) for line in item["formats"]["http-stream"].get("content", '"hint"').splitlines()]
            for _, item in items
        ]


def run(case: Callable[[Site], Awaitable[None]], **bounds: int) -> None:
    async def with_site() -> None:
        site = Site(**bounds)
        try:
            async with asyncio.timeout(20):
                await case(site)
        finally:
            site.feed.close()

    asyncio.run(with_site())


def types(objects: Sequence[Any]) -> list[str]:
    return [each["type"] for each in objects]


def test_events_are_given_with_the_progress_that_releases_them() -> None:
    async def case(site: Site) -> None:
        topic = site.topic()
        assert await site.ingest(topic, Progress(ALL, 1)) == Accepted("e1", 0, 0, 1)
        held = site.follow(topic)
        before = held.mark
        await site.ingest(topic, event("a", 2), event("b", 3))
        assert site.items == []
        await site.ingest(topic, Progress(ALL, 3))
        [(name, item)] = site.items
        assert name == "hub/1/wlines/"
        assert (item["prev-id"], item["id"]) == (before, held.mark)
        [objects] = site.given()
        assert types(objects) == ["event", "event", "progress"]
        assert (site.feed.ingested, site.feed.items) == (2, 1)

    run(case)


def test_a_refusal_and_a_repetition_are_told_from_each_other() -> None:
    async def case(site: Site) -> None:
        topic = site.topic()
        await site.ingest(topic, Progress(ALL, 1), event("a", 2), Progress(ALL, 2))
        refused = await site.ingest(topic, event("b", 2))
        assert isinstance(refused, Refused)
        assert (refused.refusal.value, site.feed.refused) == ("conflict", {"conflict": 1})
        repeated = await site.ingest(topic, event("a", 2))
        assert (repeated.events, repeated.repeated, site.feed.repeated) == (0, 1, 1)

    run(case)


def test_progress_is_given_at_the_interval_also_when_nothing_happens() -> None:
    async def case(site: Site) -> None:
        topic = site.topic(progress=0.05)
        await site.ingest(topic, Progress(ALL, 1))
        held = site.follow(topic)
        while len(site.items) < 3:
            await site.feed.turned()
        assert [item["id"] for _, item in site.items][-1] == held.mark
        assert all(types(objects) == ["progress"] for objects in site.given())

    run(case)


def test_progress_waits_while_the_handler_is_away() -> None:
    async def case(site: Site) -> None:
        topic = site.topic(progress=0.05)
        await site.ingest(topic, Progress(ALL, 1))
        site.follow(topic)
        for waiting in (None, soft_feed.WAITING_MAX + 1):
            site.waiting = waiting
            await asyncio.sleep(3 * soft_feed.BEAT_INTERVAL)
            assert site.items == []
        site.waiting = 0
        while not site.items:
            await site.feed.turned()

    run(case)


def test_releases_wait_for_a_slow_handler_and_become_one() -> None:
    async def case(site: Site) -> None:
        topic, other = site.topic(), site.topic(2, "other")
        for each in (topic, other):
            await site.ingest(each, Progress(ALL, 1))
            site.follow(each)
        site.waiting = soft_feed.RELEASES_WAIT + 1
        for version in range(2, 6):
            await site.ingest(topic, event("a", version), Progress(ALL, version))
        await site.ingest(other, event("b", 2), Progress(ALL, 2))
        await asyncio.sleep(3 * soft_feed.PAUSE)
        assert site.items == [], "no ingester waits, and no item is made"
        site.waiting = soft_feed.RELEASES_WAIT
        while len(site.items) < 2:
            await site.feed.turned()
        [objects, others] = site.given()
        assert types(objects) == [*["event"] * 4, "progress"]
        assert types(others) == ["event", "progress"]
        site.waiting = None
        await site.ingest(topic, event("a", 6), Progress(ALL, 6))
        assert len(site.items) == 1, "a handler that is away gets hints by what it misses"

    run(case)


def test_a_deleted_topic_waits_for_no_handler() -> None:
    async def case(site: Site) -> None:
        topic = site.topic()
        await site.ingest(topic, Progress(ALL, 1))
        site.follow(topic)
        site.waiting = soft_feed.RELEASES_WAIT + 1
        await site.ingest(topic, event("a", 2), Progress(ALL, 2))
        site.topics.remove(1)
        site.feed.forget(1)
        site.waiting = 0
        await asyncio.sleep(3 * soft_feed.PAUSE)
        assert site.items == []

    run(case)


def test_a_reset_hints_its_watchers_and_gives_their_range_back() -> None:
    async def case(site: Site) -> None:
        topic = site.topic()
        await site.ingest(topic, Progress(ALL, 1))
        site.follow(topic)
        site.follow(topic, Span("a", "m"))
        site.follow(topic, Span("m", "z"))
        await site.ingest(topic, Reset(Span("a", "b")))
        assert sorted(site.hints) == ["hub/1/wlines/", "hub/1/wlines/YQ~bQ"]
        assert site.index.ranges(1) == 1
        assert site.quotas.count("ranges", "o") == 2, "that of the whole topic counts for no owner"
        assert site.feed.resyncs == {"reset": 2}

    run(case)


def test_a_range_that_has_left_the_index_is_released_to_no_more() -> None:
    async def case(site: Site) -> None:
        topic = site.topic()
        await site.ingest(topic, Progress(ALL, 1))
        held = site.follow(topic)
        site.index.discard(held)
        site.feed.left(held)
        assert site.feed.window(topic).ranges == 0
        await site.ingest(topic, event("a", 2), Progress(ALL, 2))
        assert site.items == []

    run(case)


def test_a_deleted_topic_ends_the_requests_that_wait() -> None:
    async def case(site: Site) -> None:
        topic = site.topic()
        waiting = site.feed.submit(topic, [Progress(ALL, 1)], None)
        site.topics.remove(1)
        site.feed.forget(1)
        with pytest.raises(LookupError):
            await waiting
        assert len(site.feed.windows) == 0

    run(case)


def test_a_source_that_gives_very_much_delays_itself() -> None:
    async def case(site: Site) -> None:
        greedy, other = site.topic(1, "greedy"), site.topic(2, "other")
        long = [site.feed.submit(greedy, [event(f"{n}", 2 + m) for n in range(2000)], None) for m in range(5)]
        short = site.feed.submit(other, [event("a", 1)], None)
        await short
        assert not long[0].done()
        await asyncio.gather(*long)

    run(case)


def test_very_many_bytes_of_a_turn_are_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soft_feed, "TURN_BYTES", 300)

    async def case(site: Site) -> None:
        topic = site.topic()
        await site.ingest(topic, Progress(ALL, 1))
        site.follow(topic, Span("a", "m"))
        site.follow(topic, Span("a", "n"))
        await site.ingest(topic, event("a", 2), Progress(ALL, 2))
        [whole, hint] = site.given()
        assert types(whole) == ["event", "progress"]
        assert hint == ["hint"]

    run(case)


def test_a_window_too_large_for_its_owner_drops_events_and_followers_resync() -> None:
    async def case(site: Site) -> None:
        topic = site.topic()
        await site.ingest(topic, Progress(ALL, 1))
        site.follow(topic)
        await site.ingest(topic, *[event(f"k{n}", 2) for n in range(40)])
        assert site.feed.resyncs == {"full": 1}
        assert site.hints == ["hub/1/wlines/"]

    run(case, bytes_each=10_000)


def test_soft_topics_of_before_the_start_have_their_windows_at_once() -> None:
    async def case(site: Site) -> None:
        site.feed.open([site.topic(1), site.topic(2)])
        assert len(site.feed.windows) == 1, "one beyond the bound is refused by its requests"
        with pytest.raises(WindowLimit):
            site.feed.window(site.topic(2))

    run(case, windows_each=1)
