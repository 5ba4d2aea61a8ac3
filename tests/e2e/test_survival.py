"""The whole service, its real processes killed, stopped and ended with clients held and items published."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import pathlib
import re
import select
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.certificates import make_certificate
from tests.support.ports import free_ports
from tests.support.service import Service, descendants, freeze
from tests.support.small_hub import wait_until

PATIENCE = 40.0
"""Seconds for anything that has to happen."""

HASTY = "process_beat_timeout=3"
"""For what is about silence. Elsewhere nobody is killed for it, since a busy machine keeps silent too."""

Start = Callable[..., "Gripproxy"]


class Client:
    """A client on a socket of its own, read line by line."""

    def __init__(self, sock: socket.socket, path: str) -> None:
        self.sock = sock
        self.sock.settimeout(PATIENCE)
        self.sock.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        self.file = sock.makefile("rb")
        self.status = self.file.readline()
        while self.file.readline().strip():
            pass

    def line(self) -> bytes:
        return self.file.readline()

    def rest(self) -> bytes:
        return self.file.read()

    @property
    def untouched(self) -> bool:
        """Whether nothing has come since the last line, not even the end."""
        return not select.select([self.sock], [], [], 0)[0]

    def close(self) -> None:
        self.file.close()
        self.sock.close()


class Gripproxy:
    """A running service with the built-in test routes."""

    def __init__(self, folder: pathlib.Path, lines: str, arguments: tuple[str, ...], handler: str) -> None:
        self.port, self.control = free_ports(2)
        self.config = folder / "gripproxy.conf"
        self.config.write_text(
            f"[global]\nrundir={folder}/run\n[runner]\nhttp_port=127.0.0.1:{self.port}\nprocess_beat_timeout=900\n{lines}\n"
            f"[proxy]\nworkers=2\n[handler]\npush_in_http_port={self.control}\n{handler}\n"
        )
        (folder / "routes").write_text("* test\n")
        self.service = self.command(*arguments)
        self.others: list[Service] = []
        self.clients: list[Client] = []

    def command(self, *arguments: str) -> Service:
        return Service([sys.executable, "-m", "gripproxy", *arguments, f"--config={self.config}"])

    def ready(self) -> Gripproxy:
        self.service.wait_for_log(r"\[runner\] ready")
        return self

    def child(self, name: str, nth: int = 1) -> int:
        self.service.wait_for_log(rf'(?s)(process started: name="?{name}"? pid=\d+.*?){{{nth}}}')
        return int(re.findall(rf'process started: name="?{name}"? pid=(\d+)', self.service.log)[nth - 1])

    def get(self, path: str, port: int | None = None) -> Client:
        self.clients.append(Client(socket.create_connection(("127.0.0.1", port or self.port), PATIENCE), path))
        return self.clients[-1]

    def stream(self) -> Client:
        client = self.get("/stream")
        assert client.line() == b"[stream opened]\n"
        return client

    def stream_of(self, number: int) -> Client:
        """A stream held by that worker."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            client = self.stream()
            peer = f"127.0.0.1:{client.sock.getsockname()[1]}"
            held = self.service.wait_for_log(
                rf"\[worker (\d)\] hold: mode=stream method=GET path=/stream channels=test client={peer}"
            )
            if int(held[1]) == number:
                return client
        raise AssertionError(f"no stream came to worker {number}")

    def publish(self, text: str) -> None:
        self.publish_item({"channel": "test", "formats": {"http-stream": {"content": text}}})

    def publish_item(self, item: dict[str, object]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.control, timeout=PATIENCE)
        try:
            connection.request("POST", "/publish/", json.dumps({"items": [item]}))
            assert connection.getresponse().read() == b"Published\n"
        finally:
            connection.close()

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for service in (self.service, *self.others):
            with contextlib.suppress(FileNotFoundError):  # the test has stopped it
                service.stop()


def wait_gone(*pids: int) -> None:
    """Return when all these processes have ended (whoever their parent is)."""
    deadline = time.monotonic() + PATIENCE
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(descriptor)
        assert readable, f"process {pid} is still there"


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    started: list[Gripproxy] = []

    def start(lines: str = "", *arguments: str, handler: str = "") -> Gripproxy:
        started.append(Gripproxy(tmp_path, lines, arguments, handler))
        return started[-1]

    yield start
    for running in started:
        running.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_answers_what_is_held_and_leaves_nothing(start: Start, number: signal.Signals) -> None:
    running = start().ready()
    streams = [running.stream() for _ in range(10)]
    assert running.service.stop(number) == 0  # also checks that no process is left
    assert [client.rest() for client in streams] == [b""] * 10


