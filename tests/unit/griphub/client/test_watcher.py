"""griphub.Watcher against a hub on loopback: streams that end, snapshots that tear, and an application that is slow."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator

import pytest

from griphub.client import watcher as watcher_module
from griphub.client.errors import BadAnswer, Closed, ConnectionLost, Gone, HubError, RequestFailed
from griphub.client.key_range import KeyRange
from griphub.client.source_snapshot import SourceSnapshot
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
        with pytest.raises(HubError, match="give snapshots="):
            await following(watcher)


# --- snapshots of a source


class Source:
    """Store of a soft topic, whose changes a test commits to the hub.

    Attributes:
        version: the newest one.
        values: by key.
        faults: results of the next readings in place of a snapshot.
        read: ranges that were read.
    """

    def __init__(self, version: int = 0, **values: object) -> None:
        self.version = version
        self.values = values
        self.faults: list[BaseException | SourceSnapshot | None] = []
        self.read: list[KeyRange] = []

    async def snapshot(self, range: KeyRange) -> SourceSnapshot | None:
        """Return the values at the newest version, or the next fault."""
        self.read.append(range)
        if not self.faults:
            return SourceSnapshot(self.version, dict(self.values))
        fault = self.faults.pop(0)
        if isinstance(fault, BaseException):
            raise fault
        return fault


async def test_snapshots_of_a_source_and_the_changes_behind_exactly_their_version(hub: WatchHub) -> None:
    hub.commit(a=1, z=2)
    source, reports = Source(2, a=1, z=2), list[WatchReport]()
    async with Watcher(hub.url, "t", "a", "m", snapshots=source.snapshot, on_report=reports.append) as watcher:
        snapshot = await following(watcher)
        assert isinstance(snapshot, Snapshot)
        assert {event.key: event.data for event in snapshot.events} == {"a": 1}, "keys of the range"
        assert snapshot.cursor == watcher.cursor == "e1.2"
        hub.commit(b=3)
        assert await change(watcher) == {"b": 3}
        source.version, source.values = 5, {"b": 5}
        hub.commit(a=None)
        hub.commit(b=5)
        hub.forget(5)
        hub.cut()
        messages = [await following(watcher)]
        while not isinstance(messages[-1], Snapshot):
            messages.append(await following(watcher))
        assert {event.key: event.data for event in messages[-1].events} == {"b": 5}
    assert source.read == [KeyRange("a", "m")] * 2
    assert not any(path.startswith("/hub/topics/t/snapshot") for _, path in hub.requests)
    kinds = {report.kind for report in reports}
    assert kinds == {WatchReportKind.LOST, WatchReportKind.RESYNC}
    assert sum(report.kind is WatchReportKind.RESYNC for report in reports) == 1, "the beginning is no resync"


async def test_a_watch_with_snapshots_of_a_source_may_go_on_from_a_cursor(hub: WatchHub) -> None:
    source = Source()
    async with Watcher(hub.url, "t", cursor="0", snapshots=source.snapshot) as watcher:
        hub.commit(a=1)
        assert await change(watcher) == {"a": 1}
    assert source.read == []


async def test_a_source_that_is_always_ahead_of_the_hub_is_watched_from_the_floor_on(hub: WatchHub) -> None:
    hub.commit(a=1)
    source = Source(3, a=3)
    async with Watcher(hub.url, "t", snapshots=source.snapshot) as watcher:
        assert isinstance(await following(watcher), Snapshot)
        source.version = 4
        snapshot = await following(watcher)
        assert isinstance(snapshot, Snapshot)
        assert (len(source.read), snapshot.cursor) == (2, "e1.4")
        for value in (2, 3, 4, 5):
            hub.commit(a=value)
            hub.progress()
        assert await change(watcher) == {"a": 5}, "earlier changes are in the snapshot"
        progress = await following(watcher)
        assert isinstance(progress, Progress)
        assert watcher.cursor == progress.cursor
    assert hub.opened == ["none.0", "e1.3", "e1.0"]


async def test_a_snapshot_that_fails_is_read_again(hub: WatchHub) -> None:
    for value in range(3):
        hub.commit(a=value)
    hub.forget(2)
    source, reports = Source(3, a=2), list[WatchReport]()
    lost = ConnectionLost("the database is away", maybe_stored=False)
    source.faults = [TimeoutError("late"), OSError(), lost, None, SourceSnapshot(1, {})]
    async with Watcher(hub.url, "t", snapshots=source.snapshot, on_report=reports.append) as watcher:
        snapshot = await following(watcher)
        assert isinstance(snapshot, Snapshot)
        assert [event.data for event in snapshot.events] == [2]
    assert [report.reason for report in reports] == [
        "late",
        "OSError",
        "the database is away",
        "the source has no snapshot now",
        "the snapshot of the source is that of version 1, and changes up to 2 are not retained",
        "not retained",
    ]
    assert [report.kind for report in reports] == [WatchReportKind.LOST] * 5 + [WatchReportKind.RESYNC]
    assert hub.opened[:2] == ["none.0", "none.0"], "behind the floor, the hub is asked for it again"


async def test_a_source_that_was_restored_below_the_floor_is_watched_from_its_new_one_on(hub: WatchHub) -> None:
    for value in range(5):
        hub.commit(a=value)
    hub.forget(5)
    restored = SourceSnapshot(3, {"a": 3})

    async def snapshots(range: KeyRange) -> SourceSnapshot:
        hub.forget(2)
        return restored

    async with Watcher(hub.url, "t", snapshots=snapshots) as watcher:
        snapshot = await following(watcher)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.cursor == "e1.3"


async def test_the_hub_is_asked_until_it_knows_the_source(hub: WatchHub) -> None:
    source, reports = Source(1), list[WatchReport]()
    hub.commit(a=1)
    hub.faults.extend([gone(floor_cursor=None), gone(floor_cursor=None)])
    async with Watcher(hub.url, "t", snapshots=source.snapshot, on_report=reports.append) as watcher:
        assert isinstance(await following(watcher), Snapshot)
    assert [report.kind for report in reports] == [WatchReportKind.RESYNC] * 2
    assert len(source.read) == 1


async def test_large_snapshots_of_a_source_leave_turns_to_others_and_are_bounded(
    hub: WatchHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_module, "TURN", 2)
    source = Source(0, **{f"k{number}": "x" * 100 for number in range(20)})
    async with Watcher(hub.url, "t", snapshots=source.snapshot) as watcher:
        snapshot = await following(watcher)
        assert isinstance(snapshot, Snapshot)
        assert len(snapshot.events) == 20
    async with Watcher(hub.url, "t", snapshots=source.snapshot, snapshot_max=1000) as watcher:
        with pytest.raises(HubError, match="more than 1000 bytes"):
            await following(watcher)


async def test_other_errors_of_a_source_end_it(hub: WatchHub) -> None:
    source = Source()
    source.faults = [LookupError("no such table")]
    async with Watcher(hub.url, "t", snapshots=source.snapshot) as watcher:
        with pytest.raises(LookupError, match="no such table"):
            await following(watcher)

    async def resync(answer: Resync) -> None:
        raise AssertionError(answer)

    with pytest.raises(ValueError, match="exclude each other"):
        Watcher(hub.url, "t", snapshots=source.snapshot, on_resync=resync)


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


async def test_a_hub_that_sends_nothing_but_empty_lines_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold up neither other tasks nor the end of the stream that is silent."""
    blocks = b"".join([b"\n" * 1_000_000] * 40)
    packed = zlib.compress(blocks, 9, 31)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Encoding: gzip\r\n\r\n"
        writer.write(head.encode() + packed)
        await writer.drain()
        await reader.read()
        writer.close()

    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    told = asyncio.Event()
    reports: list[WatchReport] = []

    def report(found: WatchReport) -> None:
        reports.append(found)
        told.set()

    beside = asyncio.ensure_future(others())
    async with server, Watcher(f"http://127.0.0.1:{port}", "t", cursor="0", interval=0.1, on_report=report) as watcher:
        waiting = asyncio.ensure_future(anext(watcher))
        async with asyncio.timeout(DEADLINE):
            await told.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    beside.cancel()
    assert {found.kind for found in reports} == {WatchReportKind.SILENT}
    assert turns > 1000
