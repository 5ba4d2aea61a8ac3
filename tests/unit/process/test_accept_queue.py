"""Connections that wait behind an accepted one are accepted in the same turn of the loop, up to a bound."""

from __future__ import annotations

import asyncio
import pathlib
import socket
import ssl
from collections.abc import Iterator

import pytest

from gripproxy.process.accept_queue import TURN, AcceptQueue, accept_waiting
from tests.support.certificates import make_certificate

PATIENCE = 20.0


class Greeting(asyncio.Protocol):
    """Server's side of a connection: sends a line."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello\n")
        transport.close()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(200)
        sock.setblocking(False)
        yield sock


@pytest.fixture
def clients(listening: socket.socket) -> Iterator[list[socket.socket]]:
    """Return a list for clients, which are closed afterwards."""
    clients: list[socket.socket] = []
    yield clients
    for client in clients:
        client.close()


def connect(listening: socket.socket, clients: list[socket.socket], count: int) -> None:
    for _ in range(count):
        client = socket.create_connection(listening.getsockname(), PATIENCE)
        clients.append(client)


def test_waiting_connections_are_accepted_up_to_the_bound(
    listening: socket.socket, clients: list[socket.socket]
) -> None:
    connect(listening, clients, 5)
    for expected in (3, 2, 0):
        accepted = list(accept_waiting(listening, 3))
        assert [sock.getblocking() for sock in accepted] == [False] * expected
        for sock in accepted:
            sock.close()


async def test_one_turn_accepts_the_connections_behind_the_first(
    listening: socket.socket, clients: list[socket.socket]
) -> None:
    loop = asyncio.get_running_loop()
    queue = AcceptQueue(loop, listening, Greeting)
    connect(listening, clients, TURN + 10)
    assert isinstance(queue.first(), Greeting)
    # The queue of the kernel has what one turn leaves.
    left = list(accept_waiting(listening))
    assert len(left) == 10
    for sock in left:
        sock.close()
    async with asyncio.timeout(PATIENCE):
        for client in clients[:TURN]:
            client.setblocking(False)
            assert await loop.sock_recv(client, 100) == b"hello\n"
    queue.close()


async def test_tls_connections_are_served(
    listening: socket.socket, clients: list[socket.socket], tmp_path: pathlib.Path
) -> None:
    make_certificate(tmp_path, "server", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    queue = AcceptQueue(asyncio.get_running_loop(), listening, Greeting, context, PATIENCE)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
    reading = asyncio.open_connection(*listening.getsockname(), ssl=trusting, server_hostname="localhost")
    task = asyncio.create_task(reading)
    connect(listening, clients, 1)  # a client that never begins its handshake
    while not task.done():
        queue.first()
        await asyncio.sleep(0.001)
    reader, writer = await task
    assert await reader.readline() == b"hello\n"
    writer.close()
    queue.close()


async def test_a_closed_queue_accepts_nothing(listening: socket.socket, clients: list[socket.socket]) -> None:
    queue = AcceptQueue(asyncio.get_running_loop(), listening, Greeting)
    queue.close()
    connect(listening, clients, 2)
    queue.first()
    left = list(accept_waiting(listening))
    assert len(left) == 2
    for sock in left:
        sock.close()
