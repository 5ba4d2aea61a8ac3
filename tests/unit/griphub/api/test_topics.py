"""Topics: made, changed, listed, deleted."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.hub_composed import context_of
from tests.support.hub_memory import MemoryHub
from tests.support.soft_api import ingest, progress
from tests.unit.griphub.api.cases import run

MERGE = {"Content-Type": "application/merge-patch+json"}


def test_settings_are_put_and_patched() -> None:
    async def case(hub: MemoryHub) -> None:
        made = await hub.request("PUT", "/topics/a", {"retention": {"events": 10}, "labels": {"team": "x"}})
        assert made.status == 201
        assert made.json["retention"]["events"] == 10
        changed = await hub.request("PATCH", "/topics/a", {"retention": {"events": None, "age": 60}}, MERGE)
        assert changed.status == 200
        assert changed.json["retention"] == {"age": 60, "events": None, "bytes": None, "compact": False}
        assert changed.json["labels"] == {"team": "x"}
        replaced = await hub.request("PUT", "/topics/a", {})
        assert replaced.status == 200
        assert replaced.json["labels"] == {}
        await hub.publish("a", "x", "y")
        shown = (await hub.request("GET", "/topics/a")).json
        assert shown["count"] == 2
        assert shown["last_cursor"].endswith(".2")
        assert (await hub.request("PATCH", "/topics/b", {}, MERGE)).status == 404
        wrong = await hub.request("PUT", "/topics/b", {"retension": {}})
        assert wrong.status == 400
        assert "retention" in wrong.json["detail"]

    run(case)


def test_names_are_decoded_once() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("P%2FT")
        assert (await hub.request("GET", "/topics/P%2FT")).json["name"] == "P/T"
        assert (await hub.request("GET", "/topics/P%252FT")).status == 404
        for name in ("..", "%2E%2E", "a%00b", "%FF", "", "x" * 256, "a%2F", "%2Fa", "a%2F..%2Fb"):
            refused = await hub.request("PUT", f"/topics/{name}", {})
            assert refused.status in (400, 404), name

    run(case)


def test_the_list_goes_on_behind_a_name() -> None:
    async def case(hub: MemoryHub) -> None:
        for name in "cabed":
            await hub.make(name)
        first = (await hub.request("GET", "/topics?limit=2")).json
        assert [topic["name"] for topic in first["topics"]] == ["a", "b"]
        second = (await hub.request("GET", f"/topics?after={first['next']}&limit=10")).json
        assert [topic["name"] for topic in second["topics"]] == ["c", "d", "e"]
        assert second["next"] is None

    run(case)


def test_changes_under_way_are_bounded() -> None:
    async def case(hub: MemoryHub) -> None:
        with hub.writer_held():
            asked = [asyncio.ensure_future(hub.request("PUT", f"/topics/t{n}", {})) for n in range(101)]
            done, _ = await asyncio.wait(asked, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            [refused] = [each.result() for each in done]
            assert (refused.status, refused.json["limit"]) == (429, "topic_changes_per_owner_max")
        assert sorted([answer.status for answer in await asyncio.gather(*asked)]) == [201] * 100 + [429]
        await hub.make("after")

    run(case)


def test_topics_are_bounded() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("a")
        await hub.make("b")
        refused = await hub.request("PUT", "/topics/c", {})
        assert refused.status == 429
        assert refused.json["limit"] == "topics_per_owner_max"
        assert (await hub.request("PUT", "/topics/a", {})).status == 200
        await hub.request("DELETE", "/topics/b")
        await hub.make("c")

    run(case, {"topics_per_owner_max": "2"})


@pytest.mark.parametrize("kinds", [("none", "disk"), ("disk", "none")])
def test_of_two_requests_for_a_topic_of_both_kinds_one_is_told(kinds: tuple[str, str]) -> None:
    async def case(hub: MemoryHub) -> None:
        with hub.writer_held():
            asked = [asyncio.ensure_future(hub.request("PUT", "/topics/t", {"store": kind})) for kind in kinds]
            await asyncio.sleep(0)
        answers = await asyncio.gather(*asked)
        won = next(answer for answer in answers if answer.status == 201)
        told = next(answer for answer in answers if answer.status != 201)
        assert (told.status, "cannot be changed" in told.json["detail"]) == (409, True)
        soft = won.json["store"] == "none"
        assert (await hub.request("GET", "/topics/t")).json["store"] == won.json["store"]
        assert (await ingest(hub, "t", progress(1))).status == (200 if soft else 409)
        stored = await hub.request("POST", "/topics/t/events", {"events": [{"data": 1, "key": "a"}]})
        assert stored.status == (409 if soft else 201)
        assert len(context_of(hub).soft.windows) == soft

    run(case)


def test_soft_topics_that_are_being_made_count() -> None:
    async def case(hub: MemoryHub) -> None:
        settings = {"store": "none"}
        with hub.writer_held():
            asked = [asyncio.ensure_future(hub.request("PUT", f"/topics/t{n}", settings)) for n in range(5)]
            done, _ = await asyncio.wait(asked, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            while len(done) < 3:
                done, _ = await asyncio.wait(asked, timeout=0.01)
        answers = await asyncio.gather(*asked)
        assert sorted([answer.status for answer in answers]) == [201, 201, 429, 429, 429]
        assert len((await hub.request("GET", "/topics")).json["topics"]) == 2
        await hub.request("DELETE", "/topics/t0")
        await hub.make("after", store="none")

    run(case, {"soft_topics_per_owner_max": "2"})


def test_a_topic_made_again_between_two_deletions_is_deleted_whole() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        with hub.writer_held():
            asked = [asyncio.ensure_future(hub.request("DELETE", "/topics/t"))]
            await asyncio.sleep(0)
            asked.append(asyncio.ensure_future(hub.request("PUT", "/topics/t", {})))
            await asyncio.sleep(0)
            asked.append(asyncio.ensure_future(hub.request("DELETE", "/topics/t")))
            await asyncio.sleep(0)
        await asyncio.gather(*asked)
        assert (await hub.request("GET", "/topics/t")).status == 404
        assert list(context_of(hub).topics) == []
        await hub.make("t", store="none")

    run(case)


def test_a_revocation_keeps_the_settings_that_were_changed_meanwhile() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        with hub.writer_held():
            asked = [asyncio.ensure_future(hub.request("PATCH", "/topics/t", {"progress": 7}, MERGE))]
            asked.append(asyncio.ensure_future(hub.request("POST", "/topics/t/revoke")))
            await asyncio.sleep(0)
        await asyncio.gather(*asked)
        topic = context_of(hub).topics.named("t")
        assert topic is not None
        assert topic.settings.progress == 7

    run(case)


def test_soft_topics_are_bounded_and_of_their_kind_for_ever() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("stored")
        soft = {"store": "none", "snapshot_url": "https://source.example/s"}
        made = await hub.request("PUT", "/topics/a", soft)
        assert (made.status, made.json["store"], made.json["snapshot_url"]) == (201, "none", soft["snapshot_url"])
        assert (await hub.request("GET", "/topics/a")).json["snapshot_url"] == soft["snapshot_url"]
        patched = await hub.request("PATCH", "/topics/a", {"progress": 2}, MERGE)
        assert (patched.json["progress"], patched.json["store"]) == (2, "none")
        for topic, settings in (("a", {}), ("stored", soft)):
            changed = await hub.request("PUT", f"/topics/{topic}", settings)
            assert (changed.status, "delete it first" in changed.json["detail"]) == (409, True)
        await hub.make("b", store="none")
        full = await hub.request("PUT", "/topics/c", soft)
        assert (full.status, full.json["limit"], full.json["max"]) == (429, "soft_topics_per_owner_max", 2)
        assert (await hub.request("PUT", "/topics/a", soft)).status == 200, "one that is there"
        assert (await hub.request("DELETE", "/topics/b")).status == 204
        assert (await hub.request("PUT", "/topics/c", soft)).status == 201

    run(case, {"soft_topics_per_owner_max": "2"})
