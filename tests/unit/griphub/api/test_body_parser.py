"""Large bodies: which of them are read by a child, and in whose turn; what is read is stored."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from griphub.api.body_parser import LARGE_BODY, BodyParser
from griphub.api.body_process import drafts
from griphub.api.problem import Problem
from griphub.processes.readers import ReaderPool
from tests.support.hub import until
from tests.support.hub_bodies import LARGE, QUERY, body_parser, publish_request
from tests.support.hub_composed import context_of
from tests.support.hub_memory import MemoryHub
from tests.unit.griphub.api.cases import run


@pytest.fixture
async def parser(tmp_path: pathlib.Path) -> AsyncIterator[BodyParser]:
    """Return a parser, which is ended with the test."""
    async with body_parser(tmp_path) as parser:
        yield parser


async def test_large_bodies_in_json_are_wanted(parser: BodyParser) -> None:
    assert parser.wants(publish_request(), QUERY)
    assert parser.wants(publish_request(LARGE[:LARGE_BODY]), QUERY)
    assert not parser.wants(publish_request(LARGE[: LARGE_BODY - 1]), QUERY)
    assert not parser.wants(publish_request(content_type="text/plain"), QUERY)
    assert parser.pids == []


async def test_a_process_that_ends_during_its_start_is_followed_by_another_one(parser: BodyParser) -> None:
    reading = asyncio.ensure_future(parser.drafts(publish_request(), QUERY, "o"))
    await until(lambda: any(parser.pids), "the process")
    os.kill(parser.pids[0], signal.SIGKILL)
    with pytest.raises(Problem) as raised:
        await reading
    assert raised.value.status == 503
    for _ in range(2):
        assert len(await parser.drafts(publish_request(), QUERY, "o")) == 1


class SlowPool:
    """Pool whose calls end when they are told to, in place of ``ReaderPool``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[asyncio.Future[Any]] = []
        self.bodies: list[bytes] = []

        async def start(pool: ReaderPool) -> None:
            pass

        async def call(pool: ReaderPool, method: str, headers: Any, query: Any, body: bytes) -> Any:
            self.bodies.append(body)
            self.calls.append(asyncio.get_running_loop().create_future())
            await self.calls[-1]
            return drafts(headers, query, body)

        patch.setattr(ReaderPool, "start", start)
        patch.setattr(ReaderPool, "call", call)

    async def finish(self) -> None:
        """End the last call, and let the next one begin."""
        self.calls[-1].set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_each_owner_has_its_turn(parser: BodyParser, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SlowPool(monkeypatch)
    names = ("a0", "a1", "a2", "a3", "b0", "c0", "b1")
    readings = [
        asyncio.ensure_future(parser.drafts(publish_request(json.dumps(name).encode()), QUERY, name[0]))
        for name in names
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    # One that has its turn, and one that waits, are given up.
    assert pool.bodies == [b'"a0"']
    readings[0].cancel()
    readings[3].cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    for _ in range(5):
        await pool.finish()
    assert pool.bodies == [b'"a0"', b'"a1"', b'"b0"', b'"c0"', b'"a2"', b'"b1"']
    got = await asyncio.gather(*readings, return_exceptions=True)
    assert [type(each).__name__ for each in got] == ["CancelledError", *["tuple"] * 2, "CancelledError", *["tuple"] * 3]


def test_the_hub_stores_what_was_read() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        assert context_of(hub).bodies._started is None
        texts = ["x" * 50_000, "y" * 50_000, "z" * 50_000]
        assert len(await hub.publish("t", *texts)) == 3
        page = await hub.request("GET", "/topics/t/events")
        assert [event["data"] for event in page.json["events"]] == texts
        assert context_of(hub).bodies._started is not None
        answer = await hub.request("PUT", "/topics/t/keys/k", LARGE, {"Content-Type": "application/json"})
        assert answer.status == 201
        assert (await hub.request("GET", "/topics/t/keys/k")).body == LARGE
        headers = {"Content-Type": "application/json", "If-Match": '"0"', "Event-Key": "k"}
        assert (await hub.request("POST", "/topics/t/events", LARGE, headers)).status == 412
        for method, path in (("POST", "/topics/t/events"), ("PUT", "/topics/t/keys/k")):
            bad = await hub.request(method, path, LARGE[:-1], {"Content-Type": "application/json"})
            assert (bad.status, bad.json["type"]) == (400, "urn:gripproxy:hub:bad-request"), bad

    run(case)


def test_a_topic_that_is_missing() -> None:
    async def case(hub: MemoryHub) -> None:
        headers = {"Content-Type": "application/json"}
        for method, path in (("POST", "events"), ("PUT", "keys/k")):
            assert (await hub.request(method, f"/topics/no/{path}", LARGE, headers)).status == 404
            assert (await hub.request(method, f"/topics/auto-{method}/{path}", LARGE, headers)).status == 201

    run(case, {"hub_autocreate": "auto-*"})


def test_the_same_head_may_have_a_small_and_a_large_body() -> None:
    async def case(hub: MemoryHub) -> None:
        await hub.make("t")
        small = json.dumps("x").encode()
        headers = {"Content-Type": "application/json"}
        for body in (small, small, LARGE, small):
            assert (await hub.request("POST", "/topics/t/events", body, headers)).status == 201
        page = await hub.request("GET", "/topics/t/events")
        sizes = [len(event["data"]) for event in page.json["events"]]
        assert sizes == [1, 1, LARGE_BODY, 1]

    run(case)
