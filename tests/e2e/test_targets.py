"""Targets on Unix sockets, and targets that may be away (docs/routes.md "Targets")."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.ports import free_ports
from tests.wire.wirekit import CLOSE, Backend, Script, Setup, Site, hold
from tests.wire.wirekit.events import GRIP, event, events, opened
from tests.wire.wirekit.holding import stream
from tests.wire.wirekit.websocket import Accept, websocket

ROUTES = """
* {unix}
over.test {dead} {unix}
back.test unix:{dir}/none {backend}
events.test {unix},over_http
reset.test {backend},away=503
both.test {dead},away=503,away_wait=0 {backend}
soon.test 127.0.0.1:%d,away=503,away_wait=20
small.test unix:{dir}/small
never.test unix:{dir}/none,away=503,away_wait=1
"""


@pytest.fixture(scope="module")
def port() -> int:
    """Return a port at which no server listens yet."""
    [port] = free_ports(1)
    return port


@pytest.fixture(scope="module")
def site(port: int) -> Iterator[Site]:
    site = Site(Setup(routes=ROUTES % port, config={"proxy.workers": 1}))
    yield site
    assert not site.stop()


class TestUnixSockets:
    def test_request(self, site: Site) -> None:
        answer = site.ask("POST", "/request", "Host: a.test", body="the body")
        assert answer.body == b"unix\n"
        got = site.unix.request("/request")
        assert got.body == b"the body"
        assert got["Host"] == "a.test"

    def test_failover_in_both_directions(self, site: Site) -> None:
        assert site.get("/over", "Host: over.test").body == b"unix\n"
        assert site.get("/back", "Host: back.test").body == b"backend\n"

    def test_connections_are_reused(self, site: Site) -> None:
        before = site.unix.connections
        for _ in range(5):
            assert site.get("/again").status == 200
        assert site.unix.connections - before <= 1

    def test_held_stream_and_its_link(self, site: Site) -> None:
        link = "Grip-Link: </next>; rel=next; timeout=100"
        site.unix.on("/held", hold("stream", "held; prev-id=1", link))
        site.unix.on("/next", hold("stream", "held; prev-id=2", link, body="two\n"))
        with stream(site, "/held") as client:
            site.publisher.publish({"channel": "held", "formats": {"http-stream": {"action": "hint"}}})
            assert client.data_until(b"two\n") == b"two\n"
        assert site.unix.request("/next")["Grip-Last"] == "held; last-id=1"

    def test_websocket(self, site: Site) -> None:
        accept = Accept()
        site.unix.on("/direct", accept)
        with websocket(site, "/direct") as client, accept.socket() as backend:
            backend.text("from the backend")
            assert client.says("from the backend")
            client.text("from the client")
            assert backend.says("from the client")

    def test_websocket_over_http(self, site: Site) -> None:
        site.unix.on("/events", [opened(event("TEXT", "m:hello"), headers=(GRIP,)), events(event("TEXT", "m:again"))])
        with websocket(site, "/events", "Host: events.test") as client:
            assert client.says("hello")
            client.text("say it again")
            assert client.says("again")


@contextlib.contextmanager
def small_backend(path: pathlib.Path) -> Iterator[None]:
    """Serve one connection after the other on a Unix socket whose queue takes one of them."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as lines:
                    while lines.readline() not in (b"\r\n", b""):
                        pass
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsmall\n")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


class TestFullSockets:
    def test_a_burst_beyond_the_queue_of_the_socket_is_answered(self, site: Site) -> None:
        with small_backend(site.proxy.directory / "small"), ThreadPoolExecutor(50) as threads:
            answers = list(threads.map(lambda _: site.get("/", "Host: small.test").body, range(300)))
        assert answers == [b"small\n"] * 300


class TestAway:
    def test_a_backend_that_returns_is_waited_for(self, site: Site, port: int) -> None:
        backends: list[Backend] = []
        timer = threading.Timer(0.5, lambda: backends.append(Backend("soon", port=port)))
        timer.start()
        try:
            answer = site.get("/", "Host: soon.test")
        finally:
            timer.join()
            for backend in backends:
                backend.stop()
        assert answer.body == b"soon\n"

    def test_one_that_stays_away_is_a_503_with_retry_after(self, site: Site) -> None:
        begun = time.monotonic()
        answer = site.get("/", "Host: never.test")
        assert time.monotonic() - begun >= 1
        assert answer.line == "503 Service Unavailable"
        assert answer["Retry-After"] == "3"
        # It has been away for long: the next request does not wait, nor does one by a route that never waits.
        assert site.get("/", "Host: never.test").status == 503
        assert site.get("/", "Host: back.test").body == b"backend\n"

    def test_an_answer_that_does_not_come_is_a_503(self, site: Site) -> None:
        site.backend.on("/reset", Script(CLOSE))
        answer = site.ask("POST", "/reset", "Host: reset.test", body="x")
        assert (answer.status, answer["Retry-After"]) == (503, "3")

    def test_the_next_target_is_used_first(self, site: Site) -> None:
        assert site.get("/both", "Host: both.test").body == b"backend\n"
