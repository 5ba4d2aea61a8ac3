"""Framing: which requests and responses bytes become, and which bytes become none, through a real service.

The tables in tests/e2e/framing have a row for each way in which two readers of HTTP/1.1 could find other messages in
the same bytes: RFC 9112 section by section, and what the literature on request smuggling tries. Each row goes through
whole and split byte by byte. What arrives on either side is read by a strict reader of its own: it takes the framing
off, which the proxy makes anew, and compares everything else byte by byte. Nothing may be left over.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.e2e.framing.reader import Incomplete, first_message, messages
from tests.e2e.framing.requests import REQUESTS
from tests.e2e.framing.responses import RESPONSES
from tests.wire.wirekit import Setup, Site

PATIENCE = 30.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SPLITS = ["whole", "bytes"]


def pieces(data: bytes, split: str) -> list[bytes]:
    return [data] if split == "whole" else [data[n : n + 1] for n in range(len(data))]


class RawBackend:
    """Reads requests strictly and answers each with ``ok``; or with given bytes, after which it closes."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._requests: list[bytes] = []
        self._problems: list[str] = []
        self.answer: list[bytes] | None = None
        self.go = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def take(self) -> tuple[bytes, ...]:
        """Return the whole requests that have come since the last call."""
        with self._lock:
            assert not self._problems
            found, self._requests = self._requests, []
        return tuple(found)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b""
        # The proxy ends a connection whose request turns out to be none.
        with sock, contextlib.suppress(OSError):
            while more := sock.recv(65536):
                data += more
                while data:
                    try:
                        request, data = first_message(data)
                    except Incomplete:
                        break
                    except (AssertionError, ValueError) as error:
                        with self._lock:
                            self._problems.append(f"{error}: {data!r}")
                        return
                    with self._lock:
                        self._requests.append(request)
                    if self.answer is None:
                        sock.sendall(OK)
                        continue
                    assert self.go.wait(PATIENCE)
                    for piece in self.answer:
                        sock.sendall(piece)
                    return


@pytest.fixture(scope="module")
def backend() -> Iterator[RawBackend]:
    made = RawBackend()
    yield made
    made.close()


@pytest.fixture(scope="module")
def site(backend: RawBackend) -> Iterator[Site]:
    # Without GRIP no line of a request depends on the time.
    with Site(Setup(routes=f"*,no_grip 127.0.0.1:{backend.port}\n", config={"proxy.workers": 1})) as running:
        yield running


def exchange(site: Site, sent: list[bytes], finished: threading.Event | None = None) -> bytes:
    """Send pieces, close the sending side, and return everything that comes."""
    with socket.create_connection(("127.0.0.1", site.port), PATIENCE) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in sent:
                sock.sendall(piece)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        if finished is not None:
            finished.set()
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while more := sock.recv(65536):
                got += more
    return got


def test_the_tables_are_large_enough_and_no_row_is_there_twice() -> None:
    assert len(REQUESTS) >= 200
    assert len(RESPONSES) >= 80
    assert len({(where, name) for where, name, *_ in REQUESTS}) == len({row[2] for row in REQUESTS}) == len(REQUESTS)
    assert len({(where, name) for where, name, *_ in RESPONSES}) == len(RESPONSES)


def test_nothing_behind_a_refused_request_reaches_the_backend() -> None:
    refused = [row for row in REQUESTS if row[4] and int(row[4][-1].split(b" ")[1]) >= 400]
    assert len(refused) >= 100
    for where, name, sent, at_backend, _ in refused:
        assert not any(b" /hidden " in request.partition(b"\r\n")[0] for request in at_backend), (where, name)
        assert b"/hidden" in sent or sent.startswith(b"PRI"), (where, name)


@pytest.mark.parametrize("split", SPLITS)
def test_requests(site: Site, backend: RawBackend, split: str) -> None:
    backend.answer = None
    differences = []
    for where, name, sent, at_backend, at_client in REQUESTS:
        got = exchange(site, pieces(sent, split))
        found = backend.take(), tuple(messages(got))
        if found != (at_backend, at_client):
            differences.append((where, name, found))
    assert differences == []


@pytest.mark.parametrize("split", SPLITS)
def test_responses(site: Site, backend: RawBackend, split: str) -> None:
    differences = []
    for where, name, method, said, at_client in RESPONSES:
        backend.answer, backend.go = pieces(said, split), threading.Event()
        got = exchange(site, [f"{method} /1 HTTP/1.1\r\nHost: a\r\n\r\n".encode()], backend.go)
        found = tuple(messages(got, method == "HEAD"))
        if found != at_client:
            differences.append((where, name, found))
        # Bytes behind an answer, or its end, may arrive when its connection is used again: not by the next row.
        backend.answer = None
        exchange(site, [b"GET /between HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"])
    backend.take()
    assert differences == []
