"""griphub.SnapshotCache against a hub on loopback: ranges that move between caches, and reads at one version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from griphub.client import snapshot_cache
from griphub.client.errors import Closed
from griphub.client.key_range import KeyRange
from griphub.client.snapshot_cache import SnapshotCache
from griphub.client.snapshot_cache_state import FeedPhase
from griphub.client.source_snapshot import SourceSnapshot
from griphub.client.stitched import NotKnown
from griphub.client.watch_actions import WatchReport, WatchReportKind
from tests.support.watch_hub import WatchHub, watch_hub

DEADLINE = 30.0
LEFT, RIGHT = KeyRange("", "m"), KeyRange("m", None)


@pytest.fixture
async def hub() -> AsyncIterator[WatchHub]:
    async with watch_hub() as hub:
        yield hub


async def values(
    cache: SnapshotCache, at_least: str | None = None, others: tuple[SnapshotCache, ...] = ()
) -> dict[str, object]:
    async with asyncio.timeout(DEADLINE):
        view = await cache.wait(others=others, at_least=at_least)
    return {key: value.data for key, value in view.items()}


async def test_values_are_kept_up_to_date(hub: WatchHub) -> None:
    hub.commit(a=1, z=2)
    async with SnapshotCache(hub.url, "t") as cache:
        assert isinstance(cache.get("a"), NotKnown)
        cache.add()
        assert await values(cache) == {"a": 1, "z": 2}
        assert await values(cache, hub.commit(a=None, b=3)) == {"b": 3, "z": 2}
        found = cache.get("b")
        assert not isinstance(found, NotKnown)
        assert found is not None
        assert (found.data, found.cursor, str(found.version)) == (3, "e1.4", "e1.4")
        assert cache.get("a") is None
        assert cache.ranges == [(KeyRange(), FeedPhase.KNOWN)]
        cache.remove("a", "c")
        assert isinstance(cache.get("b"), NotKnown)
        view = cache.read([KeyRange("c", None)])
        assert not isinstance(view, NotKnown)
        assert [key for key, _ in view.items()] == ["z"]
    with pytest.raises(Closed):
        cache.add()


async def test_ranges_are_read_together_at_one_version(hub: WatchHub) -> None:
    async with SnapshotCache(hub.url, "t") as one, SnapshotCache(hub.url, "t") as other:
        one.add(None, "m")
        other.add("m")
        hub.commit(a=1, z=1)
        cursor = hub.progress()
        assert await values(one, cursor, (other,)) == {"a": 1, "z": 1}
        hub.commit(a=2)
        cursor = hub.commit(z=2)
        assert await values(one, hub.progress(), (other,)) == {"a": 2, "z": 2}
        view = one.read(others=[other], at=cursor)
        assert not isinstance(view, NotKnown)
        assert str(view.version) == cursor


async def test_a_range_that_is_handed_over_is_watched_from_its_own_version(hub: WatchHub) -> None:
    hub.commit(a=1, z=1)
    async with SnapshotCache(hub.url, "t") as old, SnapshotCache(hub.url, "t") as new:
        old.add()
        await values(old)
        hub.mute = True
        hub.cut()
        cursor = hub.commit(z=2)
        new.add("m", None, old.regions("m"))
        old.assign([LEFT])
        view = new.read([RIGHT])
        assert not isinstance(view, NotKnown), "known without a snapshot"
        hub.mute = False
        hub.progress()
        async with asyncio.timeout(DEADLINE):
            later = await new.wait([RIGHT], at_least=cursor)
        assert [value.data for _, value in later.items()] == [2]
        assert [value.data for _, value in view.items()] == [1], "a view does not change"
    assert sum(path.startswith("/hub/topics/t/snapshot") for _, path in hub.requests) == 1


async def test_a_range_that_is_refused_is_not_known_and_the_others_go_on(hub: WatchHub) -> None:
    ended: list[tuple[KeyRange, str]] = []
    async with SnapshotCache(hub.url, "t", on_ended=lambda range, reason: ended.append((range, reason))) as cache:
        cache.add(None, "m")
        async with asyncio.timeout(DEADLINE):
            await cache.wait([LEFT])
            hub.token = "secret"
            cache.add("m")
            while not ended:
                await cache.changed()
        assert ended[0][0] == RIGHT
        assert "no token that the hub knows" in ended[0][1]
        assert isinstance(cache.read([RIGHT]), NotKnown)
        assert not isinstance(cache.read([LEFT]), NotKnown)


async def test_reports_name_the_range(hub: WatchHub) -> None:
    reports: list[tuple[KeyRange, WatchReport]] = []
    url = hub.url
    async with SnapshotCache(url, "t", on_report=lambda range, report: reports.append((range, report))) as cache:
        cache.add(None, "m")
        async with asyncio.timeout(DEADLINE):
            await cache.wait([LEFT])
            await cache.wait([LEFT], at_least=hub.commit(a=1))
            hub.cut()
            await cache.wait([LEFT], at_least=hub.commit(a=2))
    assert [(range, report.kind) for range, report in reports] == [(LEFT, WatchReportKind.LOST)]


async def test_a_soft_topic_has_the_snapshots_of_its_source(hub: WatchHub) -> None:
    hub.commit(a=1, z=2)
    source = SourceSnapshot(2, {"a": 1, "z": b"two"})
    read: list[KeyRange] = []

    async def snapshots(range: KeyRange) -> SourceSnapshot:
        read.append(range)
        return source

    async with SnapshotCache(hub.url, "t", snapshots=snapshots) as cache:
        cache.assign([LEFT, RIGHT])
        assert await values(cache) == {"a": 1, "z": b"two"}
        found = cache.get("z")
        assert not isinstance(found, NotKnown)
        assert found is not None
        assert (found.content_type, str(found.version), found.time) == ("application/octet-stream", "e1.2", "")
        hub.commit(a=None, b=3)
        assert await values(cache, hub.progress()) == {"b": 3, "z": b"two"}
        # The window of the hub was lost: the knowledge of before is as good as before, and a snapshot joins later.
        cursor = hub.commit(b=5)
        source = SourceSnapshot(5, {"b": 5})
        hub.forget(5)
        hub.cut()
        hub.progress()
        assert await values(cache, cursor) == {"b": 5}
    assert sorted(read, key=lambda range: range.low) == [LEFT, LEFT, RIGHT, RIGHT]
    assert not any(path.startswith("/hub/topics/t/snapshot") for _, path in hub.requests)


async def test_a_range_of_a_soft_topic_that_is_handed_over_needs_no_snapshot(hub: WatchHub) -> None:
    reads = 0

    async def snapshots(range: KeyRange) -> SourceSnapshot:
        nonlocal reads
        reads += 1
        return SourceSnapshot(2, {"a": 1, "z": 1})

    hub.commit(a=1, z=1)
    async with (
        SnapshotCache(hub.url, "t", snapshots=snapshots) as old,
        SnapshotCache(hub.url, "t", snapshots=snapshots) as new,
    ):
        old.add()
        await values(old)
        new.add("m", None, old.regions("m"))
        cursor = hub.commit(z=2)
        hub.progress()
        async with asyncio.timeout(DEADLINE):
            later = await new.wait([RIGHT], at_least=cursor)
        assert [value.data for _, value in later.items()] == [2]
    assert reads == 1


async def test_a_source_is_read_for_some_ranges_at_a_time(hub: WatchHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_cache, "READS_MAX", 2)
    reading, most, release = 0, 0, asyncio.Event()

    async def snapshots(range: KeyRange) -> SourceSnapshot:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        if reading == 2:
            release.set()
        await release.wait()
        await asyncio.sleep(0)
        reading -= 1
        return SourceSnapshot(0, {range.low: 1})

    keys = [f"k{number}" for number in range(6)]
    async with SnapshotCache(hub.url, "t", snapshots=snapshots) as cache:
        cache.assign([KeyRange(key, f"{key}~") for key in keys])
        async with asyncio.timeout(DEADLINE):
            view = await cache.wait([KeyRange(key, f"{key}~") for key in keys])
        assert [key for key, _ in view.items()] == keys
    assert most == 2


async def test_large_snapshots_are_taken_in_slices(hub: WatchHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_cache, "SLICE", 3)
    for number in range(20):
        hub.commit(**{f"k{number:02}": number})
    async with SnapshotCache(hub.url, "t") as cache:
        cache.add()
        assert await values(cache) == {f"k{number:02}": number for number in range(20)}
        assert cache.size > 0
        assert (cache.url, cache.topic) == (hub.url, "t")


async def test_caches_of_two_topics_have_no_version_in_common() -> None:
    url = "http://hub.example/hub"
    async with SnapshotCache(url, "t") as one, SnapshotCache(url, "u") as other:
        with pytest.raises(ValueError, match="no version in common"):
            one.read(others=[other])
