"""Topics: made, changed, listed, deleted."""

from __future__ import annotations

import asyncio

from tests.support.hub_memory import MemoryHub
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
