"""griphub.Watcher against a hub on loopback: streams that end, snapshots that tear, and an application that is slow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from griphub.client import watcher as watcher_module
from griphub.client.errors import BadAnswer, Closed, Gone, HubError, RequestFailed
from griphub.client.key_range import KeyRange
from griphub.client.watch_actions import WatchReport, WatchReportKind
from griphub.client.watch_messages import Change, Progress, Resync, Snapshot, WatchMessage
from griphub.client.watcher import Watcher
from tests.support.small_hub import Fault
from tests.support.watch_hub import WatchHub, watch_hub

DEADLINE = 30.0


@pytest.fixture
async def hub() -> AsyncIterator[WatchHub]:
    async with watch_hub() as hub:
        yield hub


async def following(watcher: Watcher) -> WatchMessage:
    async with asyncio.timeout(DEADLINE):
        return await anext(watcher)


async def change(watcher: Watcher) -> dict[str | None, object]:
    """Return the values of the next change."""
    message = await following(watcher)
    assert isinstance(message, Change), message
    return {event.key: event.data for event in message.events}


async def test_a_snapshot_then_the_changes_behind_it(hub: WatchHub) -> None:
    hub.commit(a=1, b=2)
    hub.commit(b=None, c=3, z=4)
    async with Watcher(hub.url, "t", low="a", high="m") as watcher:
        snapshot = await following(watcher)
        assert isinstance(snapshot, Snapshot)
        assert {event.key: event.data for event in snapshot.events} == {"a": 1, "c": 3}
        assert watcher.cursor == snapshot.cursor == "e1.5"
        hub.commit(a=5, b=6)
        hub.commit(z=7)
        cursor = hub.commit(c=None)
        assert await change(watcher) == {"a": 5, "b": 6}
        assert await change(watcher) == {"c": None}
        assert watcher.cursor == cursor
        hub.progress()
        progress = await following(watcher)
        assert isinstance(progress, Progress)
        assert (progress.range, progress.whole) == (KeyRange("a", "m"), True)
    assert hub.opened == ["e1.5"]


async def test_a_transaction_that_ends_outside_the_range_is_whole_with_the_next_line(hub: WatchHub) -> None:
    async with Watcher(hub.url, "t", high="m", cursor="0") as watcher:
        hub.commit(a=1, z=2)
        hub.commit(b=3)
        assert await change(watcher) == {"a": 1}
        assert await change(watcher) == {"b": 3}


async def test_a_lost_stream_goes_on_where_it_was(hub: WatchHub) -> None:
    reports: list[WatchReport] = []
    async with Watcher(hub.url, "t", cursor="0", on_report=reports.append) as watcher:
        hub.commit(a=1)
        assert await change(watcher) == {"a": 1}
        hub.faults.append(Fault(503, {"Retry-After": "0"}))
        hub.cut()
        hub.commit(a=2)
        assert await change(watcher) == {"a": 2}
        assert watcher.streams == 2
    assert hub.opened == ["0", "e1.1"]
    assert {report.kind for report in reports} == {WatchReportKind.LOST}


async def test_a_resync_is_a_snapshot_and_the_watch_from_exactly_its_version(hub: WatchHub) -> None:
    hub.commit(a=1)
    hub.commit(a=2)
    hub.commit(b=3)
    hub.forget(1)
    hub.whole = False
    reports: list[WatchReport] = []

    def report(report: WatchReport) -> None:
        reports.append(report)
        hub.whole = len(reports) > 2

    async with Watcher(hub.url, "t", cursor="0", on_report=report) as watcher:
        snapshot = await following(watcher)
        assert isinstance(snapshot, Snapshot)
        assert {event.key: event.data for event in snapshot.events} == {"a": 2, "b": 3}
        hub.commit(c=4)
        assert await change(watcher) == {"c": 4}
    kinds = [report.kind for report in reports]
    assert kinds == [WatchReportKind.RESYNC, WatchReportKind.LOST, WatchReportKind.LOST], "torn snapshots are void"
    assert hub.opened == ["0", snapshot.cursor]


async def test_a_resync_may_be_handed_over(hub: WatchHub) -> None:
    hub.commit(a=1)
    hub.commit(a=2)
    hub.forget(1)
    asked: list[Resync] = []

    async def resync(answer: Resync) -> str:
        asked.append(answer)
        return "e1.1"

    async with Watcher(hub.url, "t", cursor="0", on_resync=resync) as watcher:
        assert await change(watcher) == {"a": 2}
    assert asked == [Resync("not retained", "e1.1", "snapshot")]


async def test_a_silent_stream_is_left(hub: WatchHub) -> None:
    hub.mute = True
    reports: list[WatchReport] = []

    def report(report: WatchReport) -> None:
        reports.append(report)
        hub.mute = False

    async with Watcher(hub.url, "t", cursor="0", interval=0.05, on_report=report) as watcher:
        hub.commit(a=1)
        assert await change(watcher) == {"a": 1}
    assert reports[0].kind is WatchReportKind.SILENT


async def test_a_slow_application_stops_the_reading_and_loses_nothing(
    hub: WatchHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_module, "QUEUE_MESSAGES", 4)
    async with Watcher(hub.url, "t", cursor="0") as watcher:
        for number in range(100):
            hub.commit(a=number)
        for number in range(100):
            assert await change(watcher) == {"a": number}
            hub.commit(b=number)
        for number in range(100):
            assert await change(watcher) == {"b": number}
        assert watcher.streams == 1


async def test_a_cancelled_wait_loses_nothing(hub: WatchHub) -> None:
    async with Watcher(hub.url, "t", cursor="0") as watcher:
        for number in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(watcher)
            hub.commit(a=number)
            assert await change(watcher) == {"a": number}
    with pytest.raises(Closed):
        await anext(watcher)


async def test_refusals_end_it(hub: WatchHub) -> None:
    async with Watcher(hub.url, "other") as watcher:
        with pytest.raises(RequestFailed, match="no topic 'other'"):
            await following(watcher)
    hub.faults.append(Fault(200, {"Content-Type": "text/html"}, "<p>hello"))
    async with Watcher(hub.url, "t", cursor="0") as watcher:
        with pytest.raises(BadAnswer, match="text/html in place of a watch"):
            await following(watcher)
        with pytest.raises(BadAnswer):
            await following(watcher)
    hub.commit(a="x" * 1000)
    async with Watcher(hub.url, "t", snapshot_max=100) as watcher:
        with pytest.raises(HubError, match="more than 100 bytes"):
            await following(watcher)


def gone(**members: object) -> Fault:
    """Return the answer 410 with members of its problem document."""
    document = {"type": "urn:gripproxy:hub:gone", "status": 410, "detail": "not retained", **members}
    return Fault(410, {"Content-Type": "application/problem+json"}, json.dumps(document))


async def test_an_answer_of_410_is_a_resync(hub: WatchHub) -> None:
    reports: list[WatchReport] = []
    hub.commit(a=1)
    hub.faults.extend([gone(floor_cursor="e1.0", snapshot="snapshot"), gone(floor_cursor="e1.1"), Fault(503)])
    async with Watcher(hub.url, "t", cursor="0", on_report=reports.append) as watcher:
        assert isinstance(await following(watcher), Snapshot)
    kinds = [report.kind for report in reports]
    assert kinds == [WatchReportKind.RESYNC, WatchReportKind.LOST, WatchReportKind.LOST], "a snapshot may be gone, too"


async def test_a_topic_that_was_deleted_ends_it(hub: WatchHub) -> None:
    hub.faults.extend([gone(floor_cursor=None), gone(floor_cursor=None)])
    async with Watcher(hub.url, "t", cursor="0") as watcher:
        with pytest.raises(Gone, match="not retained"):
            await following(watcher)


async def test_a_snapshot_that_is_elsewhere_is_the_applications(hub: WatchHub) -> None:
    hub.faults.append(Fault(307, {"Location": "https://other.example/table"}))
    async with Watcher(hub.url, "t") as watcher:
        with pytest.raises(HubError, match="read them in on_resync"):
            await following(watcher)


async def test_a_watcher_that_is_closed_ends_a_wait(hub: WatchHub) -> None:
    async with Watcher(hub.url, "t", cursor="0", low="b", high="d") as watcher:
        assert watcher.range == KeyRange("b", "d")
        hub.commit(b=1)
        assert await change(watcher) == {"b": 1}
        waiting = asyncio.ensure_future(anext(aiter(watcher), None))
        await asyncio.sleep(0)
        await watcher.close()
        assert await waiting is None


async def test_long_histories_leave_turns_to_others(hub: WatchHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "TURN", 2)
    for number in range(20):
        hub.commit(**{f"k{number}": number})
    async with Watcher(hub.url, "t") as snapshots, Watcher(hub.url, "t", cursor="0") as changes:
        snapshot = await following(snapshots)
        assert isinstance(snapshot, Snapshot)
        assert len(snapshot.events) == 20
        for number in range(20):
            assert await change(changes) == {f"k{number}": number}


async def test_a_callback_that_raises_ends_it(hub: WatchHub) -> None:
    def token() -> str:
        raise LookupError("no token")

    async with Watcher(hub.url, "t", token=token) as watcher:
        with pytest.raises(LookupError, match="no token"):
            await following(watcher)


@pytest.mark.parametrize(("low", "high"), [("b", "a"), ("a", "a"), ("\ud800", None)])
async def test_no_range(low: str, high: str | None) -> None:
    with pytest.raises(ValueError, match="low"):
        Watcher("http://hub.example/hub", "t", low=low, high=high)
