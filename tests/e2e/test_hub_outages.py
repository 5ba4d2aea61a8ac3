"""Followers of the hub while processes die: each has the store's sequence, or was told that it has not."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from typing import Any

import aiohttp

from tests.support.hub import PATIENCE, HubSite, Stream, following, hub_site, until

FOLLOWERS = 500
OPENED = 100


async def make(session: aiohttp.ClientSession, site: HubSite, topic: str, **settings: Any) -> None:
    async with session.put(f"{site.url}/topics/{topic}", json=settings) as response:
        assert response.status == 201, await response.text()


class Publisher:
    """Publishes with names of requests, and repeats each until it is answered."""

    def __init__(self, session: aiohttp.ClientSession, site: HubSite, topic: str) -> None:
        self._session = session
        self._url = f"{site.url}/topics/{topic}/events"
        self.ids: list[int] = []
        self.keys: dict[int, str] = {}

    async def publish(self, number: int, keys: list[str]) -> None:
        events = [{"data": f"{number}.{place}", "key": key} for place, key in enumerate(keys)]
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            assert asyncio.get_running_loop().time() < deadline
            try:
                async with self._session.post(
                    self._url, json={"events": events}, headers={"Idempotency-Key": f"request-{number}"}
                ) as response:
                    if response.status == 201:
                        ids = [int(event["id"]) for event in (await response.json())["events"]]
                        self.ids += ids
                        self.keys.update(zip(ids, keys, strict=True))
                        return
                    assert response.status in (502, 503), await response.text()
            except aiohttp.ClientError:
                continue


async def poll(session: aiohttp.ClientSession, url: str, seen: list[int], last: asyncio.Event) -> None:
    """Collect ids by long-polls until the end of the test."""
    after = "0"
    while not last.is_set():
        async with session.get(url, params={"after": after, "wait": "5"}) as response:
            if response.status == 503:
                continue
            assert response.status == 200, await response.text()
            page = await response.json()
        seen.extend(int(event["id"]) for event in page["events"])
        after = page["cursor"]


async def opened(session: aiohttp.ClientSession, url: str) -> aiohttp.ClientWebSocketResponse:
    """Open a WebSocket; an opening that the end of the hub meets halfway is answered 503, and tried again."""
    while True:
        try:
            return await session.ws_connect(url)
        except aiohttp.WSServerHandshakeError as error:
            if error.status != 503:
                raise


async def listen(session: aiohttp.ClientSession, url: str, seen: list[int], *, again: bool = True) -> None:
    """Collect ids by a WebSocket."""
    async with await (opened(session, url) if again else session.ws_connect(url)) as socket:
        while True:
            seen.append(int(json.loads(await socket.receive_str())["id"]))


class Crowd:
    """Followers of one topic in every representation, whole and ranged."""

    def __init__(self, session: aiohttp.ClientSession, url: str, publisher: Publisher) -> None:
        self._session = session
        self._url = url
        self._publisher = publisher
        self._last = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.streams: list[tuple[Stream, str | None]] = []
        self.lists: list[list[int]] = []

    async def _follow(self, url: str, headers: dict[str, str], key: str | None) -> None:
        async with following(self._session, url, headers, again=True) as stream:
            self.streams.append((stream, key))
            await self._last.wait()

    def join(self, number: int, key: str | None) -> None:
        """Add a follower; its number decides how it follows."""
        query = f"?low={key}&high={chr(ord(key) + 1)}" if key else "?"
        match number % 5:
            case 0:
                self.lists.append([])
                work = poll(self._session, self._url, self.lists[-1], self._last)
            case 1:
                self.lists.append([])
                work = listen(self._session, self._url, self.lists[-1])
            case 2:
                work = self._follow(self._url + query + "&follow=true", {"Accept": "application/x-ndjson"}, key)
            case _:
                work = self._follow(self._url + query, {"Accept": "text/event-stream"}, key)
        self._tasks.append(asyncio.ensure_future(work))

    def wanted(self, key: str | None) -> list[int]:
        """Return the ids that a follower of a key, or of everything, must have."""
        publisher = self._publisher
        return [id for id in publisher.ids if key is None or publisher.keys[id] == key]

    def complete(self) -> bool:
        """Return whether every follower has as many events as it must have."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
        return all(len(stream.ids) >= len(self.wanted(key)) for stream, key in self.streams) and all(
            len(seen) >= len(self._publisher.ids) for seen in self.lists
        )

    async def leave(self) -> None:
        """End all followers."""
        self._last.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


KILLS = {100: "hub", 200: "handler", 300: "writer_process", 350: "hub", 400: "handler", FOLLOWERS + 25: "hub"}
"""Processes that are killed, by the number of followers or publications before."""


