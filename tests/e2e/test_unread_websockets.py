"""WebSockets whose other side does not read: what they may cost a worker, and how they end."""

from __future__ import annotations

import contextlib
import pathlib
import queue
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from gripproxy.grip.frames import TEXT, FrameParser, serialise
from gripproxy.grip.websocket_handshake import accept_key
from tests.wire.wirekit import Setup, Site, response
from tests.wire.wirekit.client import PATIENCE

MESSAGE: Final = 4 * 1024 * 1024
"""Bytes of a message; it is four thousand of them on the wire."""
MESSAGES: Final = 16
"""Messages of each client: they fit into one read of the proxy's."""
CLIENTS: Final = 8
GROWTH: Final = 64_000_000
"""Bytes by which the worker may grow. The messages together have 512 MiB, one of each client twice has 64 MiB."""
STALL: Final = 4
"""Seconds of ``ws_stall_timeout``."""

HANDSHAKE: Final = (
    b"GET /chat HTTP/1.1\r\nHost: chat.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


class Silent:
    """A backend that answers handshakes and then does nothing by itself."""

    def __init__(self, port: int) -> None:
        self.server = socket.create_server(("127.0.0.1", port))
        self.accepted: queue.Queue[socket.socket] = queue.Queue()
        self.sockets: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.server.accept()
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += sock.recv(4096)
                key = re.search(rb"(?i)\r\nsec-websocket-key: (\S+)", head)
                assert key is not None
                accept = accept_key(key.group(1))
                sock.sendall(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept
                )
                self.sockets.append(sock)
                self.accepted.put(sock)

    def close(self) -> None:
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for sock in self.sockets:
            sock.close()


def started(stall: int) -> Site:
    config = {
        "runner.allow_compression": True,
        "proxy.workers": 1,
        "proxy.ws_stall_timeout": stall,
        "handler.prometheus_port": "127.0.0.1:{port1}",
    }
    return Site(Setup(routes="chat.example 127.0.0.1:{port2}\n* {backend}\n", config=config))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = started(STALL)
    yield site
    assert not site.stop()


@pytest.fixture
def patient() -> Iterator[tuple[Site, Silent]]:
    """One that drops none for being slow, and its backend."""
    site = started(3600)
    silent = Silent(site.proxy.ports["port2"])
    yield site, silent
    silent.close()
    assert not site.stop()


@pytest.fixture
def silent(site: Site) -> Iterator[Silent]:
    backend = Silent(site.proxy.ports["port2"])
    yield backend
    backend.close()


class Chat:
    """A client, and its connection at the backend."""

    def __init__(self, site: Site, silent: Silent) -> None:
        self.client = socket.create_connection(("127.0.0.1", site.port))
        self.client.settimeout(PATIENCE)
        self.client.sendall(HANDSHAKE)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.client.recv(1)
        assert b"permessage-deflate" in head
        self.backend = silent.accepted.get(timeout=PATIENCE)
        self.backend.settimeout(PATIENCE)

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.backend.close()


def deflated(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    payload = (compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]
    return serialise(TEXT, payload, mask=True, rsv1=True)


def bombs() -> bytes:
    return b"".join(deflated(b"%d:" % n + b"x" * MESSAGE) for n in range(MESSAGES))


def worker(site: Site) -> int:
    """The process that has the clients."""
    [pid] = [
        pid
        for pid in site.proxy.children()
        if b"worker" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    ]
    return pid


def memory(pid: int, name: str) -> int:
    """VmRSS (now) or VmHWM (at most so far) of a process, in bytes."""
    found = re.search(rf"{name}:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) * 1024


def metric(site: Site, name: str) -> float:
    with site.connect("port1") as client:
        text = client.ask("GET", "/metrics").body.decode()
    [line] = [line for line in text.splitlines() if line.startswith(f"gripproxy_{name}")]
    return float(line.split()[-1])


def wait_for(what: Callable[[], bool], message: str) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, message
        time.sleep(0.05)


def ended(sock: socket.socket) -> bool:
    """Read a socket to its end; fails if that does not come in time."""
    try:
        while sock.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    return True


def test_compressed_messages_for_backends_that_do_not_read(
    patient: tuple[Site, Silent], figure: Callable[[str], None]
) -> None:
    site, silent = patient
    pid = worker(site)
    wire = bombs()
    site.backend.on("/other", [response("200 OK", body="well")] * 5)
    with contextlib.ExitStack() as stack:
        chats = [stack.enter_context(Chat(site, silent)) for _ in range(CLIENTS)]
        before = memory(pid, "VmRSS")
        for chat in chats:
            chat.client.sendall(wire)
        # Others are served; and when they were, the messages have been read.
        for _ in range(5):
            assert site.get("/other").body == b"well"
        # What a backend takes in the end is all there, in order.
        for chat in chats[:2]:
            parser = FrameParser(True, 2 * MESSAGE)
            got, number = b"", 0
            while number < MESSAGES:
                for frame in parser.feed(chat.backend.recv(1 << 18)):
                    got += frame.payload
                    if frame.fin:
                        assert got == b"%d:" % number + b"x" * MESSAGE
                        got, number = b"", number + 1
        grown = memory(pid, "VmHWM") - before
        figure(f"{CLIENTS} WebSockets with {CLIENTS * MESSAGES * MESSAGE >> 20} MiB in {CLIENTS * len(wire) >> 10} KiB "
               f"for backends that do not read: the worker grew by {grown / 1e6:.1f} MB")  # fmt: skip
        assert grown < GROWTH


@pytest.mark.parametrize("leaves", ["end", "reset"])
def test_a_client_that_leaves_while_it_is_not_read_is_noticed(site: Site, silent: Silent, leaves: str) -> None:
    with Chat(site, silent) as chat:
        chat.client.sendall(bombs())
        wait_for(lambda: metric(site, "buffered_bytes") > 0, "the proxy reads on")
        if leaves == "reset":
            chat.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        before = metric(site, 'websockets_stalled_total{side="backend"}')
        chat.client.close()
        # Not by the backend's reading, which would make the proxy read on.
        wait_for(lambda: metric(site, 'connections_open{kind="websocket"}') == 0, "the client is not noticed")
        assert ended(chat.backend)
        assert metric(site, 'websockets_stalled_total{side="backend"}') == before


def test_a_backend_that_takes_nothing_is_dropped(site: Site, silent: Silent) -> None:
    before = metric(site, 'websockets_stalled_total{side="backend"}')
    with Chat(site, silent) as chat:
        begun = time.monotonic()
        chat.client.sendall(bombs())
        assert ended(chat.client)
        assert time.monotonic() - begun >= STALL
        wait_for(lambda: metric(site, 'websockets_stalled_total{side="backend"}') > before, "it is not counted")
    assert "side=backend" in site.proxy.wait_log("WebSocket stalled, dropped: .* side=backend .*see ws_stall_timeout")


def test_a_client_that_takes_nothing_is_dropped(site: Site, silent: Silent) -> None:
    before = metric(site, 'websockets_stalled_total{side="client"}')
    with Chat(site, silent) as chat:
        chat.backend.settimeout(0.2)
        begun = time.monotonic()
        # Incompressible, and as much as goes.
        noise = serialise(TEXT, bytes(range(32, 127)) * 700)
        with contextlib.suppress(ConnectionError):
            while True:
                with contextlib.suppress(TimeoutError):
                    chat.backend.sendall(noise)
                assert time.monotonic() - begun < PATIENCE + 60
        assert time.monotonic() - begun >= STALL
        wait_for(lambda: metric(site, 'websockets_stalled_total{side="client"}') > before, "it is not counted")


def test_one_that_reads_slowly_is_not_dropped(site: Site, silent: Silent) -> None:
    """A byte now and then is enough, however much waits."""
    with Chat(site, silent) as chat:
        chat.client.sendall(bombs())
        chat.backend.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        begun = time.monotonic()
        while time.monotonic() - begun < 3 * STALL:
            assert chat.backend.recv(200_000)
            time.sleep(0.2)
        assert metric(site, 'connections_open{kind="websocket"}') == 1
