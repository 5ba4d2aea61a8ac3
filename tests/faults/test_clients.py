"""What clients of a run do and note, against answers that a test writes by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.faults.crew import Crew
from tests.faults.history import History
from tests.faults.truth import event, item_id

HEAD = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

Serve = Callable[..., Crew]


def chunk(text: str) -> str:
    return f"{len(text):x}\r\n{text}\r\n"


class Proxy:
    """Answers each connection's first request with the next text of a list, and closes; then it only listens."""

    def __init__(self, answers: list[str]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
            if len(self.asked) <= len(self.answers):
                writer.write(self.answers[len(self.asked) - 1].encode())
                await writer.drain()
            else:
                await reader.read()
        finally:
            writer.transport.abort()


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., asyncio.Future[tuple[Proxy, Crew]]]]:
    """A function that serves some answers and returns what has them, and a crew for it."""
    ends: list[tuple[asyncio.Server, Crew]] = []

    async def start(*answers: str) -> tuple[Proxy, Crew]:
        proxy = Proxy(list(answers))
        server = await asyncio.start_server(proxy.serve, "127.0.0.1")
        crew = Crew(server.sockets[0].getsockname()[1], History(), 1)
        ends.append((server, crew))
        return proxy, crew

    yield start  # type: ignore[misc]
    for server, crew in ends:
        await crew.leave()
        server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        await asyncio.sleep(0)


async def asked(proxy: Proxy, number: int) -> list[str]:
    async with asyncio.timeout(20):
        while len(proxy.asked) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return [head.split(" ")[1] for head in proxy.asked]


def seen(crew: Crew, what: str) -> list[tuple[object, ...]]:
    return [record.values for record in crew.history.select(what)]


async def test_a_stream_that_was_cut_goes_on_after_the_last_whole_event(serve: Callable[..., object]) -> None:
    whole = chunk(": hello stream-0.1\n\n" + event("a-1", 1))
    proxy, crew = await serve(HEAD + whole + chunk(event("a-1", 2)[:-1]))  # type: ignore[misc]
    client = crew.add("stream", ["a-1"])
    first, second = await asked(proxy, 2)
    assert first == "/a/stream?c=a-1&who=stream-0.1"
    assert second == f"/a/stream?c=a-1&who=stream-0.2&after={item_id('a-1', 1)}"
    assert seen(crew, "got") == [(1, "a-1", 1, item_id("a-1", 1))]
    assert seen(crew, "opened") == [(1, "a-1", 0)]
    ((connection, why),) = seen(crew, "ended")
    assert connection == 1
    assert str(why).startswith("cut")
    assert seen(crew, "misled") == []
    assert crew.behind({"a-1": 1}) == []
    assert crew.behind({"a-1": 2}) == [client.name]
    assert crew.reconnects == 1


async def test_what_is_not_for_a_client_is_noted(serve: Callable[..., object]) -> None:
    text = ": hello stream-7.1\n\n" + event("a-3", 1) + "data: x\n\n"
    proxy, crew = await serve(HEAD + chunk(text) + "0\r\n\r\n")  # type: ignore[misc]
    crew.add("stream", ["a-1"])
    await asked(proxy, 2)
    assert [values[1] for values in seen(crew, "misled")] == [
        "hello stream-7.1",
        f"a-3 1 {item_id('a-3', 1)}",
        "x",
    ]
    assert seen(crew, "got") == []
    assert seen(crew, "ended") == [(1, "the stream was ended")]


async def test_a_long_poll_asks_again_and_forgets_half_an_answer(serve: Callable[..., object]) -> None:
    body = ": poll-0.1\na-2 1 1\na-2 2 2\n"
    whole = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    half = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na-2 3 3\n"
    proxy, crew = await serve(whole, half)  # type: ignore[misc]
    crew.add("poll", ["a-2"])
    first, second, third = await asked(proxy, 3)
    assert first == "/a/poll?c=a-2&who=poll-0.1"
    assert second == third == "/a/poll?c=a-2&who=poll-0.2&after=2"
    assert seen(crew, "got") == [(1, "a-2", 1, "1"), (1, "a-2", 2, "2")]


async def test_an_error_is_no_session(serve: Callable[..., object]) -> None:
    proxy, crew = await serve("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\nsorry")  # type: ignore[misc]
    client = crew.add("plain", ["b-1"])
    await asked(proxy, 2)
    assert (client.connection, client.failures) == (0, 1)
    assert crew.complaints() == {client.name: "status 502: sorry"}
    assert seen(crew, "opened") == []


async def test_a_client_that_is_paused_reads_no_more_until_it_goes_on(serve: Callable[..., object]) -> None:
    text = "".join(chunk(event("a-2-heavy", number)) for number in range(1, 21))
    proxy, crew = await serve(HEAD + text + "0\r\n\r\n")  # type: ignore[misc]
    client = crew.add("plain", ["a-2-heavy"], slow=True)
    client.pause()
    await asked(proxy, 1)
    assert await crew.until("got", 1, 20)
    assert len(seen(crew, "got")) < 20
    client.go_on()
    assert await crew.until("got", 20, 20)
    assert [values[2] for values in seen(crew, "got")] == list(range(1, 21))