def test_stopping_answers_long_polls_with_their_timeout_response(start: Start) -> None:
    running = start().ready()
    sock = socket.create_connection(("127.0.0.1", running.port), PATIENCE)
    with sock:
        sock.sendall(b"GET /response HTTP/1.0\r\nHost: localhost\r\n\r\n")
        running.service.wait_for_log("hold: mode=response .*channels=test")
        assert running.service.stop() == 0
        sock.settimeout(PATIENCE)
        answer = b"".join(iter(lambda: sock.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nnothing for now\n")


def test_the_runners_death_ends_everything(start: Start) -> None:
    running = start().ready()
    streams = [running.stream() for _ in range(4)]
    pids = descendants(running.service.process.pid)
    assert len(pids) == 4
    running.service.process.kill()
    running.service.process.wait()
    wait_gone(*pids)
    assert [client.rest() for client in streams] == [b""] * 4
    with pytest.raises(ConnectionRefusedError):
        running.get("/")


def test_the_runners_death_during_the_start_leaves_nothing(start: Start) -> None:
    running = start()
    running.child("worker 2")
    pids = descendants(running.service.process.pid)
    assert len(pids) == 4
    running.service.process.kill()
    running.service.process.wait()
    wait_gone(*pids)


def test_signals_during_the_start_are_obeyed_when_it_is_done(start: Start) -> None:
    running = start()
    running.child("worker 2")
    running.service.process.send_signal(signal.SIGHUP)
    running.ready()
    assert running.service.log.count("process started:") == 3
    assert running.service.stop() == 0


def test_stopping_during_the_start_is_not_a_failure(start: Start) -> None:
    running = start()
    running.child("worker 2")
    assert running.service.stop() == 0


def test_a_signal_to_the_whole_process_group_is_no_failure_of_a_child(start: Start) -> None:
    running = start().ready()
    client = running.stream()
    os.killpg(running.service.process.pid, signal.SIGTERM)
    assert client.rest() == b""
    assert running.service.process.wait(PATIENCE) == 0
    assert "[ERR]" not in running.service.log


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_nobody_is_disconnected_by_the_handlers_end_and_items_arrive_again(
    start: Start, number: signal.Signals
) -> None:
    running = start(HASTY if number is signal.SIGSTOP else "").ready()
    streams = [running.stream() for _ in range(10)]
    running.publish("before\n")
    assert [client.line() for client in streams] == [b"before\n"] * 10
    os.kill(running.child("handler"), number)
    running.child("handler", 2)
    running.service.wait_for_log(r"(?s)(process started: name=handler.*){2}handler ready")
    assert all(client.untouched for client in streams)
    running.publish("after\n")
    assert [client.line() for client in streams] == [b"after\n"] * 10


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_workers_end_disconnects_only_its_own_clients(start: Start, number: signal.Signals) -> None:
    running = start(HASTY if number is signal.SIGSTOP else "").ready()
    lost, kept = running.stream_of(1), running.stream_of(2)
    os.kill(running.child("worker 1"), number)
    new = running.child("worker 1", 2)
    assert new != running.child("worker 1")
    with contextlib.suppress(ConnectionResetError):  # it was killed: its clients are cut off
        assert lost.rest() == b""
    again = running.stream_of(1)
    running.publish("on\n")
    assert kept.line() == b"on\n"
    assert again.line() == b"on\n"


def test_requests_queued_on_a_dead_workers_socket_are_answered(start: Start) -> None:
    running = start().ready()
    victim = running.child("worker 1")
    freeze(victim)
    with contextlib.ExitStack() as stack:
        queued = []
        for _ in range(30):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", running.port), PATIENCE))
            sock.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
            queued.append(sock)
        os.kill(victim, signal.SIGKILL)
        for sock in queued:
            sock.settimeout(PATIENCE)
            assert b"".join(iter(functools.partial(sock.recv, 4096), b"")).startswith(b"HTTP/1.0 200 OK\r\n")


@pytest.mark.parametrize("key", ["push_in_http_port", "push_in_spec", "command_spec"])
def test_a_handler_port_in_use_ends_the_start_with_its_key(start: Start, tmp_path: pathlib.Path, key: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        value = str(port) if key == "push_in_http_port" else f"tcp://127.0.0.1:{port}"
        running = start(handler=f"{key}={value}")
        assert running.service.process.wait(PATIENCE) == 2
        log = running.service.log
        assert re.search(rf"{key}.*{port}.*in use", log), log
        assert log.count("process started: name=handler") == 1


def test_tls_with_the_certificate_of_the_name_asked_for(start: Start, tmp_path: pathlib.Path) -> None:
    (port,) = free_ports(1)
    certs = tmp_path / "runner" / "certs"
    make_certificate(certs, f"default_{port}", "default")
    make_certificate(certs, "www.example.com", "www.example.com")
    running = start(f"https_ports=127.0.0.1:{port}").ready()
    context = ssl.create_default_context(cafile=str(certs / "www.example.com.crt"))
    raw = socket.create_connection(("127.0.0.1", port), PATIENCE)
    with context.wrap_socket(raw, server_hostname="www.example.com") as sock:
        client = Client(sock, "/stream")
        assert client.line() == b"[stream opened]\n"
        running.publish("over TLS\n")
        assert client.line() == b"over TLS\n"
        client.close()


def test_a_worker_by_itself_says_which_certificate_is_missing(start: Start) -> None:
    (port,) = free_ports(1)
    worker = start(f"https_ports=127.0.0.1:{port}", "worker").service
    assert worker.process.wait(PATIENCE) == 2
    assert re.search(
        rf"gripproxy worker: error: \[runner\] https_ports: no certificate: .*default_{port}\.crt", worker.log
    )
    assert "Traceback" not in worker.log


def test_a_unix_socket_serves_clients(start: Start, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "clients"
    start(f"local_ports={path}?mode=600").ready()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        client = Client(sock, "/")
        assert client.status == b"HTTP/1.0 200 OK\r\n"
        client.close()


def test_each_process_runs_by_itself(start: Start) -> None:
    running = start("", "handler")
    running.others = [running.command("worker", f"--number={number}") for number in (1, 2)]
    running.service.wait_for_log("handler ready")
    for worker in running.others:
        worker.wait_for_port(running.port)
    running.service.wait_for_log(r"(?s)worker joined.*worker joined")
    streams = [running.stream() for _ in range(10)]
    running.publish("hello\n")
    assert [client.line() for client in streams] == [b"hello\n"] * 10
    # In the order that hurts most: the handler first.
    assert running.service.stop(signal.SIGINT) == 0
    assert all(client.untouched for client in streams)
    for worker in running.others:
        assert worker.stop() == 0
    assert [client.rest() for client in streams] == [b""] * 10


def log_of(pid: int, file: pathlib.Path) -> set[str]:
    """Return the files that a process has open whose names begin like the log's."""
    links = pathlib.Path(f"/proc/{pid}/fd").iterdir()
    return {name for link in links if (name := os.readlink(link)).startswith(str(file))}


def test_one_log_file_of_all_processes_is_opened_again(start: Start, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "gripproxy.log"
    hub = f"[hub]\nstore={tmp_path}/hub.db\nhub_anonymous=all"
    running = start("log_format=json", f"--logfile={file}", handler=hub)
    running.service.wait_for_port(running.port, running.control)
    wait_until(lambda: '"event":"hub ready"' in file.read_text())
    file.rename(tmp_path / "gripproxy.log.1")
    running.service.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE
    names: set[str] = set()
    while names < {"runner", "handler", "worker 1", "worker 2", "hub"}:
        assert time.monotonic() < deadline, names
        # A line may be half written.
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            names = {json.loads(line)["process"] for line in file.read_text().splitlines()}
    # The children of the hub, which have nothing to say, have opened it too.
    wait_until(lambda: all(log_of(pid, file) == {str(file)} for pid in descendants(running.service.process.pid)))
    assert running.service.stop() == 0
    before, after = (tmp_path / "gripproxy.log.1").read_text(), file.read_text()
    assert '"process":"hub writer"' in before
    for line in (before + after).splitlines():
        assert list(json.loads(line))[:4] == ["time", "level", "process", "event"]
