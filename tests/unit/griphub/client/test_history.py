"""griphub.client.history: pages of a hub in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from griphub import ReceivedEvent, Selection, Truncated
from griphub.client.connection import HubConnection
from griphub.client.errors import BadAnswer, Gone
from griphub.client.history import read_history
from tests.support.small_hub import Fault, SmallHub, small_hub


@pytest.fixture
def hub() -> Iterator[SmallHub]:
    with small_hub() as hub:
        hub.page = 3
        yield hub


async def read(hub: SmallHub, selection: Selection, limit: int | None = None) -> list[Any]:
    async with HubConnection(hub.url) as connection:
        return [
            message.data if isinstance(message, ReceivedEvent) else message
            async for message in read_history(connection, "t", selection, limit)
        ]


async def test_pages_are_joined(hub: SmallHub) -> None:
    cursors = hub.add(*range(8))
    assert await read(hub, Selection()) == list(range(8))
    assert [path.partition("?")[2] for _, path in hub.requests] == ["", "after=e1.3", "after=e1.6"]
    assert await read(hub, Selection(after=cursors[5])) == [6, 7]


async def test_a_page_after_a_time_goes_on_from_its_cursor(hub: SmallHub) -> None:
    hub.add(*range(6))
    assert await read(hub, Selection(since="2026-01-01T00:00:00.000002Z", until="2026-01-01T00:00:00.000006Z")) == [
        2,
        3,
        4,
        5,
    ]
    assert "since" not in hub.requests[1][1]
    assert "after=e1.5" in hub.requests[1][1]
    assert "until=" in hub.requests[1][1]


@pytest.mark.parametrize(("limit", "number", "requests"), [(0, 0, 0), (1, 1, 1), (3, 3, 1), (5, 5, 2), (99, 8, 3)])
async def test_limit(hub: SmallHub, limit: int, number: int, requests: int) -> None:
    hub.add(*range(8))
    assert await read(hub, Selection(), limit) == list(range(number))
    assert len(hub.requests) == requests


async def test_events_that_are_not_retained(hub: SmallHub) -> None:
    hub.add("a", "b")
    hub.forget(1)
    with pytest.raises(Gone, match="not retained"):
        await read(hub, Selection())
    assert await read(hub, Selection(truncated=True)) == [Truncated("e1.1", "2026-01-01T00:00:00.000000Z"), "b"]


@pytest.mark.parametrize(
    "body", ["<p>", "[]", "{}", '{"events":[1],"cursor":"e.1","more":false}', '{"events":[],"cursor":1,"more":true}']
)
async def test_answers_that_no_hub_gives(hub: SmallHub, body: str) -> None:
    hub.faults.append(Fault(200, body=body))
    with pytest.raises(BadAnswer):
        await read(hub, Selection())
