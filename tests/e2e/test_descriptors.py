"""A service that runs out of descriptors: clients and connects to backends wait, and no backend is blamed."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from tests.support.ports import free_ports
from tests.support.service import Service, running

FILES: Final = 96
"""Descriptors of each process. A worker has some thirty of its own, and keeps a few more."""
PATIENCE: Final = 60.0


class Backend:
    """Answers each request when told, or at once; counts them."""

    def __init__(self) -> None:
        self.requests = 0
        self.more = asyncio.Event()
        self.answers = asyncio.Event()
        self.server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                self.more.set()
                if b" /held " in head:
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nGrip-Hold: response\r\nGrip-Channel: c\r\nContent-Length: 4\r\n\r\nheld"
                    )
                    continue
                await self.answers.wait()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    async def asked(self, count: int) -> None:
        """Return when there were so many requests."""
        async with asyncio.timeout(PATIENCE):
            while self.requests < count:
                self.more.clear()
                await self.more.wait()


@pytest.fixture
async def backends() -> AsyncIterator[tuple[Backend, Backend]]:
    both = Backend(), Backend()
    for backend in both:
        await backend.start()
    yield both
    for backend in both:
        assert backend.server is not None
        backend.answers.set()
        backend.server.close()


@contextlib.contextmanager
def service(directory: pathlib.Path, backends: tuple[Backend, Backend], timeout: int) -> Iterator[tuple[Service, int]]:
    """The service with few descriptors; yields it and its port."""
    http, control = free_ports(2)
    (directory / "routes").write_text("* " + " ".join(f"127.0.0.1:{backend.port}" for backend in backends) + "\n")
    (directory / "gripproxy.conf").write_text(
        f"[global]\nrundir={directory}\n"
        f"[runner]\nhttp_port=127.0.0.1:{http}\nlog_level=2\n"
        f"[proxy]\nroutesfile=routes\nworkers=1\nconnect_timeout={timeout}\n"
        f"[handler]\npush_in_http_port={control}\n"
    )
    command = [sys.executable, "-m", "gripproxy", f"--config={directory}/gripproxy.conf"]
    with running(["sh", "-c", f'ulimit -n {FILES} && exec "$@"', "sh", *command], http, control) as started:
        yield started, http


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def asks(self, path: str, *, last: bool = True) -> None:
        close = "Connection: close\r\n" if last else ""
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\n{close}\r\n".encode())

    async def answered(self) -> int:
        """Return the status of the answer."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE)
        return int(head.split()[1])

    def close(self) -> None:
        self.writer.close()


async def test_more_requests_than_descriptors_are_all_answered(
    tmp_path: pathlib.Path, backends: tuple[Backend, Backend]
) -> None:
    """Twice as many clients as there are descriptors, each with a request that needs a second one."""
    first, second = backends
    with service(tmp_path, backends, 30) as (started, port):
        held = [await Client.connect(port) for _ in range(10)]
        for client in held:
            client.asks("/held")
        await first.asked(len(held))
        clients = [await Client.connect(port) for _ in range(2 * FILES)]
        for client in clients:
            client.asks("/")
        # All descriptors are in use before the first answer.
        await asyncio.to_thread(started.wait_for_log, "no descriptor free, connects to backends wait: .*LimitNOFILE")
        # Nor are further clients accepted: what is left is for requests that were taken.
        await asyncio.to_thread(started.wait_for_log, "accepting pauses")
        first.answers.set()
        statuses = [await client.answered() for client in clients]
        assert statuses == [200] * len(clients)
        assert first.requests == len(held) + len(clients)
        assert second.requests == 0
        for client in (*held, *clients):
            client.close()
        assert " status=502 " not in started.log


async def test_a_request_that_gets_none_in_time_is_told_that_it_is_not_the_backend(
    tmp_path: pathlib.Path, backends: tuple[Backend, Backend]
) -> None:
    first, second = backends
    with service(tmp_path, backends, 1) as (started, port):
        clients = [await Client.connect(port) for _ in range(FILES)]
        for client in clients:
            client.asks("/", last=False)
        first_answer = [asyncio.create_task(client.answered()) for client in clients]
        done, _ = await asyncio.wait(first_answer, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result() for task in done} == {503}
        # Some have their connection, and are answered when the backend is there again; none asked the other target.
        first.answers.set()
        assert second.requests == 0
        for task in first_answer:
            task.cancel()
        await asyncio.gather(*first_answer, return_exceptions=True)
        for client in clients:
            client.close()
        assert "no-descriptors" in started.log
