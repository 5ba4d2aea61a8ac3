"""Control client against a handler on a Unix socket that answers, refuses, and dies at chosen moments."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from griphub.notify import control_client
from griphub.notify.control_client import ControlAddress, ControlClient
from griphub.notify.outbox import Outbox, OutboxState
from gripproxy.grip.signature import Key, Signer, verify
from gripproxy.process.log import log

SECRET = Key.from_secret(b"a secret of both ends")

PATIENCE = 20.0
"""Seconds for anything that a test waits for."""

TAKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nPublished\n"
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\n\r\nno worker"
TAKEN_LAST = TAKEN.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
REFUSED_LAST = REFUSED.replace(b"e\r\n", b"e\r\nConnection: close\r\n", 1)

IDLE = 0.0005
"""Seconds between two looks of a test."""


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - a turn of the loop each
            await asyncio.sleep(IDLE)


class Handler:
    """Control port that passes on the items of each request, and waits for the word how to answer it."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = str(path)
        self.requests: asyncio.Queue[tuple[list[str], asyncio.StreamWriter]] = asyncio.Queue()
        self.heads: list[bytes] = []
        self.connections = 0
        self.hangs_up = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def live(self) -> None:
        # Requests that it read before it died were its own.
        self.requests = asyncio.Queue()
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    def die(self) -> None:
        """Close the port and all connections, with resets."""
        if self._server is not None:
            self._server.close()
            pathlib.Path(self.path).unlink(missing_ok=True)
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.hangs_up:
            writer.close()
            return
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.requests.put_nowait((json.loads(await reader.readexactly(length))["items"], writer))
        self._writers.discard(writer)
        writer.close()

    async def request(self) -> tuple[list[str], asyncio.StreamWriter]:
        """Return the items of the next request, and the connection for its answer."""
        async with asyncio.timeout(PATIENCE):
            return await self.requests.get()

    async def takes(self) -> list[str]:
        """Answer the next request; return its items."""
        items, writer = await self.request()
        writer.write(TAKEN)
        return items


class House:
    """A handler and a client of it."""

    def __init__(self, path: pathlib.Path) -> None:
        self.handler = Handler(path)
        self.outbox = Outbox(lambda channel: b'"hint %b"' % channel.encode(), 1_000_000)
        self.counts: list[tuple[list[str], Sequence[int] | None]] = []
        self.client = ControlClient(
            str(path), self.outbox, lambda names, counts: self.counts.append((list(names), counts))
        )

    def publish(self, *items: str) -> None:
        for item in items:
            self.client.publish(item[0], b'"%b"' % item.encode())

    async def away(self) -> None:
        await until(lambda: self.outbox.state is OutboxState.AWAY)

    async def ready(self) -> None:
        await until(lambda: self.outbox.state is OutboxState.READY)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_client, "RETRY_FIRST", 0.001)
    monkeypatch.setattr(control_client, "RETRY_LAST", 0.01)
    monkeypatch.setattr(log, "level", -1)


@pytest.fixture
async def house(tmp_path: pathlib.Path) -> AsyncIterator[House]:
    house = House(tmp_path / "control")
    try:
        await house.handler.live()
        house.client.start()
        await house.ready()
        yield house
    finally:
        house.client.close()
        house.handler.die()
        await asyncio.sleep(0)


async def test_items_of_a_turn_go_in_one_request_and_later_ones_wait_for_its_answer(house: House) -> None:
    house.publish("a1", "b1", "a2")
    items, writer = await house.handler.request()
    assert items == ["a1", "b1", "a2"]
    house.publish("a3")
    house.publish("c1")
    await asyncio.sleep(0)
    assert house.outbox.waiting == 8
    writer.write(TAKEN)
    assert await house.handler.takes() == ["a3", "c1"]
    await house.ready()
    assert (house.client.requests, house.client.failures, house.handler.connections) == (2, 0, 1)


async def test_requests_are_those_of_the_control_port(house: House) -> None:
    house.publish("a1")
    await house.handler.takes()
    [head] = house.handler.heads
    assert head.startswith(b"POST /publish HTTP/1.1\r\nHost: localhost\r\n")
    assert b"\r\nContent-Type: application/json\r\n" in head
    assert b"Authorization" not in head


