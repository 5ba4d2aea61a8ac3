"""Accepting near the limit of open files: real sockets on a real loop, and a count of open files that the test sets."""

from __future__ import annotations

import asyncio
import errno
import os
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator

import pytest

from gripproxy.client.acceptor import Acceptor, files_in_use, open_files_max
from gripproxy.process.listening_sockets import ListeningSocket
from gripproxy.process.log import WARNING
from tests.support.certificates import make_certificate
from tests.support.log_lines import LogLines

PATIENCE = 20.0


class Client(asyncio.Protocol):
    """The worker's side of a client: greets it, with the way by which it came."""

    def __init__(self, house: House, tls: bool) -> None:
        self.house = house
        self.tls = tls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.house.clients.append(self)
        transport.write(b"tls\n" if self.tls else b"hello\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self.house.clients.remove(self)
        if not self.house.clients:
            self.house.empty.set()


class House:
    """A listening socket, who accepts from it, and its clients."""

    def __init__(self, limit: int) -> None:
        self.clients: list[Client] = []
        self.empty = asyncio.Event()
        self.spare = 10_000
        """How many files may still be opened before only the reserve is left; each client takes one."""
        self.wanted = 0
        """How many descriptors requests of the clients wait for."""
        self.limit = limit
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen(100)
        self.accepting = Acceptor(
            asyncio.get_running_loop(),
            lambda tls: Client(self, tls),
            lambda: len(self.clients),
            lambda: self.wanted,
            lambda near: None,
            limit,
            self.in_use,
        )
        self.outside: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def in_use(self) -> int:
        pending = len(self.accepting._tasks)
        return self.limit - self.accepting._reserve - self.spare + len(self.clients) + pending

    async def open(self, tls: bool = False, context: ssl.SSLContext | None = None) -> None:
        listener = ListeningSocket(self.sock, "here", tls, self.sock.getsockname()[1], False)

        def make(port: int) -> ssl.SSLContext:
            assert context is not None
            return context

        await self.accepting.open([listener], make, 10.0)

    async def come(self, context: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = self.sock.getsockname()[1]
        name = "localhost" if context is not None else None
        self.outside.append(await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name))
        return self.outside[-1]

    async def greeted(self, *who: asyncio.StreamReader) -> list[bytes]:
        return [await asyncio.wait_for(reader.readline(), PATIENCE) for reader in who]

    async def close(self) -> None:
        for _, writer in self.outside:
            writer.close()
        for _, writer in self.outside:
            try:
                await writer.wait_closed()
            except OSError:
                pass
        while self.clients:
            self.empty.clear()
            await asyncio.wait_for(self.empty.wait(), PATIENCE)
        tasks = list(self.accepting._tasks)
        self.accepting.end()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def small() -> AsyncIterator[House]:
    house = House(80)
    yield house
    await house.close()


@pytest.fixture
async def large() -> AsyncIterator[House]:
    house = House(40_000)
    yield house
    await house.close()


@pytest.fixture(autouse=True)
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return LogLines(monkeypatch, WARNING).lines


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(PATIENCE):
        for _ in range(100_000):
            if condition():
                return
            await asyncio.sleep(0.001)


async def test_with_room_the_loops_server_accepts(large: House) -> None:
    await large.open()
    reader, _ = await large.come()
    assert await large.greeted(reader) == [b"hello\n"]
    assert not large.accepting.careful


async def test_a_small_limit_is_always_near(small: House) -> None:
    await small.open()
    readers = [(await small.come())[0] for _ in range(5)]
    assert await small.greeted(*readers) == [b"hello\n"] * 5
    assert small.accepting.careful


async def test_accepting_pauses_at_the_reserve_and_goes_on_when_clients_have_gone(
    small: House, lines: list[str]
) -> None:
    small.spare = 3
    await small.open()
    came = [await small.come() for _ in range(5)]
    assert await small.greeted(*(reader for reader, _ in came[:3])) == [b"hello\n"] * 3
    await until(lambda: small.accepting.paused)
    assert len(small.clients) == 3
    assert small.accepting.pauses == 1
    (line,) = lines
    assert line.startswith("accepting pauses: files_max=80 kept_for_backends=10 clients=3 pauses=1")
    came[0][1].close()
    came[1][1].close()
    assert await small.greeted(*(reader for reader, _ in came[3:])) == [b"hello\n"] * 2
    assert len(lines) <= 2


async def test_descriptors_that_requests_wait_for_are_not_given_to_new_clients(small: House) -> None:
    small.spare = 4
    small.wanted = 3
    await small.open()
    came = [await small.come() for _ in range(3)]
    assert await small.greeted(came[0][0]) == [b"hello\n"]
    await until(lambda: small.accepting.paused)
    assert len(small.clients) == 1
    # They have their connections, which are in use now, and one of them is gone.
    small.wanted, small.spare = 0, 2
    assert await small.greeted(came[1][0]) == [b"hello\n"]
    assert len(small.clients) == 2


async def test_pauses_are_told_once_a_second_at_most(small: House, lines: list[str]) -> None:
    small.spare = 0
    await small.open()
    await small.come()
    await until(lambda: small.accepting.paused)
    for _ in range(5):
        small.accepting._pause()
    assert small.accepting.pauses == 6
    assert len(lines) == 1


async def test_near_the_limit_the_loops_server_is_given_up_and_taken_again(large: House) -> None:
    await large.open()
    first, _ = await large.come()
    assert await large.greeted(first) == [b"hello\n"]
    large.spare = 2
    large.accepting.look()
    assert large.accepting.careful
    second, third = (await large.come())[0], (await large.come())[0]
    assert await large.greeted(second) == [b"hello\n"]
    await until(lambda: large.accepting.paused)
    large.spare = 10_000
    assert await large.greeted(third) == [b"hello\n"]
    large.accepting.look()
    assert large.accepting.careful, "as many clients as before: it would soon be near again"
    for _, each in large.outside:
        each.close()
    await until(lambda: not large.clients)
    large.accepting.look()
    assert not large.accepting.careful
    await until(lambda: large.accepting._doors[0].servers)
    again, _ = await large.come()
    assert await large.greeted(again) == [b"hello\n"]
    assert not large.accepting._tasks


async def test_without_a_server_accepting_goes_on_by_itself(large: House, monkeypatch: pytest.MonkeyPatch) -> None:
    large.spare = 0
    await large.open()
    large.spare = 10_000

    async def refuse(*args: object, **names: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(large.accepting._loop, "create_server", refuse)
    large.accepting.look()
    await until(lambda: large.accepting.careful)
    reader, _ = await large.come()
    assert await large.greeted(reader) == [b"hello\n"]


async def test_many_clients_are_a_reason_to_look(large: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large.accepting, "_clients", lambda: 10_000)
    await large.open()
    large.spare = 5
    reader, _ = await large.come()
    await large.greeted(reader)
    await until(lambda: large.accepting.careful)


async def test_tls_near_the_limit(small: House, tmp_path: pathlib.Path) -> None:
    make_certificate(tmp_path, "here", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "here.crt", tmp_path / "here.key")
    await small.open(True, context)
    # One that does not speak TLS is nobody's trouble.
    reader, writer = await small.come()
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert b"hello" not in await asyncio.wait_for(reader.read(), PATIENCE)
    good = ssl.create_default_context(cafile=str(tmp_path / "here.crt"))
    secure, _ = await small.come(good)
    assert await small.greeted(secure) == [b"tls\n"]


async def test_closing_leaves_the_queue_to_others(small: House) -> None:
    shared = small.sock.dup()
    await small.open()
    small.accepting.close()
    small.accepting.look()
    with shared:
        reader, writer = await asyncio.open_connection(*shared.getsockname())
        shared.setblocking(True)
        accepted, _ = shared.accept()
        with accepted:
            accepted.sendall(b"mine\n")
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b"mine\n"
        writer.close()
        await writer.wait_closed()


async def test_an_error_of_the_system_is_a_pause(small: House, lines: list[str]) -> None:
    await small.open()
    door = small.accepting._doors[0]

    class Broken:
        def accept(self) -> None:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

        fileno = small.sock.fileno
        close = small.sock.close

    door.listener.sock = Broken()  # type: ignore[assignment]
    small.accepting._take(door)
    assert small.accepting.paused
    assert lines[0] == 'clients not accepted: reason="Too many open files in system"'


class TestFiles:
    def test_in_use(self) -> None:
        one = files_in_use()
        with open("/dev/null") as file:
            assert file.fileno() == one
            assert files_in_use() > one
        assert files_in_use() == one

    def test_none_is_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(descriptor: int) -> int:
            raise OSError(errno.EMFILE, "")

        monkeypatch.setattr(os, "dup", full)
        assert files_in_use() == open_files_max() > 0

    def test_no_standard_input(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def bad(descriptor: int) -> int:
            raise OSError(errno.EBADF, "")

        monkeypatch.setattr(os, "dup", bad)
        assert files_in_use() == 0
