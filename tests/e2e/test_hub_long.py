"""Long histories of the hub through the proxy: page behind page, in memory that their length does not move."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import aiohttp
import pytest

from tests.support.hub import HubSite, hub_site
from tests.support.service import descendants

EVENTS: Final = 200_000
"""Events of the long history; a million takes five times as long and no more memory."""

SIZE: Final = 200
"""Bytes of the data of each."""

BATCH: Final = 1000
"""Events of one publication."""

GROWTH: Final = 40_000_000
"""Bytes by which a process may grow while a history is read."""

SLOW: Final = 200
"""Parts that the client takes one at a time, with a pause before each."""

PATIENCE: Final = 100.0
"""Seconds for one history."""

LINES: Final = {"Accept": "application/x-ndjson"}

CHANGES: Final = {
    "hub.hub_sync": "off",
    # A wait for it would outlast the test.
    "proxy.ws_recover_interval": "3600",
}


@pytest.fixture(scope="module")
def site() -> Iterator[HubSite]:
    with hub_site(CHANGES) as site:
        yield site


def sizes(site: HubSite) -> dict[str, tuple[int, int]]:
    """Resident size of each process of the service and its greatest one, in bytes."""
    assert site.service is not None
    found = {}
    for pid in descendants(site.service.process.pid):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        name = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        now, peak = (re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE) for field in ("VmRSS", "VmHWM"))
        assert now is not None, status
        assert peak is not None, status
        module = name.partition(" -m ")[2].partition(" --config")[0]
        found[f"{pid} {module}"] = (int(now[1]) * 1024, int(peak[1]) * 1024)
    return found


def forget_peaks(site: HubSite) -> None:
    """Set the greatest resident sizes to those of now (proc(5), clear_refs)."""
    assert site.service is not None
    for pid in descendants(site.service.process.pid):
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def growth(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> dict[str, int]:
    """Bytes by which each process has grown at most; all processes are those of before."""
    assert before.keys() == after.keys()
    return {name: after[name][1] - before[name][0] for name in before}


async def fill(session: aiohttp.ClientSession, site: HubSite, topic: str, count: int, size: int, batch: int) -> None:
    """Make a topic with events whose data begins with their number."""
    async with session.put(f"{site.url}/topics/{topic}", json={}) as response:
        assert response.status == 201, await response.text()
    for start in range(0, count, batch):
        events = [{"data": f"{number:08}".ljust(size, "x")} for number in range(start, start + batch)]
        async with session.post(f"{site.url}/topics/{topic}/events", json={"events": events}) as response:
            assert response.status == 201, await response.text()


def number_of(event: dict[str, Any]) -> int:
    """The number that ``fill`` has given an event."""
    return int(event["data"][:8])


def test_a_long_history_streams_in_bounded_memory(site: HubSite, figure: Callable[[str], None]) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession(read_bufsize=2**16) as session:
            await fill(session, site, "long", EVENTS, SIZE, BATCH)
            forget_peaks(site)
            before = sizes(site)
            next_number, parts, rest = 0, 0, b""
            last = 0
            async with (
                asyncio.timeout(PATIENCE),
                session.get(f"{site.url}/topics/long/events", headers=LINES) as response,
            ):
                assert response.status == 200
                async for chunk in response.content.iter_any():
                    parts += 1
                    if parts <= SLOW:
                        await asyncio.sleep(0.01)
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        assert number_of(event) == next_number
                        assert int(event["prev_id"]) == last
                        last = int(event["id"])
                        next_number += 1
            assert (next_number, rest) == (EVENTS, b"")
            grown = growth(before, sizes(site))
            figure(f"hub history: {EVENTS} events, greatest growth {max(grown.values()) / 1e6:.0f} MB")
            assert {name: size for name, size in grown.items() if size > GROWTH} == {}

    asyncio.run(run())


def test_a_long_history_reaches_a_web_socket_without_a_wait(site: HubSite, figure: Callable[[str], None]) -> None:
    count, size = 5000, 10_000

    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            await fill(session, site, "silent", count, size, 50)
            forget_peaks(site)
            before = sizes(site)
            last, longest = time.monotonic(), 0.0
            async with asyncio.timeout(PATIENCE), session.ws_connect(f"{site.url}/topics/silent/events") as socket:
                for number in range(count):
                    event = json.loads(await socket.receive_str())
                    assert number_of(event) == number
                    now = time.monotonic()
                    longest, last = max(longest, now - last), now
            figure(f"hub history over a WebSocket: {count * size / 1e6:.0f} MB, longest pause {longest * 1000:.0f} ms")
            grown = growth(before, sizes(site))
            assert {name: size for name, size in grown.items() if size > GROWTH} == {}

    asyncio.run(run())


def test_watchers_that_do_not_read_cost_no_memory_and_hold_up_no_publisher(site: HubSite) -> None:
    """Each gets everything when it reads again, in order."""

    async def run() -> None:
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with (
            aiohttp.ClientSession(read_bufsize=2**16, timeout=timeout) as session,
            contextlib.AsyncExitStack() as stack,
        ):
            url = f"{site.url}/topics/unread"
            async with session.put(url, json={"progress": 1}) as response:
                assert response.status == 201
            watching = f"{url}/watch?version=0"
            watchers = [await stack.enter_async_context(session.get(watching, headers=LINES)) for _ in range(20)]
            for watcher in watchers:
                assert json.loads(await watcher.content.readline())["type"] == "progress"
            before: dict[str, tuple[int, int]] = {}
            for number in range(200):
                if number == 1:
                    # By now all processes are there, also the one that reads large requests.
                    forget_peaks(site)
                    before = sizes(site)
                events = [{"data": f"{number:03}.{place}".ljust(20_000, "x")} for place in range(5)]
                async with session.post(f"{url}/events", json={"events": events}) as response:
                    assert response.status == 201
            grown = growth(before, sizes(site))
            # 20 MB for each of 20 clients were published. A worker keeps a megabyte for each.
            assert {name: size for name, size in grown.items() if size > GROWTH + 20_000_000} == {}
            for watcher in watchers:
                wanted = [f"{number:03}.{place}" for number in range(200) for place in range(5)]
                while wanted:
                    line = json.loads(await watcher.content.readline())
                    assert line["type"] in ("event", "progress")
                    if line["type"] == "event":
                        assert line["data"].rstrip("x") == wanted.pop(0)

    asyncio.run(run())
