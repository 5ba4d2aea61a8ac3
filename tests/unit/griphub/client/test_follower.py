"""griphub.client.follower: blocks in, events out; streams that end, and those that may not go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from griphub import Follower, ReceivedEvent, Selection, Truncated
from griphub.client.errors import BadAnswer, ConnectionLost, Gone, HubError, RequestFailed
from griphub.client.follower import Following
from tests.support.small_hub import Fault, SmallHub, small_hub


@pytest.fixture
def hub() -> Iterator[SmallHub]:
    with small_hub() as hub:
        yield hub


def block(id: int, data: Any) -> bytes:
    event = {
        "type": "event",
        "id": str(id),
        "cursor": f"e.{id}",
        "prev_id": "0",
        "version": str(id),
        "version_cursor": f"e.{id}",
        "time": "T",
        "content_type": "application/json",
        "data": data,
    }
    return f"id: e.{id}\ndata: {json.dumps(event)}\n\n".encode()


# --- sans-I/O


def test_parameters() -> None:
    assert Selection().query() == []
    selection = Selection(after="0", until="U", low="", high="h", truncated=True)
    assert selection.query() == [("after", "0"), ("until", "U"), ("low", ""), ("high", "h"), ("truncated", "allow")]
    assert Selection(since="S").query() == [("since", "S")]
    with pytest.raises(ValueError, match="exclude each other"):
        Selection(after="0", since="S")
    with pytest.raises(ValueError, match="no end"):
        Following(Selection(until="U"))


def test_the_place_moves_with_events_and_with_bare_ids() -> None:
    following = Following(Selection(after="e.4"))
    assert following.headers() == [("Accept", "text/event-stream"), ("Cache-Control", "no-store")]
    (event,) = following.feed(block(5, "a"))
    assert isinstance(event, ReceivedEvent)
    assert following.cursor == "e.5"
    assert following.feed(b":\n\nid: e.9\n\n") == []
    assert following.cursor == "e.9"
    assert following.headers()[2:] == [("Last-Event-ID", "e.9")]
    assert following.query() == [("after", "e.4")]


def test_a_stream_that_was_cut_within_a_block_does_not_spoil_the_next() -> None:
    following = Following(Selection())
    assert following.feed(block(1, "a")[:-1]) == []
    following.headers()
    assert len(following.feed(block(1, "a"))) == 1


def test_reports_and_errors_end_the_list() -> None:
    following = Following(Selection())
    report = b'event: truncated\ndata: {"type":"truncated","floor_cursor":"e.3","oldest_time":"T"}\n\n'
    expired = b'event: expired\ndata: {"type":"expired"}\n\n'
    resync = b'event: resync\nid: resync\ndata: {"type":"resync","reason":"gone","floor_cursor":"e.8"}\n\n'
    truncated, event, gone = following.feed(report + block(4, "a") + expired + resync + block(9, "b"))
    assert truncated == Truncated("e.3", "T")
    assert isinstance(event, ReceivedEvent)
    assert isinstance(gone, Gone)
    assert following.cursor == "e.4", "the place is not that of the resync"


def test_blocks_that_no_hub_sends() -> None:
    (error,) = Following(Selection()).feed(b"data: hello\n\n")
    assert isinstance(error, BadAnswer)


# --- against a hub in memory


async def test_history_then_live_events(hub: SmallHub) -> None:
    first, *_ = hub.add("a", "b", "c")
    seen: list[Any] = []
    async with Follower(hub.url, "t", Selection(after=first)) as follower:
        async for event in follower:
            assert isinstance(event, ReceivedEvent)
            seen.append(event.data)
            if event.data == "c":
                hub.add("d")
            if event.data == "d":
                break
        assert follower.cursor == "e1.4"
    assert seen == ["b", "c", "d"]


async def test_lost_streams_are_opened_again_where_they_ended(hub: SmallHub) -> None:
    hub.add(0)
    seen: list[Any] = []
    pauses: list[HubError] = []
    async with Follower(hub.url, "t", on_pause=lambda error, _: pauses.append(error)) as follower:
        async for event in follower:
            assert isinstance(event, ReceivedEvent)
            seen.append(event.data)
            if event.data == 3:
                break
            hub.faults.append(Fault(503, {"Retry-After": "0"}))
            hub.cut()
            hub.add(event.data + 1)
        assert follower.connections >= 2
    assert seen == [0, 1, 2, 3]
    assert {type(error) for error in pauses} == {ConnectionLost, RequestFailed}
    assert [headers.get("Last-Event-ID") for headers in hub.headers][:3] == [None, "e1.1", "e1.1"]


async def test_a_place_that_is_gone(hub: SmallHub) -> None:
    hub.add("a", "b")
    hub.forget(1)
    async with Follower(hub.url, "t") as follower:
        with pytest.raises(Gone) as gone:
            await anext(aiter(follower))
    assert gone.value.floor_cursor == "e1.1"
    async with Follower(hub.url, "t", Selection(truncated=True)) as follower:
        messages = aiter(follower)
        assert await anext(messages) == Truncated("e1.1", "2026-01-01T00:00:00.000000Z")
        event = await anext(messages)
        assert isinstance(event, ReceivedEvent)
        assert event.data == "b"


async def test_refusals_are_not_repeated(hub: SmallHub) -> None:
    hub.token = "secret"
    async with Follower(hub.url, "t", token="wrong") as follower:
        with pytest.raises(RequestFailed, match="no token that the hub knows"):
            await anext(aiter(follower))
    async with Follower(hub.url, "other", token="secret") as follower:
        with pytest.raises(RequestFailed, match="no topic 'other'"):
            await anext(aiter(follower))
    assert len(hub.requests) == 2


async def test_an_answer_that_is_no_event_stream(hub: SmallHub) -> None:
    hub.faults.append(Fault(200, {"Content-Type": "text/html"}, "<p>hello"))
    async with Follower(hub.url, "t") as follower:
        with pytest.raises(BadAnswer, match="text/html in place of an event stream"):
            await anext(aiter(follower))


async def test_the_receiver_of_pauses_may_end_it(hub: SmallHub) -> None:
    def end(error: HubError, pause: float) -> None:
        raise error

    hub.faults.append(Fault(503))
    async with Follower(hub.url, "t", on_pause=end) as follower:
        with pytest.raises(RequestFailed, match="503"):
            await anext(aiter(follower))
