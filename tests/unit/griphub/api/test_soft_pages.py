"""Pages of soft topics: the seam between a window and the chain of a range."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from griphub.api import soft_pages
from griphub.api.problem import Gone, Problem
from griphub.api.soft_pages import SoftFollower, SoftPage, SoftPages
from griphub.api.soft_query import Place
from griphub.topics.event_text import Representation
from griphub.windows.positions import Position, parse_position
from griphub.windows.span import ALL, Span
from tests.support.hub_composed import context_of
from tests.support.hub_memory import MemoryHub
from tests.support.soft_api import append, ingest, progress, reset
from tests.unit.griphub.api.cases import run

LINES = Representation.WATCH_LINES


class Reader:
    """Reader of pages of the soft topic ``t``."""

    def __init__(self, hub: MemoryHub) -> None:
        context = context_of(hub)
        self.pages = SoftPages(context, context.soft)
        topic = context.topics.named("t")
        assert topic is not None
        self.follower = SoftFollower(topic, ALL, LINES, None, "owner", 0, announced=True)
        self.window = context.soft.window(topic)

    async def read(self, place: Place | None, span: Span = ALL, size: int = 500_000) -> SoftPage:
        return await self.pages.read(replace(self.follower, place=place, span=span), size)


def test_a_page_ends_where_the_followers_of_its_range_are() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        await ingest(hub, "t", progress(1), append("a", 2), append("b", 3), append("c", 4), progress(3))
        page = await Reader(hub).read(1)
        assert [b'"version":"%d"' % version in text for version, text in zip((2, 3), page.texts, strict=True)] == [
            True
        ] * 2
        assert page.progress is not None
        tail = parse_position(page.held.mark)
        assert (page.progress.version, tail.version, page.more) == (3, 3, False)

    run(case)


def test_a_follower_ahead_of_its_range_waits_for_the_others_to_have_the_same() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        await ingest(hub, "t", progress(1))
        reader = Reader(hub)
        await reader.read(1)
        lines = [append(f"k{n}", 2 + n // 5) for n in range(5000)]
        # Taken in and complete, but not yet released to the followers of before.
        await ingest(hub, "t", *lines, progress(2000))
        released = reader.window.released(ALL)
        page = await reader.read(1001)
        assert released is not None
        assert parse_position(page.held.mark).version >= 1001
        assert page.texts == []

    run(case)


def test_a_reset_meanwhile_is_a_resync() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        await ingest(hub, "t", progress(1))
        reader = Reader(hub)
        page = await reader.read(None)
        assert page.progress is not None
        reading = asyncio.create_task(reader.read(page.progress))
        await ingest(hub, "t", reset())
        await reading
        with pytest.raises(Gone, match="a restart of the hub or a reset") as caught:
            await reader.read(page.progress)
        assert (caught.value.cause, caught.value.extra["floor"]) == ("unknown", None)
        await ingest(hub, "t", progress(7))
        with pytest.raises(Gone) as caught:
            await reader.read(page.progress)
        floor = str(caught.value.extra["floor_cursor"])
        assert (caught.value.extra["floor"], parse_position(floor).version) == ("7", 7)
        assert (await reader.read(parse_position(floor))).texts == []

    run(case)


def test_a_page_is_bounded_and_the_next_begins_behind_its_last_event() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        await ingest(hub, "t", progress(1), *[append(f"{n:03}", 2, "x" * 100) for n in range(20)], progress(2))
        reader, place, seen = Reader(hub), Position("", 0, 0), 0
        page = await reader.read(1, size=1000)
        while page.more:
            assert len(page.texts) <= 6
            assert page.progress is None
            seen += len(page.texts)
            assert page.last is not None
            assert page.last > place
            place = page.last
            page = await reader.read(place, size=1000)
        assert seen + len(page.texts) == 20

    run(case)


def test_one_owner_cannot_have_all_pages_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soft_pages, "OWNER_PAGES_WAITING", 2)

    async def case(hub: MemoryHub) -> None:
        await hub.make("t", store="none")
        await ingest(hub, "t", progress(1))
        reader = Reader(hub)
        found = await asyncio.gather(*[reader.read(1) for _ in range(3)], return_exceptions=True)
        [refused] = [each for each in found if isinstance(each, Problem)]
        assert refused.status == 429

    run(case)
