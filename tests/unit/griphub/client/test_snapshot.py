"""griphub.client.snapshot: lines in any parts, and snapshots that are void."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from griphub.client import snapshot
from griphub.client.connection import HubConnection
from griphub.client.errors import BadAnswer, ConnectionLost, Gone
from griphub.client.received import ReceivedEvent
from griphub.client.snapshot import SnapshotLines, SnapshotVersion, read_snapshot
from tests.support.small_hub import Fault, SmallHub, small_hub

FIRST = {"type": "snapshot", "version": "7", "cursor": "e.7"}
EVENT = {
    "type": "event", "id": "5", "cursor": "e.5", "prev_id": "3", "version": "6", "version_cursor": "e.6",
    "time": "2026-11-23T19:00:00.123456Z", "key": "k", "op": "put", "content_type": "application/json", "data": 1,
}  # fmt: skip
LAST = {"complete": "7", "cursor": "e.7"}


def text(*documents: Any) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_lines_may_arrive_in_any_parts(size: int) -> None:
    data = text(FIRST, EVENT, EVENT, LAST)
    lines = SnapshotLines()
    found = [message for at in range(0, len(data), size) for message in lines.feed(data[at : at + size])]
    assert found == [SnapshotVersion("7", "e.7"), ReceivedEvent.of(EVENT), ReceivedEvent.of(EVENT)]
    assert lines.complete


def test_it_is_void_without_its_last_line() -> None:
    lines = SnapshotLines()
    assert len(list(lines.feed(text(FIRST, EVENT)))) == 2
    list(lines.feed(text(LAST)[:-1]))
    assert not lines.complete


@pytest.mark.parametrize(
    "data",
    [
        b"<html>\n",
        b"\n",
        b"[]\n",
        text(EVENT),
        text(LAST),
        text({**FIRST, "version": 7}),
        text({**FIRST, "cursor": None}),
        text(FIRST, {"type": "event"}),
        text(FIRST, {"complete": "8"}),
        text(FIRST, LAST, EVENT),
        text(FIRST, FIRST),
    ],
)
def test_other_lines_are_refused(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        list(SnapshotLines().feed(data))


def test_a_line_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "ANSWER_MAX", 100)
    lines = SnapshotLines()
    list(lines.feed(b"x" * 100))
    with pytest.raises(BadAnswer, match="more than 100 bytes"):
        list(lines.feed(b"x"))


@pytest.fixture
def hub() -> Iterator[SmallHub]:
    with small_hub() as hub:
        yield hub


async def taken(hub: SmallHub, **bounds: Any) -> list[Any]:
    async with HubConnection(hub.url) as connection:
        return [
            message.data if isinstance(message, ReceivedEvent) else message.cursor
            async for message in read_snapshot(connection, "t", **bounds)
        ]


async def test_a_hub_is_asked(hub: SmallHub) -> None:
    for number, key in enumerate("cab"):
        hub.add(number, key=key)
    assert await taken(hub) == ["e1.3", 1, 2, 0]
    assert await taken(hub, low="b", version="e1.2") == ["e1.2", 0]
    assert hub.headers[-1]["Accept"] == "application/x-ndjson"


async def test_failures(hub: SmallHub) -> None:
    hub.add(1, 2, key="k")
    hub.whole = False
    with pytest.raises(ConnectionLost, match="void"):
        await taken(hub)
    hub.forget(2)
    with pytest.raises(Gone):
        await taken(hub, version="e1.1")
    hub.faults.append(Fault())
    with pytest.raises(ConnectionLost):
        await taken(hub)
    hub.faults.append(Fault(200, body="<p>"))
    with pytest.raises(BadAnswer, match="text/plain in place of a snapshot"):
        await taken(hub)


@pytest.mark.parametrize(
    "members",
    [
        {"data": 1},
        {"data": [[]] * 5_000},
        {"data": {str(number): number for number in range(5_000)}},
        {"attributes": {"a": "x" * 50_000}},
        {"key": "x" * 50_000},
        {"unknown": "x" * 50_000},
    ],
)
def test_a_line_counts_for_the_memory_that_it_takes(members: dict[str, Any]) -> None:
    lines = SnapshotLines()
    data = text({**EVENT, **members})
    assert len(list(lines.feed(text(FIRST)))) == 1
    tracemalloc.start()
    try:
        kept = list(lines.feed(data))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(kept) == 1
    # A dict that has just grown has room for as many again.
    assert taken / 2 - 2_000 <= lines.size <= 4 * taken + 2_000


async def test_an_answer_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PATIENCE", 0.2)
    monkeypatch.setattr(snapshot, "RATE", 1_000_000)
    sent = 0

    async def trickle() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"x"
            await asyncio.sleep(0.02)

    with pytest.raises(ConnectionLost, match=r"the snapshot is too slow: \d+ bytes in 0 s"):
        async for _ in snapshot._in_time(trickle()):
            pass
    assert sent > 1


async def test_the_time_of_the_caller_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PATIENCE", 0.2)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"x"

    async for _ in snapshot._in_time(chunks()):
        await asyncio.sleep(0.1)


async def test_bytes_that_arrive_give_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PATIENCE", 0.05)
    monkeypatch.setattr(snapshot, "RATE", 1)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"x" * 1000
            await asyncio.sleep(0.05)

    assert [len(chunk) async for chunk in snapshot._in_time(chunks())] == [1000] * 4
