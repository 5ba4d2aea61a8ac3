"""A hub with the real processes of its store, which are stopped, killed, or without space; the hub goes on."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import time
from collections.abc import Awaitable, Callable

from tests.support.hub_api import PATIENCE, HubApi, answers_until, hub_api
from tests.support.hub_composed import Composed, context_of
from tests.support.hub_described import check_problem

EVENTS = "/topics/t/events"

READS = [
    "/topics",
    "/topics/t",
    EVENTS,
    EVENTS + "?since=2026-11-23T19:00:00Z",
    EVENTS + "?wait=5",
    "/topics/t/keys/k",
    "/topics/t/snapshot",
]


async def with_hub(case: Callable[[HubApi], Awaitable[None]]) -> None:
    """Run a hub, and the case with it."""
    async with hub_api() as hub:
        await case(hub)


def test_while_the_writer_is_away_reads_go_on_and_writes_are_refused() -> None:
    async def case(hub: HubApi) -> None:
        await hub.make("t")
        await hub.publish("t", "before", key="k")
        context = context_of(hub)
        pid = context.writer.pid
        # Stopped, so that it has requests and answers none.
        os.kill(pid, signal.SIGSTOP)
        named = {"Idempotency-Key": "one"}
        begun = [
            asyncio.ensure_future(request)
            for request in (
                hub.request("POST", EVENTS, b"x"),
                hub.request("POST", EVENTS, b"named", named),
                hub.request("PUT", "/topics/t/keys/k", b"x"),
                hub.request("PUT", "/topics/u", {}),
                hub.request("POST", "/topics/t/revoke"),
            )
        ]
        deadline = time.monotonic() + PATIENCE
        while context.writer.waiting == 0 or not hub.hub._application or hub.hub._application.busy < 2:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert (await hub.request("GET", EVENTS)).json["events"][0]["data"] == "before"
        os.kill(pid, signal.SIGKILL)
        refused = await asyncio.gather(*begun)
        # The first requests while there is none.
        while context.writer.working:
            assert time.monotonic() < deadline
            await asyncio.sleep(0)
        away = [await Composed(context).ask("POST", EVENTS, body=b"y")]
        away.append(await Composed(context).ask("DELETE", "/topics/t"))
        for answer in (*refused, *away):
            check_problem(answer, 503, "")
            assert answer.headers["retry-after"] == "1"
        for target in READS:
            assert (await hub.request("GET", target)).status in (200, 410), target
        answers = await answers_until(lambda: hub.request("POST", EVENTS, b"named", named), 201)
        assert {answer.status for answer in answers[:-1]} <= {503}
        assert context.writer.pid not in (0, pid)
        for _ in range(3):
            assert (await hub.request("POST", EVENTS, b"after")).status == 201
        bodies = [event.get("data_base64") for event in (await hub.request("GET", EVENTS)).json["events"]]
        # The writer may have stored events before its end: the named one is there once.
        assert bodies.count("bmFtZWQ=") == 1
        assert bodies.count("YWZ0ZXI=") == 3
        assert bodies.count("eQ==") == 0
        assert (await hub.request("PUT", "/topics/u", {})).status in (200, 201)
        assert (await hub.request("POST", "/topics/t/revoke")).status == 204

    asyncio.run(with_hub(case))


def test_a_reader_that_ends_is_replaced() -> None:
    async def case(hub: HubApi) -> None:
        await hub.make("t")
        await hub.publish("t", 1)
        pids = context_of(hub).readers.pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        answers = await answers_until(lambda: hub.request("GET", EVENTS), 200)
        assert {answer.status for answer in answers[:-1]} <= {503}
        assert answers[-1].json["events"][0]["data"] == 1
        assert (await hub.request("POST", EVENTS, b"x")).status == 201

    asyncio.run(with_hub(case))


def test_a_full_disk_refuses_events_until_there_is_space(tmp_path: pathlib.Path) -> None:
    async def case() -> None:
        async with hub_api({"ballast": "1000000"}, tmp_path) as hub:
            await hub.make("t")
            await hub.publish("t", "before", key="k")
            context = context_of(hub)
            await context.writer.make_room()
            # The space of the ballast is gone to another program.
            (tmp_path / "hub.db.ballast").mkdir()
            requests = (("POST", EVENTS), ("PUT", "/topics/t/keys/k"), ("DELETE", "/topics/t/keys/k"))
            for method, target in requests:
                refused = await hub.request(method, target, None if method == "DELETE" else b"x")
                check_problem(refused, 507, "made space")
            for target in READS:
                assert (await hub.request("GET", target)).status == 200, target
            page = (await hub.request("GET", EVENTS)).json
            assert [event["data"] for event in page["events"]] == ["before"]
            (tmp_path / "hub.db.ballast").rmdir()
            await answers_until(lambda: hub.request("POST", EVENTS, {"a": 1}), 201)
            assert context.writer.restarts == 0
            page = (await hub.request("GET", EVENTS)).json
            assert [event["data"] for event in page["events"]] == ["before", {"a": 1}]

    asyncio.run(case())
