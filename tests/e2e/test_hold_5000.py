"""5,000 streams held at once: one publish reaches every one, and what a held stream costs in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.e2e.crowd import Crowd, Member, Served, pss_kb, publish, room_for_files
from tests.support.service import descendants
from tests.wire.wirekit import Proxy, Setup

STREAMS = 5_000
MAX_KB_PER_STREAM = 2.5
# Held before the first measurement, and kept, so that neither one-off costs nor reused memory count.
WARM_UP = 500
HOLD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n"
    b"Grip-Hold: stream\r\nGrip-Channel: crowd\r\n\r\nwelcome\n"
)
ITEM = b'{"items":[{"channel":"crowd","formats":{"http-stream":{"content":"hello everyone\\n"}}}]}'


class Backend(Served):
    """Answers every request (which has no body) with the same hold."""

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            _, _, self.received = self.received.partition(b"\r\n\r\n")
            self.transport.write(HOLD)


class Stream(Member):
    """One held stream."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-400:]
        if self.state == "asking" and b"welcome\n" in self.tail:
            self.come("held")
        elif self.state == "held" and b"hello everyone\n" in self.tail:
            self.come("got")
        elif self.state == "got":
            self.crowd.note("got more")


@pytest.mark.timeout(300)
async def test_5000_streams(figure: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Backend, "127.0.0.1", 0)
    names = {"backend": f"127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    config = {"runner.client_maxconn": 50_000, "handler.message_rate": None, "handler.message_hwm": None}
    proxy = await asyncio.to_thread(Proxy, Setup(config=config), names)
    try:
        with room_for_files(STREAMS + WARM_UP + 500):
            assert proxy.process is not None
            pid, port = proxy.process.pid, proxy.ports["http"]

            warm_up = Crowd(port, Stream)
            await warm_up.join(WARM_UP)
            await publish(proxy.ports["control"], ITEM)
            await warm_up.until("got", WARM_UP)

            before = pss_kb(pid)
            crowd = Crowd(port, Stream)
            begun = loop.time()
            await crowd.join(STREAMS)
            opened = loop.time() - begun
            kb = (pss_kb(pid) - before) / STREAMS
            figure(f"{STREAMS} streams held: {kb:.2f} KB of memory each (PSS of {len(descendants(pid))} processes),")
            figure(f"  held after {opened:.1f} s (client and backend in one Python process on the same machine)")

            begun = loop.time()
            await publish(proxy.ports["control"], ITEM)
            await crowd.until("got", STREAMS)
            figure(f"  one item to all of them: {(loop.time() - begun) * 1000:.0f} ms")
            assert crowd.counts == {"held": STREAMS, "got": STREAMS, "got more": 0, "lost": 0}

            await crowd.leave()
            await warm_up.leave()
            assert kb < MAX_KB_PER_STREAM
    finally:
        problems = await asyncio.to_thread(proxy.stop)
        await Backend.close_all(server)
    assert problems == []
