"""``buffers_max``: what waits in a worker for all slow clients together, while each of them is below its own bound."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.wire.wirekit import Setup, Site, hold, response
from tests.wire.wirekit.client import PATIENCE

LIMIT: Final = 8_000_000
SLOW: Final = 24
"""Clients that do not read."""
EACH: Final = 800_000
"""Bytes for each of them: less than ``stream_buffer_max``; together more than twice the limit."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    config = {
        "proxy.workers": 1,
        "proxy.buffers_max": LIMIT,
        "handler.prometheus_port": "127.0.0.1:{port1}",
        "runner.client_maxconn": 500,
    }
    site = Site(Setup(routes="never.example 127.0.0.1:{port2}\n* {backend}\n", config=config))
    yield site
    assert not site.stop()


def metric(site: Site, name: str) -> float:
    with site.connect("port1") as client:
        text = client.ask("GET", "/metrics").body.decode()
    [line] = [line for line in text.splitlines() if line.startswith(f"gripproxy_{name} ")]
    return float(line.split()[-1])


def wait_for(what: Callable[[], bool], message: str) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, message
        time.sleep(0.05)


def unread(site: Site, path: str) -> socket.socket:
    """Return a client that has sent a request, read its head, and reads no more; its kernel takes little."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(PATIENCE)
    sock.connect(("127.0.0.1", site.port))
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    return sock


def test_the_largest_streams_are_cut_and_others_get_everything(site: Site) -> None:
    """Each slow client has a channel of its own, so that nothing of what waits is shared."""
    names = [f"slow-{n}" for n in range(SLOW)]
    for name in (*names, "well"):
        site.backend.on(f"/{name}", hold("stream", name))
    before = metric(site, "buffer_cuts_total"), metric(site, "slow_clients_total")
    with contextlib.ExitStack() as stack, site.publisher.feed() as feed, site.connect() as well:
        clients = []
        for name in names:
            clients.append(stack.enter_context(unread(site, f"/{name}")))
            feed.wait_for(b"\x01" + name.encode())
        well.request("GET", "/well")
        assert well.head().status == 200
        feed.wait_for(b"\x01well")
        part = "x" * (EACH // 20)
        for n in range(20):
            for name in names:
                site.publisher.stream(name, part)
            site.publisher.stream("well", f"{n:04}")
        assert well.data(20 * 4) == b"".join(b"%04d" % n for n in range(20))
        wait_for(lambda: metric(site, "buffer_cuts_total") > before[0], "none is cut")
        wait_for(lambda: metric(site, "buffered_bytes") <= LIMIT, "too much waits")
        # None of them reached its own bound, and not all of them went.
        assert metric(site, "slow_clients_total") == before[1]
        assert metric(site, "buffer_cuts_total") - before[0] < SLOW
        site.proxy.wait_log(
            r"buffers full, client cut off: client=127.0.0.1:\d+ waiting=\d+ total=\d+ buffers_max=8000000"
        )


def test_request_bodies_for_a_backend_that_does_not_read_count_too(site: Site) -> None:
    """What is kept of a body until it is sent, or for a hold that may repeat the request."""
    before = metric(site, "buffer_cuts_total")
    body = b"x" * 90_000
    site.backend.on("/other", response("200 OK", body="well"))
    with contextlib.ExitStack() as stack:
        # It accepts nobody, so its kernel takes a little of each body.
        stack.enter_context(socket.create_server(("127.0.0.1", site.proxy.ports["port2"]), backlog=1000))
        for _ in range(LIMIT // len(body) + 20):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", site.port)))
            sock.sendall(b"POST / HTTP/1.1\r\nHost: never.example\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: metric(site, "buffer_cuts_total") > before, "none is cut")
        assert site.get("/other").body == b"well"
