"""A soft topic of the hub through the proxy: a source gives its changes, watchers get them, whatever dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from griphub import (
    Change,
    KeyRange,
    NotKnown,
    Progress,
    Resync,
    Snapshot,
    SnapshotCache,
    SourceSnapshot,
    Watcher,
)
from tests.support.hub import PATIENCE, HubSite, Stream, following, hub_site, until
from tests.support.soft_api import append, progress, reset

SSE = {"Accept": "text/event-stream"}
LINES = {"Accept": "application/x-ndjson"}


@pytest.fixture(scope="module")
def site() -> Iterator[HubSite]:
    with hub_site() as site:
        yield site


async def make(session: aiohttp.ClientSession, site: HubSite, topic: str, **settings: Any) -> str:
    """Make a soft topic whose progress comes each second; return its URL."""
    url = f"{site.url}/topics/{topic}"
    while True:
        async with session.put(url, json={"store": "none", "progress": 1, **settings}) as response:
            if response.status == 201:
                return url
            # The writer of the store is being started again.
            assert response.status == 503, await response.text()


async def ingest(session: aiohttp.ClientSession, url: str, *lines: dict[str, Any]) -> Any:
    """Give lines, again until they are taken in; return the answer."""
    body = "".join(json.dumps(line) + "\n" for line in lines)
    while True:
        try:
            async with session.post(
                f"{url}/ingest", data=body, headers={"Content-Type": "application/x-ndjson"}
            ) as response:
                if response.status == 200:
                    return await response.json()
                assert response.status in (502, 503), await response.text()
        except aiohttp.ClientError:
            continue


def versions(stream: Stream) -> list[int]:
    return [int(event["version"]) for event in stream.events]


def kinds(stream: Stream) -> list[str]:
    return [name for name, _ in stream.controls]


async def progressed(stream: Stream, version: int) -> None:
    """Wait for progress up to a version."""

    def reached() -> bool:
        found = [int(value["version"]) for name, value in stream.controls if name == "progress"]
        return stream.ended or any(each >= version for each in found)

    await until(reached, f"progress to {version}")
    assert not stream.ended, stream.controls


async def resynced(stream: Stream) -> None:
    """Wait for the resync that ends a stream."""
    await until(lambda: stream.ended, "the end")
    assert kinds(stream)[-1] == "resync"


def test_watchers_get_replay_live_events_and_progress_as_one_sequence(site: HubSite) -> None:
    async def case() -> None:
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "one")
            await ingest(session, url, progress(1), append("a", 2), append("z", 3), progress(3))
            async with (
                following(session, f"{url}/watch?version=1", SSE) as whole,
                following(session, f"{url}/watch?version=1&low=a&high=m", LINES) as part,
                session.ws_connect(f"{url}/watch?version=3&low=a&high=m") as socket,
            ):
                for stream in (whole, part):
                    await progressed(stream, 3)
                for version in range(4, 40):
                    await ingest(session, url, append("b", version), append("y", version), progress(version))
                for stream in (whole, part):
                    await progressed(stream, 39)
                assert versions(whole) == [2, 3, *[version for version in range(4, 40) for _ in "by"]]
                assert versions(part) == [2, *range(4, 40)]
                got: list[Any] = []
                while not got or int(got[-1]["version"]) < 39 or got[-1]["type"] != "progress":
                    got.append(json.loads(await socket.receive_str(timeout=PATIENCE)))
                assert [int(each["version"]) for each in got if each["type"] == "event"] == [*range(4, 40)]
                quiet = len(part.controls)
                await until(lambda: len(part.controls) >= quiet + 2, "progress though nothing happens")

    asyncio.run(case())


def test_a_version_with_very_many_events_is_read_page_by_page(site: HubSite) -> None:
    async def case() -> None:
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "many")
            await ingest(session, url, progress(1))
            async with following(session, f"{url}/watch?version=1", LINES) as stream:
                await progressed(stream, 1)
                await ingest(session, url, *[append(f"{n:05}", 2, "x" * 50) for n in range(3000)], progress(2))
                await stream.wait(3000)
                assert [event["key"] for event in stream.events] == [f"{n:05}" for n in range(3000)]
                await ingest(session, url, append("last", 3), progress(3))
                await progressed(stream, 3)
                assert len(stream.events) == 3001

    asyncio.run(case())


def test_a_reset_and_a_deletion_are_told_to_everyone_concerned(site: HubSite) -> None:
    async def case() -> None:
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "reset", snapshot_url="https://source.example/s")
            await ingest(session, url, progress(1))
            async with (
                following(session, f"{url}/watch?low=a&high=b", SSE) as concerned,
                following(session, f"{url}/watch?low=m&high=n", LINES) as other,
            ):
                await progressed(concerned, 1)
                await progressed(other, 1)
                await ingest(session, url, reset("a", "b"), progress(1, "a", "b"))
                await resynced(concerned)
                assert concerned.controls[-1][1]["snapshot"] == "snapshot?low=a&high=b"
                await ingest(session, url, append("m", 2), progress(2))
                await progressed(other, 2)
                assert versions(other) == [2]
                async with session.delete(url) as response:
                    assert response.status == 204
                await resynced(other)

    asyncio.run(case())


@pytest.mark.parametrize("process", ["handler", "writer_process", "worker"])
def test_the_end_of_a_process_loses_nothing(site: HubSite, process: str) -> None:
    async def case() -> None:
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, f"kill-{process}")
            await ingest(session, url, progress(1))
            cursor, seen, next_version = "1", list[int](), 2
            for _ in range(2):
                async with following(session, f"{url}/watch?version={cursor}", LINES, again=True) as stream:
                    await progressed(stream, next_version - 1)
                    for version in range(next_version, next_version + 10):
                        await ingest(session, url, append("k", version), progress(version))
                        if version == next_version + 4:
                            await asyncio.to_thread(site.kill, process)
                    await until(
                        lambda: stream.ended or versions(stream)[-1:] == [next_version + 9],  # noqa: B023
                        "the last event",
                    )
                    seen += versions(stream)
                    if stream.events:
                        cursor = stream.events[-1]["cursor"]
                    next_version += 10
            async with following(session, f"{url}/watch?version={cursor}", LINES, again=True) as stream:
                await progressed(stream, next_version - 1)
                seen += versions(stream)
            assert seen == [*range(2, next_version)]

    asyncio.run(case())


def test_a_restart_of_the_hub_is_a_resync_for_all_and_the_source_goes_on(site: HubSite) -> None:
    async def case() -> None:
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "restart")
            first = await ingest(session, url, progress(1), append("a", 2), progress(2))
            async with (
                following(session, f"{url}/watch?version=1", SSE) as one,
                following(session, f"{url}/watch?version=1&low=a&high=m", LINES) as two,
                session.ws_connect(f"{url}/watch?version=1") as socket,
            ):
                await progressed(one, 2)
                await progressed(two, 2)
                await asyncio.to_thread(site.kill, "hub")
                again = await ingest(session, url, append("a", 3), progress(3))
                assert again["epoch"] != first["epoch"]
                await resynced(one)
                await resynced(two)
                got: list[Any] = []
                while not got or got[-1]["type"] != "resync":
                    got.append(json.loads(await socket.receive_str(timeout=PATIENCE)))
                assert (await socket.receive(timeout=PATIENCE)).type is aiohttp.WSMsgType.CLOSE
                assert socket.close_code == 4410
            async with following(session, f"{url}/watch?version=3", LINES) as stream:
                await progressed(stream, 3)
                await ingest(session, url, append("a", 4), progress(4))
                await progressed(stream, 4)
                assert versions(stream) == [4]

    asyncio.run(case())


class Copy:
    """Source with a state for each version, and a copy of it that a watcher keeps.

    Attributes:
        states: the source at each version.
        seen: the copy at each progress.
    """

    def __init__(self) -> None:
        self.states: list[dict[str, int]] = [{}, {}]
        self.seen: dict[int, dict[str, int]] = {}
        self._table: dict[str, int] = {}

    @property
    def whole(self) -> bool:
        """Whether the newest version was seen."""
        return len(self.states) - 1 in self.seen

    async def change(self, session: aiohttp.ClientSession, url: str) -> None:
        """Change a key."""
        version = len(self.states)
        key = f"k{version % 5}"
        self.states.append({**self.states[-1], key: version})
        await ingest(session, url, append(key, version), progress(version))

    async def on_resync(self, resync: Resync) -> str:
        """Take a snapshot, and return its place."""
        if resync.floor_cursor is None:
            return "0"
        epoch, floor, _ = resync.floor_cursor.split(".")
        version = len(self.states) - 1
        if version < int(floor):
            return "0"
        self._table = dict(self.states[version])
        return f"{epoch}.{version}"

    async def watch(self, url: str, topic: str) -> None:
        """Keep the copy until cancelled."""
        async with Watcher(url, topic, cursor="0", on_resync=self.on_resync, interval=1.0) as watcher:
            async for message in watcher:
                if isinstance(message, Change):
                    self._table |= {str(event.key): int(str(event.data)) for event in message.events}
                elif isinstance(message, Progress):
                    self.seen[message.version.number] = dict(self._table)


def test_a_watcher_keeps_a_copy_of_the_source_over_restarts_of_the_hub(site: HubSite) -> None:
    async def case() -> None:
        copy = Copy()
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "copy")
            await ingest(session, url, progress(1))
            watching = asyncio.create_task(copy.watch(site.url, "copy"))
            try:
                for _ in range(2):
                    for _ in range(20):
                        await copy.change(session, url)
                    await until(lambda: copy.whole or watching.done(), "the last version")
                    await asyncio.to_thread(site.kill, "hub")
                for _ in range(5):
                    await copy.change(session, url)
                await until(lambda: copy.whole or watching.done(), "the last version after restarts")
                assert not watching.done(), watching.exception()
            finally:
                watching.cancel()
            assert {version: copy.states[version] for version in copy.seen} == copy.seen

    asyncio.run(case())


class Source:
    """Source that is some versions ahead of its ingester, and the states that it had.

    Attributes:
        states: the source at each version.
        given: newest version that the hub has.
        reads: number of snapshots.
    """

    def __init__(self) -> None:
        self.states: list[dict[str, int]] = [{}]
        self.given = 0
        self.reads = 0

    @property
    def version(self) -> int:
        """The newest version."""
        return len(self.states) - 1

    def change(self) -> None:
        """Change a key, or delete it."""
        version = len(self.states)
        state = {**self.states[-1], f"k{version % 7}": version}
        if version % 5 == 0:
            state.pop(f"k{(version // 5) % 7}", None)
        self.states.append(state)

    async def snapshot(self, keys: KeyRange) -> SourceSnapshot:
        """Return the newest state of a range."""
        self.reads += 1
        return SourceSnapshot(self.version, {key: value for key, value in self.states[-1].items() if key in keys})

    async def give(self, session: aiohttp.ClientSession, url: str, upto: int) -> None:
        """Give the hub the changes up to a version."""
        while self.given < upto:
            version = self.given + 1
            before, state = self.states[version - 1], self.states[version]
            lines = [append(key, version, value) for key, value in state.items() if before.get(key) != value]
            lines += [
                {"append": {"key": key, "version": str(version), "op": "delete"}} for key in before.keys() - state
            ]
            await ingest(session, url, *lines, progress(version))
            self.given = version


def test_a_cache_of_a_soft_topic_shows_states_of_its_source_over_restarts_of_the_hub(site: HubSite) -> None:
    async def case() -> None:
        source, ranges = Source(), [KeyRange("", "k4"), KeyRange("k4", None)]
        ended: list[str] = []
        async with (
            aiohttp.ClientSession() as session,
            SnapshotCache(
                site.url,
                "cached",
                snapshots=source.snapshot,
                interval=1.0,
                on_ended=lambda _, reason: ended.append(reason),
            ) as cache,
        ):
            url = await make(session, site, "cached")
            source.change()
            cache.assign(ranges)
            for _ in range(2):
                # The source is ahead: the cache has its snapshots before the hub has their versions.
                for _ in range(10):
                    source.change()
                target, reached = source.version, 0
                while reached < target:
                    await source.give(session, url, source.version - 5)
                    view = cache.read(ranges)
                    if not isinstance(view, NotKnown):
                        assert {key: value.data for key, value in view.items()} == source.states[view.version.number]
                        reached = view.version.number
                    source.change()
                    await asyncio.sleep(0.05)
                    assert not ended
                await asyncio.to_thread(site.kill, "hub")
            await source.give(session, url, source.version)
            while True:
                async with asyncio.timeout(PATIENCE):
                    await cache.changed()
                view = cache.read(ranges)
                if not isinstance(view, NotKnown):
                    assert {key: value.data for key, value in view.items()} == source.states[view.version.number]
                    if view.version.number == source.version:
                        break
            assert source.reads >= 2 * len(ranges)

    asyncio.run(case())


def test_a_source_that_never_waits_for_its_ingester_is_watched(site: HubSite) -> None:
    """Each snapshot is newer than the hub is: the watch begins before it."""

    async def case() -> None:
        source = Source()
        async with aiohttp.ClientSession() as session:
            url = await make(session, site, "ahead")
            for _ in range(20):
                source.change()
            await source.give(session, url, 10)

            async def snapshot(keys: KeyRange) -> SourceSnapshot:
                found = await source.snapshot(keys)
                source.change()
                return found

            async with Watcher(site.url, "ahead", snapshots=snapshot, interval=1.0) as watcher:
                table: dict[str | None, Any] = {}
                place = 0
                while source.reads < 2:
                    message = await asyncio.wait_for(anext(watcher), PATIENCE)
                    assert isinstance(message, Snapshot)
                giving = asyncio.create_task(source.give(session, url, source.version))
                while place < source.version:
                    match message:
                        case Snapshot(events=events, version=version):
                            table = {event.key: event.data for event in events}
                        case Change(events=events, version=version):
                            assert version.number > place
                            table |= {event.key: event.data for event in events}
                            table = {key: value for key, value in table.items() if value is not None}
                        case Progress(version=version):
                            pass
                    place = version.number
                    assert table == source.states[place]
                    if place < source.version:
                        message = await asyncio.wait_for(anext(watcher), PATIENCE)
                await giving
                assert source.reads == 2

    asyncio.run(case())
