"""The rolling restart of the whole service, with clients that notice everything (docs/processes.md)."""

from __future__ import annotations

import http.client
import http.server
import pathlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.e2e.test_survival import PATIENCE, Gripproxy, wait_gone
from tests.support.service import ROOT

LONG = 3 * PATIENCE
"""Seconds for what takes several steps: a whole reload, and clients that wait for its end."""


class Backend:
    """Echoes, holds long-polls and streams, and has a ledger: numbered lines, all of them in order, from any one on."""

    def __init__(self) -> None:
        self.lines = 0
        backend = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = urlsplit(self.path)
                if path.path != "/ledger":
                    mode = "response" if path.path == "/poll" else "stream"
                    self.answer(b"nothing\n", ("Grip-Hold", mode), ("Grip-Channel", mode))
                    return
                asked = (self.headers.get("Grip-Last") or "").rpartition("last-id=")[2]
                after = int(asked or parse_qs(path.query).get("after", ["0"])[0])
                now = backend.lines
                self.answer(
                    b"".join(b"%d\n" % number for number in range(after + 1, now + 1)),
                    ("Grip-Hold", "stream"),
                    ("Grip-Channel", f"ledger; prev-id={now}"),
                    ("Grip-Link", "</ledger>; rel=next; timeout=100"),
                )

            def do_POST(self) -> None:
                self.answer(self.rfile.read(int(self.headers["Content-Length"])))

            def answer(self, body: bytes, *headers: tuple[str, str]) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 100

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self.server.server_address[1])
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Unix(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=LONG)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LONG)
        self.sock.connect(self._path)


