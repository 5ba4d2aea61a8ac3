"""How often a worker reads and writes for what it does most: the system calls that are the most of it.

Counted by the kernel (``/proc/<process>/io``: reads and writes, of sockets too), in a real worker. The figures are of
the best of a few rounds, since a worker also does something by itself a few times a second, however long a round takes.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.e2e.crowd import Crowd, Member, Served, publish, room_for_files
from tests.support.service import descendants
from tests.wire.wirekit import Proxy, Setup

REQUESTS: Final = 300
STREAMS: Final = 400
ITEMS: Final = 5
ROUNDS: Final = 5

MOST: Final = {
    "request": 4.0,
    "stream held": 4.0,
    "stream delivery": 1.0,
}
"""Reads and writes: the client's and the backend's, one each. A delivery is a write."""

ROOM: Final = 0.4
"""What may come on top: tidings to and from the handler, timers."""

ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n%bContent-Length: 6\r\n\r\nhello\n"
HOLD: Final = b"Grip-Hold: stream\r\nGrip-Channel: crowd\r\n"


class Backend(Served):
    """Holds requests for /stream, answers others."""

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            self.transport.write(ANSWER % (HOLD if head.startswith(b"GET /stream ") else b""))


class Stream(Member):
    """One held stream."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        self.tail += data
        if self.state == "asking" and b"hello\n" in self.tail:
            self.come("held")
        else:
            for _ in range(self.tail.count(b"item\n")):
                self.crowd.note("got")
            self.tail = self.tail.rpartition(b"item\n")[2]


def is_worker(pid: int) -> bool:
    """Whether a process is a worker, by its command line."""
    return b"\0worker\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()


def calls(pid: int) -> int:
    """Return how often a process has read and written."""
    lines = pathlib.Path(f"/proc/{pid}/io").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("syscr:", "syscw:")))


@asynccontextmanager
async def a_worker() -> AsyncIterator[tuple[int, int, int]]:
    """The process id of the one worker of a running proxy; its port, and the control port."""
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", 0)
    names = {"backend": f"127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    proxy = await asyncio.to_thread(Proxy, Setup(config={"proxy.workers": 1, "handler.message_rate": None}), names)
    try:
        assert proxy.process is not None
        [worker] = [pid for pid in descendants(proxy.process.pid) if is_worker(pid)]
        yield worker, proxy.ports["http"], proxy.ports["control"]
    finally:
        problems = await asyncio.to_thread(proxy.stop)
        await Backend.close_all(server)
    assert problems == []


async def fewest(pid: int, times: int, errand: Callable[[], Awaitable[None]]) -> float:
    """Return how often the process reads and writes per errand, of which one call does ``times``."""
    best = float("inf")
    for _ in range(ROUNDS):
        before = calls(pid)
        await errand()
        best = min(best, (calls(pid) - before) / times)
    return best


@pytest.mark.timeout(180)
async def test_reads_and_writes_are_as_few_as_can_be(figure: Callable[[str], None]) -> None:
    found: dict[str, float] = {}
    async with a_worker() as (pid, port, control):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def ask() -> None:
            for _ in range(REQUESTS):
                writer.write(b"GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await reader.readuntil(b"hello\n")

        found["request"] = await fewest(pid, REQUESTS, ask)
        writer.close()
        await writer.wait_closed()

        with room_for_files(STREAMS * (ROUNDS + 1) + 500):
            crowds: list[Crowd] = []

            async def hold() -> None:
                crowds.append(Crowd(port, Stream))
                await crowds[-1].join(STREAMS)

            found["stream held"] = await fewest(pid, STREAMS, hold)
            held = len(crowds) * STREAMS
            got = 0

            async def deliver() -> None:
                nonlocal got
                for _ in range(ITEMS):
                    item = b'{"items":[{"channel":"crowd","formats":{"http-stream":{"content":"item\\n"}}}]}'
                    await publish(control, item)
                    got += STREAMS
                    for crowd in crowds:
                        await crowd.until("got", got)

            found["stream delivery"] = await fewest(pid, ITEMS * held, deliver)
            for crowd in crowds:
                await crowd.leave()
    for what, number in found.items():
        figure(f"reads and writes of the worker per {what}: {number:.2f}")
    assert {what: number for what, number in found.items() if number > MOST[what] + ROOM} == {}, (
        f"more than {MOST}: look with strace -c -f -p <worker>"
    )
