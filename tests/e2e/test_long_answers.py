"""A link's answer of 100 MB: it goes through a worker, not into it, at the pace of its client."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.test_survival import PATIENCE, Gripproxy

SIZE = 100_000_000
"""More than twice what a kernel keeps between two ends (33 MB at most with its defaults, tcp(7))."""
ROOM = 10_000_000
"""What a worker may need for it, everything included; a tenth of it."""
BUFFER = 200_000
"""Of sockets, in bytes: the kernel's own would take the whole page."""


def page() -> Iterator[bytes]:
    """The page in pieces, no two alike."""
    for number in range(SIZE // 50_000):
        yield (f"{number:09}\n" * 5_000).encode()


class Backend:
    """Answers every request with a short page whose link is a long one; ``sent`` bytes of that have gone so far."""

    def __init__(self) -> None:
        self.sent = 0
        self.may = threading.Event()
        """The long page may be sent."""
        self.may.set()
        self.broken = threading.Event()
        """A connection ended in the middle of the long page."""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.serve, args=(sock,))
            self.threads.append(thread)
            thread.start()

    def serve(self, sock: socket.socket) -> None:
        with sock:
            sock.settimeout(2 * PATIENCE)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
            received = b""
            while data := sock.recv(65536):
                received += data
                while b"\r\n\r\n" in received:
                    head, _, received = received.partition(b"\r\n\r\n")
                    head_of = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n%b\r\n"
                    if b"/long" not in head:
                        sock.sendall(head_of % (6, b"Grip-Link: </long>; rel=next\r\n") + b"short\n")
                        continue
                    self.sent = 0
                    self.may.wait(PATIENCE)
                    try:
                        sock.sendall(head_of % (SIZE, b""))
                        for piece in page():
                            sock.sendall(piece)
                            self.sent += len(piece)
                    except ConnectionError:
                        self.broken.set()
                        return

    def close(self) -> None:
        self.may.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join()


class Memory:
    """The most memory that the workers have had since the beginning."""

    def __init__(self, running: Gripproxy) -> None:
        self.workers = [running.child(f"worker {number}") for number in (1, 2)]
        for pid in self.workers:
            # 5: what is counted as the most begins anew (proc(5)).
            pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
        self.before = self.most()

    def most(self) -> int:
        found = [re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()) for pid in self.workers]
        return sum(int(match[1]) * 1024 for match in found if match)

    @property
    def grown(self) -> int:
        return self.most() - self.before


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    backend = Backend()
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def running(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gripproxy]:
    running = Gripproxy(tmp_path_factory.mktemp("run"), "", (f"--route=* 127.0.0.1:{backend.port}",), "")
    yield running.ready()
    running.close()


class Download:
    """A client's connection with a small buffer; takes the body in, counting and hashing it."""

    def __init__(self, port: int) -> None:
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(("127.0.0.1", port))
        self.sock.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        self.file = self.sock.makefile("rb")
        while self.file.readline().strip():
            pass
        assert self.file.readline() == b"short\n"
        self.size = 0
        self.hash = hashlib.sha256()

    def take(self, size: int) -> None:
        """Take so much more, or what there is."""
        while size > 0 and (data := self.file.read(min(size, 1_000_000))):
            self.size += len(data)
            size -= len(data)
            self.hash.update(data)

    def close(self) -> None:
        self.file.close()
        self.sock.close()


@pytest.fixture
def download(running: Gripproxy) -> Iterator[Callable[[], Download]]:
    made: list[Download] = []

    def make() -> Download:
        made.append(Download(running.port))
        return made[-1]

    yield make
    for one in made:
        one.close()


def whole() -> str:
    """The hash of the whole page."""
    found = hashlib.sha256()
    for piece in page():
        found.update(piece)
    return found.hexdigest()


def test_a_long_page(
    running: Gripproxy, backend: Backend, download: Callable[[], Download], figure: Callable[[str], None]
) -> None:
    memory = Memory(running)
    client = download()
    client.take(SIZE + 1)
    assert (client.size, client.hash.hexdigest()) == (SIZE, whole())
    figure(f"a page of {SIZE / 1e6:.0f} MB behind a link: {memory.grown / 1e6:.1f} MB of memory in the workers")
    assert memory.grown < ROOM


def test_a_client_that_stops_in_the_middle_and_goes_on(
    running: Gripproxy, backend: Backend, download: Callable[[], Download]
) -> None:
    memory = Memory(running)
    client = download()
    client.take(1_000_000)
    # It reads no more. The backend can send until all that lies between is full, and then has to wait.
    deadline = time.monotonic() + PATIENCE
    sent, since = -1, 0.0
    while sent != backend.sent or time.monotonic() < since + 1:
        assert time.monotonic() < deadline, "the backend is not stopped"
        if sent != backend.sent:
            sent, since = backend.sent, time.monotonic()
        time.sleep(0.02)
    assert sent < SIZE / 2
    client.take(SIZE)
    assert (client.size, client.hash.hexdigest()) == (SIZE, whole())
    assert memory.grown < ROOM


def test_a_client_that_leaves_in_the_middle(
    running: Gripproxy, backend: Backend, download: Callable[[], Download]
) -> None:
    client = download()
    client.take(1_000_000)
    client.close()
    # The backend is not read on for nobody.
    assert backend.broken.wait(PATIENCE)
    assert backend.sent < SIZE


def test_a_client_that_does_not_read_slows_no_other_of_the_same_answer(
    running: Gripproxy, backend: Backend, download: Callable[[], Download]
) -> None:
    backend.may.clear()
    pair: dict[str, Download] = {}
    while True:
        slow = download()
        peer = f"127.0.0.1:{slow.sock.getsockname()[1]}"
        held = running.service.wait_for_log(
            rf'\[worker (\d)\] hold: mode="reliable stream" method=GET path=/ .*client={peer} '
        )
        if held[1] in pair:
            break
        pair[held[1]] = slow
    fast = pair[held[1]]
    backend.may.set()
    fast.take(SIZE + 1)
    assert (fast.size, fast.hash.hexdigest()) == (SIZE, whole())
    running.service.wait_for_log(
        rf'slow client cut off: client={peer} reason="\d+ bytes wait for it, at most 1000000 may'
    )
    with contextlib.suppress(ConnectionResetError):
        slow.take(SIZE)
    assert slow.size < SIZE
