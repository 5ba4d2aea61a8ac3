"""A bug in the worker that one client meets costs that client its connection, and nobody else anything.

The bug is put into the worker from outside: a module that Python imports at its start makes one method fail.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.e2e.crowd import Crowd, Member, Served, publish
from tests.wire.wirekit import Proxy, Setup

CLIENTS = 30

BUG = """
from gripproxy.sessions.stream import StreamHold

deliver = StreamHold.deliver


def failing(self, subscription, item):
    if self.meta:
        raise LookupError("put in by the test")
    return deliver(self, subscription, item)


StreamHold.deliver = failing
"""

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n%bContent-Length: 6\r\n\r\nhello\n"
HOLD = b"Grip-Hold: stream\r\nGrip-Channel: crowd; filter=skip-users\r\n"
MET = HOLD + b'Grip-Set-Meta: user="unlucky"\r\n'


class Backend(Served):
    """Holds requests, some with meta."""

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            self.transport.write(ANSWER % (MET if head.startswith(b"GET /unlucky ") else HOLD))


class Stream(Member):
    """One held stream."""

    path = b"stream"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % self.path)

    def data_received(self, data: bytes) -> None:
        self.tail += data
        if self.state == "asking" and b"hello\n" in self.tail:
            self.come("held")
        else:
            for _ in range(self.tail.count(b"item\n")):
                self.crowd.note("got")
            self.tail = self.tail.rpartition(b"item\n")[2]


class Unlucky(Stream):
    """One that meets the bug."""

    path = b"unlucky"


@asynccontextmanager
async def service() -> AsyncIterator[Proxy]:
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", 0)
    names = {"backend": f"127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    setup = Setup(
        config={"proxy.workers": 1, "handler.message_rate": None},
        files={"bug/sitecustomize.py": BUG},
        env={"PYTHONPATH": "{dir}/bug"},
    )
    proxy = await asyncio.to_thread(Proxy, setup, names)
    try:
        yield proxy
    finally:
        problems = await asyncio.to_thread(proxy.stop)
        await Backend.close_all(server)
    assert problems == []


@pytest.mark.timeout(120)
async def test_of_many_clients_one_is_let_go() -> None:
    async with service() as proxy:
        before, unlucky, after = (Crowd(proxy.ports["http"], kind) for kind in (Stream, Unlucky, Stream))
        for crowd, number in ((before, CLIENTS), (unlucky, 1), (after, CLIENTS)):
            await crowd.join(number)
        for number in (1, 2):
            await publish(
                proxy.ports["control"],
                b'{"items":[{"channel":"crowd","formats":{"http-stream":{"content":"item\\n"}}}]}',
            )
            for crowd in (before, after):
                await crowd.until("got", number * CLIENTS)
        await unlucky.until("lost", 1)
        assert unlucky.counts["got"] == 0
        log = proxy.log
        assert len(re.findall(r"a bug in gripproxy: error=LookupError reason=\"put in by the test\"", log)) == 1
        assert "Traceback" in log
        assert "Fatal error" not in log
        assert "handler gone" not in log
        for crowd in (before, after):
            await crowd.leave()