async def test_subscribers_are_counted_with_items_that_want_it(house: House) -> None:
    house.publish("a1")
    await house.handler.takes()
    house.publish("a2")
    house.client.publish_counted("b", b'"b1"')
    items, writer = await house.handler.request()
    assert items == ["a2", "b1"]
    body = b'{"message":"Published","subscribers":[2,300]}\n'
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    await house.ready()
    assert house.counts == [(["a", "b"], [2, 300])]
    house.client.publish_counted("b", b'"b2"')
    await house.handler.takes()
    await house.ready()
    assert house.counts[1:] == [(["b"], None)], "a handler that does not count"
    first, *others = house.handler.heads
    assert b"Gripproxy-Count" not in first
    assert all(b"\r\nAccept: application/json\r\nGripproxy-Count: yes\r\n" in head for head in others)


async def test_a_port_of_another_proxy_wants_a_token() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address: ControlAddress = server.sockets[0].getsockname()
    client = ControlClient(address, Outbox(lambda channel: b'"hint"', 1_000_000))
    try:
        client.start(Signer(SECRET, "hub"))
        client.publish("a", b'"a1"')
        await until(lambda: bool(heads))
    finally:
        client.close()
        server.close()
        await asyncio.sleep(0)
    assert f"\r\nHost: {address[0]}:{address[1]}\r\n".encode() in heads[0]
    token = heads[0].partition(b"\r\nAuthorization: Bearer ")[2].partition(b"\r\n")[0]
    assert verify(token, SECRET, int(time.time()), "hub")


async def test_a_handler_that_is_not_there_yet(tmp_path: pathlib.Path) -> None:
    house = House(tmp_path / "control")
    try:
        house.client.start()
        house.publish("a1", "b1", "a2")
        await asyncio.sleep(0)
        await house.handler.live()
        assert await house.handler.takes() == ["hint a", "hint b"]
        house.publish("a3")
        assert await house.handler.takes() == ["a3"]
    finally:
        house.client.close()
        house.handler.die()
        await asyncio.sleep(0)