async def five_hundred(site: HubSite) -> None:
    chance = random.Random(15)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await make(session, site, "all")
        publisher = Publisher(session, site, "all")
        crowd = Crowd(session, f"{site.url}/topics/all/events", publisher)
        try:
            for number in range(FOLLOWERS + 50):
                if number < FOLLOWERS:
                    crowd.join(number, chance.choice("abcdefgh") if number % 3 == 0 and number % 5 > 1 else None)
                if number % 10 == 0 or number >= FOLLOWERS:
                    keys = [chance.choice("abcdefgh") for _ in range(chance.choice((1, 1, 3, 60)))]
                    await publisher.publish(number, keys)
                if number in KILLS:
                    site.kill(KILLS[number])
            await until(crowd.complete, "all followers have as many events as the store")
            for stream, key in crowd.streams:
                assert stream.ids == crowd.wanted(key)
                assert not stream.ended
                assert not stream.controls
            for seen in crowd.lists:
                assert seen == publisher.ids
            assert len(crowd.streams) + len(crowd.lists) == FOLLOWERS
        finally:
            await crowd.leave()


def test_five_hundred_followers_have_the_sequence_of_the_store() -> None:
    # A hold waits for two new handlers in a row, which take their time while the hub starts beside them.
    with hub_site({"proxy.hold_confirm_timeout": "60"}) as site:
        asyncio.run(five_hundred(site))


async def opened_meanwhile(site: HubSite) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await make(session, site, "news")
        publisher = Publisher(session, site, "news")
        await publisher.publish(0, ["a"])
        url = f"{site.url}/topics/news/events"
        done = asyncio.Event()
        streams: list[Stream] = []
        sockets: list[list[int]] = []

        async def follow() -> None:
            async with following(session, url) as stream:
                streams.append(stream)
                await done.wait()

        async with asyncio.TaskGroup() as group:
            site.kill("hub")
            for number in range(OPENED):
                if number % 2:
                    group.create_task(follow())
                else:
                    sockets.append([])
                    task = group.create_task(listen(session, url, sockets[-1], again=False))
                    done_task = group.create_task(done.wait())
                    done_task.add_done_callback(lambda _, task=task: task.cancel())  # type: ignore[misc]
            await publisher.publish(1, ["a"])
            await until(
                lambda: (
                    len(streams) == OPENED // 2
                    and all(stream.ids == publisher.ids for stream in streams)
                    and all(seen == publisher.ids for seen in sockets)
                ),
                "everyone has both events",
            )
            assert not any(stream.ended for stream in streams)
            done.set()


def test_clients_that_come_while_the_hub_restarts_live() -> None:
    with hub_site() as site:
        asyncio.run(opened_meanwhile(site))


async def restored(site: HubSite) -> None:
    backup, store = site.directory / "backup.db", site.directory / "hub.db"
    connector = aiohttp.TCPConnector(limit=0)

    def store_command(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "gripproxy", "hub-store", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    async with aiohttp.ClientSession(connector=connector) as session:
        await make(session, site, "news")
        publisher = Publisher(session, site, "news")
        await publisher.publish(0, ["a"])
        store_command("backup", str(store), str(backup))
        await publisher.publish(1, ["a"])
        url = f"{site.url}/topics/news/events"
        lines = {"Accept": "application/x-ndjson"}
        async with (
            following(session, url) as sse,
            following(session, url + "?follow=true", lines) as other,
            session.ws_connect(url) as socket,
        ):
            await sse.wait(2)
            await other.wait(2)
            for _ in range(2):
                await socket.receive_str(timeout=PATIENCE)
            assert site.service is not None
            site.service.process.send_signal(19)
            site.kill("hub")
            store_command("restore", str(backup), str(store), "--force")
            site.service.process.send_signal(18)
            await until(lambda: sse.ended and other.ended, "both streams end")
            assert [name for name, _ in sse.controls] == ["resync"]
            assert sse.last_id == "resync"
            assert [name for name, _ in other.controls] == ["resync"]
            assert json.loads(await socket.receive_str(timeout=PATIENCE))["type"] == "resync"
            await socket.receive(timeout=PATIENCE)
            assert socket.close_code == 4410
        cursor = sse.events[-1]["cursor"]
        async with session.get(url, params={"after": cursor}) as response:
            assert response.status == 410
            assert (await response.json())["snapshot"]
        async with session.get(url, headers={"Accept": "text/event-stream", "Last-Event-ID": "resync"}) as response:
            assert response.status == 204


def test_followers_of_a_restored_store_are_told() -> None:
    with hub_site() as site:
        asyncio.run(restored(site))
