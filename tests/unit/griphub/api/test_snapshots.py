"""Snapshots over HTTP."""

from __future__ import annotations

from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run
from tests.unit.griphub.api.test_reading import link_of


def test_scenario_12_a_snapshot_is_the_state_at_its_version_and_says_that_it_is_complete() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await hub.request(
            "POST",
            "/topics/t/events",
            {"events": [{"key": f"k{number:05}", "data": "x" * 100} for number in range(1000)]},
        )
        for start in range(1000, 10_000, 1000):
            batch = [{"key": f"k{number:05}", "data": "x" * 100} for number in range(start, start + 1000)]
            await hub.request("POST", "/topics/t/events", {"events": batch})
        answer = await hub.request("GET", "/topics/t/snapshot")
        lines = answer.lines
        version = lines[0]["cursor"]
        assert lines[0]["type"] == "snapshot"
        pages = 1
        while "grip-link" in answer.headers:
            # Meanwhile the state changes.
            await hub.publish("t", "new", key=f"k{pages:05}")
            await hub.request("DELETE", f"/topics/t/keys/k{9000 + pages:05}")
            path = "/snapshot/" + link_of(answer.headers).removeprefix("../../snapshot/")
            answer = await hub.request("GET", path)
            lines += answer.lines
            pages += 1
        assert pages > 2
        assert lines[-1] == {"complete": lines[0]["version"], "cursor": version}
        assert [line["key"] for line in lines[1:-1]] == [f"k{number:05}" for number in range(10_000)]
        assert {line["data"] for line in lines[1:-1]} == {"x" * 100}
        again = await hub.request("GET", "/topics/t/snapshot?low=k00001&high=k00002")
        assert [line.get("data") for line in again.lines[1:-1]] == ["new"]
        old = await hub.request("GET", f"/topics/t/snapshot?low=k00001&high=k00002&version={version}")
        assert [line.get("data") for line in old.lines[1:-1]] == ["x" * 100]
        assert (await hub.request("GET", "/topics/t/snapshot?version=abcd.1")).status == 410

    run(case)


def test_leases_of_a_topic_are_bounded() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        paths = []
        for _ in range(3):
            for start in range(0, 5000, 1000):
                batch = [{"key": f"k{number:05}", "data": "x" * 100} for number in range(start, start + 1000)]
                await hub.request("POST", "/topics/t/events", {"events": batch})
            answer = await hub.request("GET", "/topics/t/snapshot")
            if answer.status == 200:
                paths.append("/snapshot/" + link_of(answer.headers).removeprefix("../../snapshot/"))
        assert len(paths) == 2
        assert answer.status == 429
        assert answer.json["limit"] == "snapshot_leases_max"
        while paths:
            answer = await hub.request("GET", paths[0])
            if "grip-link" in answer.headers:
                paths[0] = "/snapshot/" + link_of(answer.headers)
            else:
                paths.pop(0)
        assert (await hub.request("GET", "/topics/t/snapshot")).status == 200

    run(case, {"snapshot_leases_max": "2"})