class TestDeath:
    async def test_while_nothing_is_under_way(self, house: House) -> None:
        house.handler.die()
        await house.away()
        house.publish("a1")
        await house.handler.live()
        assert await house.handler.takes() == ["hint a"]

    async def test_with_a_request_that_was_not_answered(self, house: House) -> None:
        house.publish("a1")
        await house.handler.request()
        house.publish("b1")
        house.handler.die()
        await house.away()
        await house.handler.live()
        assert await house.handler.takes() == ["hint a", "hint b"]

    async def test_within_the_answer(self, house: House) -> None:
        house.publish("a1")
        _, writer = await house.handler.request()
        writer.write(TAKEN[:-3])
        await writer.drain()
        house.handler.die()
        await house.away()
        await house.handler.live()
        assert await house.handler.takes() == ["hint a"]

    async def test_behind_the_answer(self, house: House) -> None:
        house.publish("a1")
        _, writer = await house.handler.request()
        writer.write(TAKEN)
        await house.ready()
        house.handler.die()
        await house.away()
        await house.handler.live()
        await house.ready()
        house.publish("b1")
        assert await house.handler.takes() == ["b1"]

    async def test_before_it_has_read_a_request(self, house: House) -> None:
        house.publish("a1")
        house.handler.die()
        await house.away()
        await house.handler.live()
        assert await house.handler.takes() == ["hint a"]

    async def test_again_and_again(self, house: House) -> None:
        for number in range(5):
            house.publish(f"a{number}")
            await house.handler.request()
            house.handler.die()
            await house.away()
            await house.handler.live()
            await until(lambda: not house.handler.requests.empty())
        items, writer = await house.handler.request()
        assert items == ["hint a"]
        writer.write(TAKEN)
        await house.ready()
        assert house.outbox.missed == 0

    async def test_a_handler_that_hangs_up_is_not_asked_without_pause(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pauses: list[float] = []
        sleep = asyncio.sleep

        async def paused(seconds: float) -> None:
            if seconds != IDLE:
                pauses.append(seconds)
            await sleep(0)

        monkeypatch.setattr(asyncio, "sleep", paused)
        house.handler.hangs_up = True
        house.handler.die()
        await house.away()
        await house.handler.live()
        house.handler.connections = 0
        await until(lambda: house.handler.connections >= 6)
        # Some found no handler.
        assert len(pauses) >= 6
        assert pauses[:5] == [0.001, 0.002, 0.004, 0.008, 0.01]


class TestOneRequestPerConnection:
    """Handlers that end the connection behind each answer, as Pushpin does."""

    async def test_items_that_wait_go_through_the_next_connection(self, house: House) -> None:
        house.publish("a1")
        for number in range(1, 5):
            items, writer = await house.handler.request()
            assert items == [f"a{number}"]
            house.publish(f"a{number + 1}")
            writer.write(TAKEN_LAST)
            writer.close()
        assert await house.handler.takes() == ["a5"]
        assert (house.client.requests, house.client.failures, house.handler.connections) == (4, 0, 5)

    async def test_the_client_sends_nothing_behind_the_last_answer(self, house: House) -> None:
        house.publish("a1")
        _, writer = await house.handler.request()
        writer.write(TAKEN_LAST)
        await house.ready()
        house.publish("a2")
        items, other = await house.handler.request()
        assert (items, other is writer) == (["a2"], False)

    async def test_an_end_without_announcement_loses_no_item_that_waits(self, house: House) -> None:
        house.publish("a1")
        _, writer = await house.handler.request()
        writer.write(TAKEN)
        await house.ready()
        writer.close()
        await until(lambda: house.handler.connections == 2)
        house.publish("a2")
        assert await house.handler.takes() == ["a2"]
        assert house.client.failures == 0

    async def test_a_handler_that_does_not_return_is_lost(self, house: House) -> None:
        house.publish("a1")
        _, writer = await house.handler.request()
        writer.write(TAKEN_LAST)
        await house.ready()
        house.publish("a2")
        house.handler.die()
        await house.away()
        assert (house.outbox.missed, house.outbox.waiting, house.client.failures) == (1, 0, 1)
        await house.handler.live()
        assert await house.handler.takes() == ["hint a"]

    async def test_a_refusal_is_repeated_after_its_pause(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(control_client, "RETRY_FIRST", 3600.0)
        monkeypatch.setattr(control_client, "RETRY_LAST", 3600.0)
        house.publish("a1")
        await house.handler.takes()
        await house.ready()
        house.publish("a2")
        _, writer = await house.handler.request()
        writer.write(REFUSED_LAST)
        writer.close()
        await until(lambda: house.handler.connections == 2)
        await house.ready()
        house.publish("b1")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (house.outbox.state, house.outbox.waiting, house.outbox.missed) == (OutboxState.READY, 4, 1)
        assert house.handler.requests.empty()


async def test_an_attempt_to_connect_ends(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    async def connect(*_: object) -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.Event().wait()

    monkeypatch.setattr(control_client, "ANSWER_TIME", 0.01)
    monkeypatch.setattr(asyncio.get_running_loop(), "create_unix_connection", connect)
    house.handler.die()
    await until(lambda: attempts >= 3)
    assert house.outbox.state is OutboxState.AWAY


class TestAnswers:
    async def test_a_refusal_becomes_hints_after_a_pause(self, house: House) -> None:
        house.publish("a1")
        _, writer = await house.handler.request()
        writer.write(REFUSED)
        await house.ready()
        assert house.outbox.missed == 1
        house.publish("a2", "b1")
        assert await house.handler.takes() == ["hint a", "b1"]
        assert (house.client.failures, house.handler.connections) == (1, 1)

    async def test_items_do_not_end_the_pause(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(control_client, "RETRY_FIRST", 3600.0)
        monkeypatch.setattr(control_client, "RETRY_LAST", 3600.0)
        house.publish("a1")
        await house.handler.takes()
        await house.ready()
        house.publish("a2")
        _, writer = await house.handler.request()
        writer.write(REFUSED)
        await house.ready()
        house.publish("b1")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (house.outbox.state, house.outbox.waiting, house.outbox.missed) == (OutboxState.READY, 4, 1)

    @pytest.mark.parametrize(
        "answer", [b"SMTP ready\r\n", b"HTTP/1.1 101 x\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"]
    )
    async def test_an_unreadable_answer_ends_the_connection(self, house: House, answer: bytes) -> None:
        house.publish("a1")
        _, writer = await house.handler.request()
        writer.write(answer)
        assert await house.handler.takes() == ["hint a"]
        assert house.handler.connections == 2

    async def test_no_answer_ends_the_connection(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(control_client, "ANSWER_TIME", 0.05)
        house.publish("a1")
        await house.handler.request()
        monkeypatch.setattr(control_client, "ANSWER_TIME", 3600.0)
        assert await house.handler.takes() == ["hint a"]
        assert house.handler.connections == 2

    async def test_an_answer_without_a_request_changes_nothing(self, house: House) -> None:
        house.publish("a1")
        _, writer = await house.handler.request()
        writer.write(TAKEN + REFUSED + TAKEN)
        await house.ready()
        house.publish("a2")
        assert await house.handler.takes() == ["a2"]
        assert house.handler.connections == 1

    async def test_a_closed_client_sends_nothing(self, house: House) -> None:
        house.publish("a1")
        house.client.close()
        await house.away()
        assert house.handler.requests.empty()
