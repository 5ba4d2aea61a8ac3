"""Retention over HTTP: floors rise, events go, leases keep them."""

from __future__ import annotations

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
