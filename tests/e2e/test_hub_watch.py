"""Watching a topic of the hub through the proxy: events, progress and resync, whatever dies."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import aiohttp
import pytest

from tests.support.hub import PATIENCE, HubSite, Stream, following, hub_site, until

SSE = {"Accept": "text/event-stream"}
LINES = {"Accept": "application/x-ndjson"}


@pytest.fixture(scope="module")
def site() -> Iterator[HubSite]:
    with hub_site() as site:
        yield site


async def make(session: aiohttp.ClientSession, site: HubSite, topic: str, **settings: Any) -> str:
    """Make a topic whose progress comes each second; return its URL."""
    url = f"{site.url}/topics/{topic}"
    async with session.put(url, json={"progress": 1, **settings}) as response:
        assert response.status == 201, await response.text()
    return url


async def publish(session: aiohttp.ClientSession, url: str, *keys: str | None) -> list[int]:
    """Publish events in one request, again until it is answered; return their ids."""
    events: list[dict[str, str]] = [{"data": "x"} if key is None else {"data": key, "key": key} for key in keys]
    name = f"{time.monotonic_ns()}"
    while True:
        try:
            async with session.post(
                f"{url}/events", json={"events": events}, headers={"Idempotency-Key": name}
            ) as response:
                if response.status == 201:
                    return [int(event["id"]) for event in (await response.json())["events"]]
                assert response.status in (502, 503), await response.text()
        except aiohttp.ClientError:
            continue


def progress_of(stream: Stream) -> list[Mapping[str, Any]]:
    """Return the progress that a stream has received."""
    return [value for name, value in stream.controls if name == "progress"]


async def progressed(stream: Stream, id: int) -> None:
    """Wait for progress up to an event."""
    await until(
        lambda: any(int(each["version"]) >= id for each in progress_of(stream)) or stream.ended, f"progress to {id}"
    )
    assert not stream.ended, stream.controls


def test_watchers_are_counted() -> None:
    async def figure(session: aiohttp.ClientSession, site: HubSite) -> float:
        try:
            async with session.get(f"http://127.0.0.1:{site.metrics}/metrics") as response:
                lines = (await response.text()).splitlines()
        except aiohttp.ClientError:
            return -1.0
        return float(next(line for line in lines if line.startswith("gripproxy_hub_watchers ")).split()[1])

    async def counted(session: aiohttp.ClientSession, site: HubSite, number: float) -> None:
        deadline = time.monotonic() + PATIENCE
        while (found := await figure(session, site)) != number:
            assert time.monotonic() < deadline, found

    async def run(site: HubSite) -> None:
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "counted")
            soft = await make(session, site, "soft", store="none")
            line = '{"progress":{"version":"1"}}\n'
            async with session.post(
                f"{soft}/ingest", data=line, headers={"Content-Type": "application/x-ndjson"}
            ) as response:
                assert response.status == 200
            await counted(session, site, 0)
            async with (
                following(session, f"{url}/watch?version=0", SSE),
                following(session, f"{url}/watch?version=0", LINES),
                following(session, f"{url}/events", SSE),
                following(session, f"{soft}/watch", LINES),
            ):
                async with (
                    following(session, f"{url}/watch?version=0", LINES),
                    following(session, f"{url}/watch?version=0&low=a", LINES),
                    following(session, f"{soft}/watch", LINES),
                    session.ws_connect(f"{url}/watch?version=0"),
                ):
                    await counted(session, site, 7)
                await counted(session, site, 3)
                await asyncio.to_thread(site.kill, "handler")
                await counted(session, site, 3)
                await asyncio.to_thread(site.kill, "hub")
                # That of the soft topic has got a resync.
                await counted(session, site, 2)

    with hub_site({"hub.prometheus_port": "127.0.0.1:{metrics}"}) as site:
        asyncio.run(run(site))


def test_a_watch_begins_with_its_place_and_goes_on_with_events_and_progress(site: HubSite) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "one")
            ids = await publish(session, url, "a", "b")
            watch = f"{url}/watch?version=0"
            async with following(session, watch, SSE) as sse, following(session, watch, LINES) as lines:
                for stream in (sse, lines):
                    await progressed(stream, ids[-1])
                    assert stream.ids == ids
                    [first] = progress_of(stream)[:1]
                    assert (first["low"], first["high"], int(first["version"])) == (None, None, ids[-1])
                    assert first["cursor"].startswith(sse.events[-1]["cursor"] + ".")
                ids += await publish(session, url, "c")
                for stream in (sse, lines):
                    await stream.wait(3)
                    await progressed(stream, ids[-1])
                    assert stream.ids == ids
                assert sse.last_id == progress_of(sse)[-1]["cursor"]

    asyncio.run(run())


def test_a_quiet_range_gets_progress(site: HubSite) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "quiet")
            async with following(session, f"{url}/watch?low=a&high=b", LINES) as stream:
                await until(lambda: len(progress_of(stream)) >= 4, "three reports of progress")
                ids = await publish(session, url, "z")
                await progressed(stream, ids[-1])
                assert stream.ids == []
                cursors = [each["cursor"] for each in progress_of(stream)]
                assert len(set(cursors)) == len(cursors)

    asyncio.run(run())


def test_a_web_socket_watches(site: HubSite) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "socket")
            ids = await publish(session, url, "a")
            async with session.ws_connect(f"{url}/watch?version=0&low=a&high=b") as socket:
                got: list[Any] = []

                async def until_progress(id: int) -> None:
                    while not got or got[-1]["type"] != "progress" or int(got[-1]["version"]) < id:
                        got.append(json.loads(await socket.receive_str(timeout=PATIENCE)))

                await until_progress(ids[-1])
                ids += await publish(session, url, "a")
                await until_progress(ids[-1])
                assert [int(each["id"]) for each in got if each["type"] == "event"] == ids

    asyncio.run(run())


def test_a_watch_goes_on_from_any_cursor_it_was_given(site: HubSite) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "again")
            ids = await publish(session, url, "a", "b", "c")
            async with following(session, f"{url}/watch?version=0", LINES) as stream:
                await progressed(stream, ids[-1])
                cursors = [event["cursor"] for event in stream.events] + [
                    each["cursor"] for each in progress_of(stream)
                ]
            for place, cursor in enumerate(cursors):
                async with following(session, f"{url}/watch?version={cursor}", LINES) as stream:
                    await progressed(stream, ids[-1])
                    assert stream.ids == ids[place + 1 :]
                async with following(session, f"{url}/watch", {**SSE, "Last-Event-ID": cursor}) as stream:
                    await progressed(stream, ids[-1])
                    assert stream.ids == ids[place + 1 :]

    asyncio.run(run())


def test_whoever_is_behind_the_floor_is_told_in_every_representation(site: HubSite) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "trimmed", retention={"events": 1})
            await publish(session, url, *"abcdef")

            async def count() -> int:
                async with session.get(url) as response:
                    return int((await response.json())["count"])

            deadline = time.monotonic() + PATIENCE
            while await count() > 1:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            for headers in (SSE, LINES):
                async with following(session, f"{url}/watch?version=0&low=a&high=b", headers) as stream:
                    await until(lambda stream=stream: stream.ended, "the end of the stream")  # type: ignore[misc]
                    [(name, value)] = stream.controls
                    assert (name, value["snapshot"]) == ("resync", "snapshot?low=a&high=b")
                    assert int(value["floor"]) > 0
            async with session.ws_connect(f"{url}/watch?version=0") as socket:
                assert json.loads(await socket.receive_str(timeout=PATIENCE))["type"] == "resync"
                await socket.receive(timeout=PATIENCE)
                assert socket.close_code == 4410
            async with session.get(f"{url}/watch", headers={**SSE, "Last-Event-ID": "resync"}) as response:
                assert response.status == 204

    asyncio.run(run())


WATCHERS = 60
KILLS = {10: "hub", 25: "handler", 40: "writer_process", 55: "worker", 70: "hub"}
"""Processes that are killed, by the number of publications before."""


class Kept:
    """Watcher that comes back with its last cursor, and compares each message with the promises.

    Args:
        url: of the watch.
        low: least key; empty for the whole topic.
    """

    def __init__(self, url: str, low: str) -> None:
        self._url = f"{url}?low={low}&high={chr(ord(low) + 1)}&" if low else f"{url}?"
        self.low = low
        self.cursor = "0"
        self.ids: list[int] = []
        self.version = 0
        self.marks: set[str] = set()
        self._of_version = 0

    def take(self, value: Mapping[str, Any]) -> None:
        """Take an event or progress."""
        if value["type"] == "event":
            assert int(value["id"]) > max([0, *self.ids[-1:]])
            assert int(value["id"]) > self.version, "behind progress that covers it"
            self.ids.append(int(value["id"]))
            self._of_version = int(value["version"])
        else:
            assert value["type"] == "progress", value
            assert int(value["version"]) >= max(self.version, self._of_version), "it falls, or divides a version"
            assert value["cursor"] not in self.marks
            self.version = int(value["version"])
            self.marks.add(value["cursor"])
        self.cursor = value["cursor"]

    async def run(self, session: aiohttp.ClientSession, form: str) -> None:
        """Watch until cancelled."""
        while True:
            url = f"{self._url}version={self.cursor}"
            try:
                if form == "socket":
                    async with session.ws_connect(url) as socket:
                        async for message in socket:
                            if message.type is aiohttp.WSMsgType.TEXT:
                                self.take(json.loads(message.data))
                else:
                    await self._stream(session, url, LINES if form == "lines" else SSE)
            except aiohttp.ClientError:
                # A process was killed: the next connection goes on from the cursor.
                pass
            await asyncio.sleep(0.02)

    async def _stream(self, session: aiohttp.ClientSession, url: str, headers: Mapping[str, str]) -> None:
        async with session.get(url, headers=headers, timeout=aiohttp.ClientTimeout(total=None)) as response:
            if response.status != 200:
                assert response.status in (502, 503), await response.text()
                return
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    text = line.removeprefix(b"data: ")
                    if text.startswith(b"{"):
                        self.take(json.loads(text))


def test_watchers_keep_the_promises_while_processes_die() -> None:
    async def run(site: HubSite) -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            url = await make(session, site, "kept")
            watchers = [
                Kept(f"{url}/watch", ("", "a", "b")[number % 3 if number % 2 else 0]) for number in range(WATCHERS)
            ]
            tasks: list[asyncio.Task[None]] = []
            published: list[tuple[int, str | None]] = []
            try:
                for number in range(80):
                    if number < WATCHERS:
                        form = ("lines", "sse", "socket")[number % 3]
                        tasks.append(asyncio.ensure_future(watchers[number].run(session, form)))
                    keys = [("a", "b", None, "z")[(number + place) % 4] for place in range(number % 5 + 1)]
                    published += zip(await publish(session, url, *keys), keys, strict=True)
                    if number in KILLS:
                        await asyncio.to_thread(site.kill, KILLS[number])
                [last, *_] = await publish(session, url, "z")
                published.append((last, "z"))
                await until(
                    lambda: all(watcher.version >= last for watcher in watchers) or any(task.done() for task in tasks),
                    "all watchers know the last version",
                    3 * PATIENCE,
                )
                assert not any(task.done() for task in tasks), [task.result() for task in tasks if task.done()]
                for watcher in watchers:
                    assert watcher.ids == [id for id, key in published if watcher.low in ("", key)]
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    with hub_site({"proxy.hold_confirm_timeout": "60"}) as site:
        asyncio.run(run(site))
