"""Following a topic of the hub through the proxy: replay and live are one sequence, whatever dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.support.hub import HubSite, following, hub_site, until

LINES = {"Accept": "application/x-ndjson"}


@pytest.fixture(scope="module")
def site() -> Iterator[HubSite]:
    with hub_site() as site:
        yield site


async def make(session: aiohttp.ClientSession, site: HubSite, topic: str, **settings: Any) -> None:
    async with session.put(f"{site.url}/topics/{topic}", json=settings) as response:
        assert response.status == 201, await response.text()


async def publish(session: aiohttp.ClientSession, site: HubSite, topic: str, *values: Any, key: str = "") -> list[int]:
    events = [{"data": value, **({"key": key} if key else {})} for value in values]
    async with session.post(f"{site.url}/topics/{topic}/events", json={"events": events}) as response:
        assert response.status == 201, await response.text()
        return [int(event["id"]) for event in (await response.json())["events"]]


def test_replay_and_live_are_one_sequence(site: HubSite) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            await make(session, site, "one")
            ids = await publish(session, site, "one", *range(10))
            url = f"{site.url}/topics/one/events"
            async with following(session, url) as sse, following(session, url + "?follow=true", LINES) as lines:
                await sse.wait(10)
                await lines.wait(10)
                for number in range(10, 20):
                    ids += await publish(session, site, "one", number)
                await sse.wait(20)
                await lines.wait(20)
                assert sse.ids == lines.ids == ids
                assert [event["data"] for event in sse.events] == list(range(20))
                assert sse.events == lines.events
                previous = ["0", *[event["id"] for event in sse.events[:-1]]]
                assert [event["prev_id"] for event in sse.events] == previous
                assert sse.last_id == sse.events[-1]["cursor"]

    asyncio.run(run())


def test_a_range_has_its_own_chain(site: HubSite) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            await make(session, site, "ranged")
            ids = []
            for number in range(6):
                [first] = await publish(session, site, "ranged", number, key="apple" if number % 2 else "pear")
                ids += [first] if number % 2 else []
            url = f"{site.url}/topics/ranged/events?low=a&high=b"
            async with following(session, url) as stream:
                await stream.wait(3)
                for number in range(6, 12):
                    [first] = await publish(session, site, "ranged", number, key="apple" if number % 2 else "pear")
                    ids += [first] if number % 2 else []
                await stream.wait(6)
                assert stream.ids == ids
                assert [event["prev_id"] for event in stream.events] == ["0", *[str(id) for id in ids[:-1]]]

    asyncio.run(run())


def test_long_polls_bring_each_event_once(site: HubSite) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            await make(session, site, "polled")
            url = f"{site.url}/topics/polled/events"
            seen: list[int] = []
            after = "0"

            async def poll() -> None:
                nonlocal after
                while len(seen) < 20:
                    async with session.get(url, params={"after": after, "wait": "20"}) as response:
                        assert response.status == 200, await response.text()
                        page = await response.json()
                    seen.extend(int(event["id"]) for event in page["events"])
                    after = page["cursor"]

            polling = asyncio.ensure_future(poll())
            ids: list[int] = []
            for number in range(20):
                ids += await publish(session, site, "polled", number)
            await asyncio.wait_for(polling, 30)
            assert seen == ids

    asyncio.run(run())


def test_a_web_socket_gets_replay_and_live(site: HubSite) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            await make(session, site, "socket")
            ids: list[int] = []
            for start in range(0, 5000, 1000):
                ids += await publish(session, site, "socket", *range(start, start + 1000))
            async with session.ws_connect(f"{site.url}/topics/socket/events") as socket:
                got: list[int] = []
                while len(got) < len(ids):
                    got.append(int(json.loads(await socket.receive_str(timeout=30))["id"]))
                assert got == ids
                more = await publish(session, site, "socket", "live")
                assert int(json.loads(await socket.receive_str(timeout=30))["id"]) == more[0]
                await socket.send_str("hello")
                message = await socket.receive(timeout=30)
                assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
                assert socket.close_code == 1008

    asyncio.run(run())


def test_a_long_history_arrives_whole(site: HubSite) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            await make(session, site, "long")
            ids: list[int] = []
            for _ in range(20):
                ids += await publish(session, site, "long", *["x" * 100] * 1000)
            url = f"{site.url}/topics/long/events"
            async with following(session, url) as stream:
                await stream.wait(20_000)
                ids += await publish(session, site, "long", "live")
                await stream.wait(20_001)
                assert stream.ids == ids
            async with session.get(url, headers=LINES) as response:
                lines = (await response.text()).splitlines()
                assert [int(json.loads(line)["id"]) for line in lines] == ids

    asyncio.run(run())


def test_followers_notice_nothing_of_killed_processes() -> None:
    async def run(site: HubSite) -> None:
        async with aiohttp.ClientSession() as session:
            await make(session, site, "killed")
            url = f"{site.url}/topics/killed/events"
            ids = await publish(session, site, "killed", "first")
            async with following(session, url) as stream:
                await stream.wait(1)
                for kind in ("hub", "writer_process", "reader_process", "handler", "hub"):
                    site.kill(kind)
                    while True:
                        async with session.post(url, json={"events": [{"data": kind}]}) as response:
                            if response.status == 201:
                                ids += [int(event["id"]) for event in (await response.json())["events"]]
                                break
                            assert response.status == 503, await response.text()
                    await stream.wait(len(ids))
                await until(lambda: len(stream.events) == len(ids), "as many events as were published")
                assert stream.ids == ids
                assert not stream.ended

    with hub_site() as site:
        asyncio.run(run(site))
