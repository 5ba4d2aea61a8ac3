"""griphub.client.snapshot: lines in any parts, and snapshots that are void."""

from __future__ import annotations

import json
from collections.abc import Iterator
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


async def taken(hub: SmallHub, **bounds: str) -> list[Any]:
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
