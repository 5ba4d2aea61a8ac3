"""Retention over HTTP: floors rise, events go, leases keep them."""

from __future__ import annotations

import asyncio
import time

import orjson

from griphub.api.feed import StoredEvent
from griphub.processes.retention_loop import RetentionLoop
from griphub.store.event import Draft
from griphub.store.publication import Publication
from tests.support.hub_composed import context_of
from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run
from tests.unit.griphub.api.test_reading import link_of


def test_a_lease_keeps_the_version_of_a_snapshot() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", retention={"events": 2})
        await hub.make("other", retention={"events": 2})
        batch = [{"key": f"k{number:05}", "data": "x" * 400} for number in range(1000)]
        for _ in range(4):
            await hub.request("PUT", "/topics/t", {"retention": {"events": 100_000}})
            await hub.request("POST", "/topics/t/events", {"events": batch})
            batch = [{**event, "key": event["key"] + "x"} for event in batch]
        first = await hub.request("GET", "/topics/t/snapshot")
        assert "grip-link" in first.headers
        for _ in range(3):
            await hub.publish("t", "new", key="k00000")
        await hub.request("PUT", "/topics/t", {"retention": {"events": 2}})
        await hub.publish("other", *range(10))
        await hub.wait_for_count("other", 2)
        # The round that trimmed the other topic has left this one at the version that is being read.
        assert (await hub.request("GET", "/topics/t")).json["floor_cursor"] <= first.lines[0]["cursor"]
        answer = await hub.request("GET", "/snapshot/" + link_of(first.headers).removeprefix("../../snapshot/"))
        lines = first.lines + answer.lines
        while "grip-link" in answer.headers:
            answer = await hub.request("GET", "/snapshot/" + link_of(answer.headers))
            lines += answer.lines
        assert lines[-1]["complete"] == lines[0]["version"]
        await hub.wait_for_count("t", 2)

    run(case)


def test_deleted_topics_give_their_space_back() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await hub.publish("t", *range(1000))
        await hub.request("DELETE", "/topics/t")
        await hub.make("t", retention={"events": 1})
        await hub.publish("t", *range(10))
        await hub.wait_for_count("t", 1)
        assert (await hub.request("GET", "/topics/t")).json["count"] == 1

    run(case)


async def commit_unseen(hub: MemoryHub, *drafts: Draft) -> None:
    """Commit a publication whose outcome the feed does not see, as when the writer ends before it reports."""
    done = asyncio.get_running_loop().create_future()
    hub.hub._writer.append(Publication("t", drafts), done.set_result)
    await done


def test_no_floor_passes_an_event_that_followers_have_not_got() -> None:
    """The writer ends before it reports two commits, and the retention comes before they are read again."""

    async def case(hub: MemoryHub) -> None:
        context, feed = context_of(hub), hub.hub._feed
        assert feed is not None
        await hub.make("t", retention={"events": 1})
        await hub.publish("t", "first", key="a")
        await hub.request("GET", "/topics/t/watch?version=0")
        items: list[tuple[str, str]] = []

        def take(_channel: str, item: bytes) -> None:
            parsed = orjson.loads(item)
            items.append((parsed["prev-id"].partition(".")[2], parsed["id"].partition(".")[2]))

        context.fanout._publish = take
        await commit_unseen(hub, Draft(b'"second"', "application/json", "b"))
        await commit_unseen(hub, Draft(b'"third"', "application/json", "c"))
        loop = RetentionLoop(
            *(hub.hub._writer, hub.hub._readers, context.topics, hub.hub._index, context.fanout),
            *(context.leases, context.now),
        )
        await loop.round()
        await hub.hub._catch_up(feed, (await context.readers.state()).newest)
        deadline = time.monotonic() + 30
        while len(items) < 2:
            assert time.monotonic() < deadline, items
            await asyncio.sleep(0)
        assert [id for _, id in items] == ["2", "3"]
        assert items[1][0] == "2"
        await loop.round()
        assert (await hub.request("GET", "/topics/t")).json["count"] == 1

    run(case)


def test_a_snapshot_during_a_catch_up_is_that_of_a_whole_version() -> None:
    async def case(hub: MemoryHub) -> None:
        context, feed = context_of(hub), hub.hub._feed
        assert feed is not None
        await hub.make("t")
        await hub.publish("t", 0, key="a")
        assert (await hub.request("GET", "/topics/t/watch?version=0")).status == 200
        # One transaction that is read back in parts.
        big = b'"%s"' % (b"x" * 900_000)
        await commit_unseen(hub, *[Draft(big, "application/json", key) for key in "abcdefgh"])
        answers = []

        async def read(after: int) -> list[StoredEvent]:
            if after > 1:
                deadline = time.monotonic() + 30
                while context.fanout.newest < after:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0)
                answers.append(await hub.request("GET", "/topics/t/snapshot"))
            return list((await context.readers.events_after(after, 1000, 4_000_000)).events)

        await feed.catch_up((await context.readers.state()).newest, read)
        assert answers
        assert {answer.lines[0]["version"] for answer in answers} == {"1"}

    run(case)
