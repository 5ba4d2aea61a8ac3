"""5,000 WebSockets over HTTP held at once: one publish reaches every one, and what a held WebSocket costs in memory."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from tests.e2e.crowd import Crowd, Member, Served, pss_kb, publish, room_for_files
from tests.support.service import descendants
from tests.wire.wirekit import Proxy, Setup
from tests.wire.wirekit.events import event, opened, subscribe
from tests.wire.wirekit.events import events as answered
from tests.wire.wirekit.frames import TEXT, frame
from tests.wire.wirekit.websocket import handshake

SOCKETS = 5_000
MAX_KB_PER_SOCKET = 3.0
# Held before the first measurement, and kept, so that neither one-off costs nor reused memory count.
WARM_UP = 500
OPEN = event("OPEN")
OPENED = opened(subscribe("crowd"), headers=("Sec-WebSocket-Extensions: grip",))
ECHOED = answered(event("TEXT", b"m:to you too"))
IGNORED = answered()
ITEM = b'{"items":[{"channel":"crowd","formats":{"ws-message":{"content":"hello everyone"}}}]}'

HANDSHAKE = "\r\n".join(["GET /chat HTTP/1.1", "Host: localhost", *handshake(), "", ""]).encode()
HELLO = frame(TEXT, b"hello")
TO_YOU_TOO = frame(TEXT, b"to you too", mask=False)
EVERYONE = frame(TEXT, b"hello everyone", mask=False)


class Backend(Served):
    """Opens each WebSocket with a subscription, and answers each text with one."""

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, rest = self.received.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\nContent-Length: (\d+)", head)
            assert length, head
            body = rest[: int(length[1])]
            if len(body) < int(length[1]):
                return
            self.received = rest[len(body) :]
            self.transport.write(OPENED if body == OPEN else ECHOED if body.startswith(b"TEXT ") else IGNORED)


class Chatter(Member):
    """One WebSocket. It counts as held when the backend has answered its first message: it has been used."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(HANDSHAKE)

    def data_received(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-400:]
        if self.state == "asking" and b"\r\n\r\n" in self.tail:
            assert self.tail.startswith(b"HTTP/1.1 101 "), self.tail
            self.state, self.tail = "talking", self.tail.partition(b"\r\n\r\n")[2]
            self.transport.write(HELLO)
        elif self.state == "talking" and self.tail == TO_YOU_TOO:
            self.come("held")
        elif self.state == "held" and self.tail == EVERYONE:
            self.come("got")
        elif self.state == "got":
            self.crowd.note("got more")


@pytest.mark.timeout(300)
async def test_5000_websockets(figure: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Backend, "127.0.0.1", 0)
    names = {"backend": f"127.0.0.1:{server.sockets[0].getsockname()[1]}"}
    config = {"runner.client_maxconn": 50_000, "handler.message_rate": None, "handler.message_hwm": None}
    setup = Setup(routes="* {backend},over_http\n", config=config)
    proxy = await asyncio.to_thread(Proxy, setup, names)
    try:
        with room_for_files(SOCKETS + WARM_UP + 1_000):
            assert proxy.process is not None
            pid, port = proxy.process.pid, proxy.ports["http"]

            warm_up = Crowd(port, Chatter)
            await warm_up.join(WARM_UP)
            await publish(proxy.ports["control"], ITEM)
            await warm_up.until("got", WARM_UP)

            before = pss_kb(pid)
            crowd = Crowd(port, Chatter)
            begun = loop.time()
            await crowd.join(SOCKETS)
            took = loop.time() - begun
            kb = (pss_kb(pid) - before) / SOCKETS
            processes = len(descendants(pid))
            figure(f"{SOCKETS} WebSockets over HTTP held: {kb:.2f} KB of memory each (PSS of {processes} processes),")
            figure(f"  opened, and one message answered, after {took:.1f} s (client and backend in one Python process)")

            begun = loop.time()
            await publish(proxy.ports["control"], ITEM)
            await crowd.until("got", SOCKETS)
            figure(f"  one item to all of them: {(loop.time() - begun) * 1000:.0f} ms")
            assert crowd.counts == {"held": SOCKETS, "got": SOCKETS, "got more": 0, "lost": 0}

            await crowd.leave()
            await warm_up.leave()
            assert kb < MAX_KB_PER_SOCKET
    finally:
        problems = await asyncio.to_thread(proxy.stop)
        await Backend.close_all(server)
    assert problems == []
