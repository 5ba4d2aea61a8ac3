"""Snapshots over HTTP."""

from __future__ import annotations

import pytest

from griphub.access.capability import BadCapability, read
from tests.support.hub_composed import context_of
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


async def grow(hub: MemoryHub, number: int) -> str:
    """Publish two events that are more than a page of a snapshot; return the cursor of the second one."""
    await hub.publish("t", "x" * 600_000, key=f"x{number}")
    (cursor,) = await hub.publish("t", "x" * 600_000, key=f"y{number}")
    return cursor


def test_leases_of_a_topic_are_shared_by_its_owners() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        context = context_of(hub)
        cursors = [await grow(hub, number) for number in range(4)]
        for cursor in cursors[:2]:
            assert link_of((await hub.request("GET", f"/topics/t/snapshot?version={cursor}")).headers)
        answer = await hub.request("GET", f"/topics/t/snapshot?version={cursors[2]}")
        assert link_of(answer.headers), "the newest of the same owner has made room"
        context.leases.forget(1)
        for version, owner in ((2, "another"), (4, "a third one")):
            assert context.leases.take(1, version, context.now(), owner)
        answer = await hub.request("GET", f"/topics/t/snapshot?version={cursors[3]}")
        assert (answer.status, answer.json["limit"]) == (429, "snapshot_leases_max")

    run(case, {"snapshot_leases_max": "2"})


def test_a_version_that_is_not_retained_is_refused_without_a_lease() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t", retention={"events": 1})
        cursors = await hub.publish("t", *range(20), key="a")
        await hub.wait_for_count("t", 1)
        for cursor in cursors[:8]:
            assert (await hub.request("GET", f"/topics/t/snapshot?version={cursor}")).status == 410
        context = context_of(hub)
        assert not context.leases.leased(1, context.now())
        assert (await hub.request("GET", "/topics/t/snapshot")).status == 200
        assert not context.leases.leased(1, context.now()), "a snapshot of one page is read"

    run(case)


def test_links_of_pages_are_of_one_epoch() -> None:
    """Versions of an epoch are not those of the next one: a hub of any other epoch refuses the link."""

    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        await grow(hub, 1)
        snapshot = await hub.request("GET", "/topics/t/snapshot")
        text = link_of(snapshot.headers).rsplit("/", 1)[1]
        state = context_of(hub).state
        assert read(text, state.secret, f"snapshot {state.epoch}").mode == "snapshot"
        for purpose in ("link", "snapshot 00000000"):
            with pytest.raises(BadCapability):
                read(text, state.secret, purpose)

    run(case)
