"""griphub.client.connection: requests and streams against a hub in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from griphub.client.connection import HubConnection
from griphub.client.errors import BadAnswer, ConnectionLost, Gone, RequestFailed
from tests.support.ports import free_ports
from tests.support.small_hub import Fault, SmallHub, small_hub


@pytest.fixture
def hub() -> Iterator[SmallHub]:
    with small_hub() as hub:
        yield hub


@pytest.mark.parametrize(
    "url",
    ["localhost:7999", "ftp://host/", "http:///hub", "http://host/hub?token=x", "http://host/#x", "http://u:p@host/"],
)
def test_urls_that_no_hub_has(url: str) -> None:
    with pytest.raises(ValueError, match="url must"):
        HubConnection(url)


def test_segments_and_parameters_are_encoded() -> None:
    connection = HubConnection("https://host/hub/")
    assert connection.url(["topics", "P/T ä?", "events"], [("low", "a&b")]) == (
        "https://host/hub/topics/P%2FT%20%C3%A4%3F/events?low=a%26b"
    )


async def test_a_name_with_a_slash_arrives_encoded_once(hub: SmallHub) -> None:
    async with HubConnection(hub.url) as connection:
        answer = await connection.request("PUT", ["topics", "P/T%2F"], body=b"{}")
    assert answer.status == 201
    assert hub.requests == [("PUT", "/hub/topics/P%2FT%252F")]
    assert list(hub.topics) == ["t", "P/T%2F"]


async def test_tokens_are_made_for_each_request(hub: SmallHub) -> None:
    tokens = itertools.count()
    async with HubConnection(hub.url, lambda: f"token-{next(tokens)}") as connection:
        for _ in range(2):
            await connection.request("GET", ["topics"])
    assert [headers.get("Authorization") for headers in hub.headers] == ["Bearer token-0", "Bearer token-1"]


async def test_an_answer_of_any_status_is_returned(hub: SmallHub) -> None:
    hub.faults.append(Fault(503, {"Retry-After": "7", "Content-Type": "text/plain"}, "away"))
    async with HubConnection(hub.url) as connection:
        answer = await connection.request("GET", ["topics"])
    assert (answer.status, answer.content_type, answer.body) == (503, "text/plain; charset=utf-8", b"away")
    assert answer.retry_after == 7.0


async def test_a_redirection_is_not_followed(hub: SmallHub) -> None:
    hub.faults.append(Fault(302, {"Location": hub.url + "/topics"}))
    async with HubConnection(hub.url, "secret") as connection:
        assert (await connection.request("GET", ["topics"])).status == 302
        hub.faults.append(Fault(302, {"Location": hub.url + "/topics"}))
        with pytest.raises(RequestFailed, match="302"):
            async with connection.stream(["topics"]):
                pass
    assert len(hub.requests) == 2


async def test_a_connection_that_is_cut_may_have_stored_something(hub: SmallHub) -> None:
    hub.faults.append(Fault())
    async with HubConnection(hub.url) as connection:
        with pytest.raises(ConnectionLost) as lost:
            await connection.request("POST", ["topics", "t", "events"], body=b"x")
    assert lost.value.maybe_stored


async def test_a_port_without_a_server_stores_nothing() -> None:
    (port,) = free_ports(1)
    async with HubConnection(f"http://127.0.0.1:{port}") as connection:
        with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}: ") as lost:
            await connection.request("GET", [])
        assert not lost.value.maybe_stored
        with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}: "):
            async with connection.stream([]):
                pass


async def test_an_answer_that_does_not_come_in_time(hub: SmallHub) -> None:
    hub.gate.clear()
    async with HubConnection(hub.url, timeout=0.05) as connection:
        with pytest.raises(ConnectionLost, match="no answer in time") as lost:
            await connection.request("GET", ["topics"])
    assert lost.value.maybe_stored


async def test_an_answer_beyond_the_bound(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("griphub.client.connection.ANSWER_MAX", 10)
    async with HubConnection(hub.url) as connection:
        with pytest.raises(BadAnswer, match="more than 10 bytes"):
            await connection.request("GET", ["topics"])


async def test_a_stream_is_read_as_it_arrives_until_it_is_cut(hub: SmallHub) -> None:
    hub.add("first")
    received = b""
    async with (
        HubConnection(hub.url) as connection,
        connection.stream(["topics", "t", "events"], headers=[("Accept", "text/event-stream")]) as response,
    ):
        assert (response.status, response.content_type) == (200, "text/event-stream")
        chunks = response.chunks()
        while b"first" not in received:
            received += await anext(chunks)
        hub.add("second")
        while b"second" not in received:
            received += await anext(chunks)
        hub.cut()
        with pytest.raises(ConnectionLost):
            await anext(chunks)


async def test_a_stream_with_an_error_status(hub: SmallHub) -> None:
    hub.add("a")
    hub.forget(1)
    async with HubConnection(hub.url) as connection:
        with pytest.raises(Gone) as gone:
            async with connection.stream(["topics", "t", "events"], [("after", "0")]):
                pass
        assert gone.value.floor_cursor == "e1.1"
        hub.faults.append(Fault(503, {"Retry-After": "2"}))
        with pytest.raises(RequestFailed) as failed:
            async with connection.stream(["topics", "t", "events"]):
                pass
        assert failed.value.retry_after == 2.0