class Life:
    """What goes on around a service while it is restarted: threads, and what went wrong in them."""

    def __init__(self, running: Gripproxy, backend: Backend, unix: str) -> None:
        self.running = running
        self.backend = backend
        self.unix = unix
        self.over = threading.Event()
        self.errors: list[str] = []
        self.requests = 0
        self.published = 0
        self.times: list[float] = []
        """When each number had been published."""
        self.threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.errors.append(f"{work}: {error!r}")

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()
        return self.threads[-1]

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(LONG)
            assert not thread.is_alive()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.running.port, timeout=LONG)

    # Clients

    def ask(self, connect: Callable[[], http.client.HTTPConnection], keep: bool) -> None:
        """Post without pause, on connections as long as they last or on one for each request."""
        connection = connect()
        while not self.over.is_set():
            body = b"%d" % self.requests
            connection.request("POST", "/echo", body)
            response = connection.getresponse()
            assert (response.status, response.read()) == (200, body)
            self.requests += 1
            self.over.wait(0.002)
            if not keep or response.will_close:
                connection.close()
                connection = connect()
        connection.close()

    def wait(self) -> None:
        """Wait for the answer to a long-poll."""
        connection = self.connection()
        connection.request("GET", "/poll")
        response = connection.getresponse()
        assert (response.status, response.read(), response.will_close) == (200, b"nothing\n", True)
        connection.close()

    def listen(self, heard: list[int]) -> None:
        """Listen to the stream until it ends, properly."""
        connection = self.connection()
        connection.request("GET", "/stream")
        response = connection.getresponse()
        assert response.readline() == b"nothing\n"
        heard.append(0)
        while line := response.readline():
            heard.append(int(line))
        connection.close()

    def follow(self, heard: list[int]) -> None:
        """Read the ledger, and go on behind the last line whenever the stream ends."""
        while not self.over.is_set() or heard[-1] < self.backend.lines:
            connection = self.connection()
            connection.request("GET", f"/ledger?after={heard[-1]}")
            response = connection.getresponse()
            while line := response.readline():
                heard.append(int(line))
            connection.close()

    # Publishers

    def publish(self) -> None:
        """Publish numbers to the stream, and lines of the ledger, without pause."""
        while not self.over.is_set():
            number = self.published + 1
            self.item({"channel": "stream", "formats": {"http-stream": {"content": f"{number}\n"}}})
            self.published = number
            self.times.append(time.monotonic())
            # Only now does the backend know the line, so that the ledger has no more lines than were published.
            self.backend.lines = number
            item = {"channel": "ledger", "id": str(number), "prev-id": str(number - 1)}
            self.item({**item, "formats": {"http-stream": {"content": f"{number}\n"}}})
            self.over.wait(0.002)

    def item(self, item: dict[str, object]) -> None:
        """Publish; while there is no handler, try on."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.running.publish_item(item)
                return
            except (ConnectionRefusedError, ConnectionResetError):  # the latter waited in the old handler's queue
                assert time.monotonic() < deadline
                self.over.wait(0.01)


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = Backend()
    yield backend
    backend.close()


@pytest.fixture
def start(backend: Backend, tmp_path: pathlib.Path) -> Iterator[Callable[[str], Life]]:
    started: list[Life] = []

    def start(lines: str) -> Life:
        unix = str(tmp_path / "clients")
        routes = (f"--route=* 127.0.0.1:{backend.port}", "--loglevel=2")
        running = Gripproxy(tmp_path, f"local_ports={unix}\n{lines}", routes, "")
        started.append(Life(running, backend, unix))
        running.ready()
        return started[-1]

    yield start
    for life in started:
        life.over.set()
        life.running.close()
        life.end()


def reload(running: Gripproxy, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gripproxy", "reload", f"--config={running.config}", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONG, check=False)


def until(condition: Callable[[], object], life: Life) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert not life.errors, life.errors
        assert time.monotonic() < deadline
        time.sleep(0.01)


def workers(running: Gripproxy, nth: int = 1) -> list[int]:
    return [running.child("worker 1", nth), running.child("worker 2", nth)]


def test_nobody_notices(start: Callable[[str], Life]) -> None:
    life = start("reload_hold_time=1\nreload_spread=0.5")
    running = life.running
    streams: list[list[int]] = [[] for _ in range(6)]
    followers: list[list[int]] = [[0] for _ in range(4)]
    for heard in streams:
        life.start(lambda heard=heard: life.listen(heard))  # type: ignore[misc]
    polls = [life.start(life.wait) for _ in range(6)]
    until(lambda: all(streams), life)
    running.service.wait_for_log(r"(?s)(hold: mode=response .*?channels=response.*?){6}")
    for heard in followers:
        life.start(lambda heard=heard: life.follow(heard))  # type: ignore[misc]
    life.start(lambda: life.ask(life.connection, keep=True))
    life.start(lambda: life.ask(life.connection, keep=False))
    life.start(lambda: life.ask(lambda: Unix(life.unix), keep=False))
    publisher = life.start(life.publish)
    until(lambda: life.requests > 30 and life.published > 10, life)

    began = time.monotonic()
    done = reload(running)
    assert done.returncode == 0, done.stderr
    wait_gone(*workers(running))
    # And once more, under those who have come to the new ones.
    assert reload(running).returncode == 0
    requests, published = life.requests, life.published
    until(lambda: life.requests > requests + 30 and life.published > published + 10, life)
    assert not any(thread.is_alive() for thread in polls)
    life.over.set()
    publisher.join(PATIENCE)
    until(lambda: all(heard[-1] == life.published for heard in followers), life)
    assert running.service.stop() == 0
    life.end()
    assert life.errors == []
    for heard in streams:
        assert heard == list(range(len(heard))), "an item is missing, or came twice"
        # The first number that it has not heard was published when its time was over.
        assert life.times[len(heard) - 1] > began + 1
    for heard in followers:
        assert heard == list(range(life.published + 1))


def test_the_handler_too_and_everybody_stays(start: Callable[[str], Life]) -> None:
    life = start("reload_hold_time=600")
    running = life.running
    streams: list[list[int]] = [[] for _ in range(4)]
    followers: list[list[int]] = [[0] for _ in range(3)]
    for heard in streams:
        life.start(lambda heard=heard: life.listen(heard))  # type: ignore[misc]
    until(lambda: all(streams), life)
    for heard in followers:
        life.start(lambda heard=heard: life.follow(heard))  # type: ignore[misc]
    publisher = life.start(life.publish)
    until(lambda: life.published > 10, life)
    done = reload(running, "--handler")
    assert done.returncode == 0, done.stderr
    published = life.published
    until(lambda: life.published > published + 10, life)
    life.over.set()
    publisher.join(PATIENCE)
    until(lambda: all(heard[-1] == life.published for heard in (*streams, *followers)), life)
    running.service.stop()
    life.end()
    assert life.errors == []
    for heard in (*streams, *followers):
        assert heard == list(range(life.published + 1))


def test_the_new_configuration_counts(start: Callable[[str], Life]) -> None:
    life = start("reload_hold_time=600")
    running = life.running
    heard: list[int] = []
    life.start(lambda: life.listen(heard))
    until(lambda: heard, life)
    config = running.config.read_text()
    running.config.write_text(config.replace("=600", "=0\nreload_spread=0"))
    old = workers(running)
    assert reload(running).returncode == 0
    wait_gone(*old)
    life.end()
    assert life.errors == []


def test_stopping_in_the_middle(start: Callable[[str], Life]) -> None:
    life = start("reload_hold_time=600")
    running = life.running
    heard: list[int] = []
    life.start(lambda: life.listen(heard))
    life.start(life.wait)
    until(lambda: heard, life)
    assert reload(running, "--no-wait").returncode == 0
    running.service.wait_for_log(r"a new process has taken over")
    assert running.service.stop() == 0  # also checks that no process is left
    life.end()
    assert life.errors == []


def test_no_service(tmp_path: pathlib.Path) -> None:
    (tmp_path / "g.conf").write_text(f"[global]\nrundir={tmp_path}/run\n")
    command = [sys.executable, "-m", "gripproxy", "reload", f"--config={tmp_path}/g.conf"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONG, check=False)
    path = f"{tmp_path}/run/pushpin-runner"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"gripproxy reload: error: no running gripproxy has its runtime files there ({path})\n"
