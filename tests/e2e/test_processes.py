"""The runner and its children as real processes: start, restart, signals, death in every order, nothing left behind.

The children are tests/e2e/processes/child.py, so that these tests are about the processes and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.ports import free_port
from tests.support.service import Service, alive, descendants, freeze

HERE = pathlib.Path(__file__).parent / "processes"
PATIENCE = 40.0
"""Seconds for anything that has to happen."""

HASTY = "process_beat_timeout=3"
"""For what is about silence. Elsewhere nobody is killed for it, since a busy machine keeps silent too."""

Start = Callable[..., "Running"]


class Running:
    """A service of the runner and fake children, with what the tests ask of it."""

    def __init__(self, folder: pathlib.Path, lines: str, worker: str, handler: str, log_file: str, **env: str) -> None:
        self.port = free_port()
        self.clients: list[socket.socket] = []
        """All clients of the test, closed at its end."""
        (folder / "routes").write_text("* test\n")
        config = folder / "gripproxy.conf"
        config.write_text(
            f"[global]\nrundir={folder}/run\n[runner]\nhttp_port=127.0.0.1:{self.port}\nprocess_beat_timeout=600\n"
            f"shutdown_timeout=1\n{lines}\n[proxy]\nworkers=2\n"
        )
        self.service = Service(
            [sys.executable, str(HERE / "service.py"), str(config), log_file, worker, handler], environment=env
        )

    @property
    def pid(self) -> int:
        return self.service.process.pid

    def ready(self) -> Running:
        self.service.wait_for_log(r"\[runner\] ready")
        return self

    def child(self, name: str, nth: int = 1) -> int:
        """The process id of the ``nth`` start of a child, once it has happened."""
        self.service.wait_for_log(rf'(?s)(process started: name="?{name}"? pid=\d+.*?){{{nth}}}')
        return int(re.findall(rf'process started: name="?{name}"? pid=(\d+)', self.service.log)[nth - 1])

    def connect(self) -> socket.socket:
        self.clients.append(socket.create_connection(("127.0.0.1", self.port), PATIENCE))
        return self.clients[-1]

    def ask(self) -> tuple[socket.socket, int, int]:
        """A held client, and number and process id of the worker that has it."""
        sock = self.connect()
        _, number, pid = line(sock).split()
        return sock, int(number), int(pid)

    def client_of(self, number: int) -> tuple[socket.socket, int]:
        """A held client of that worker."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            sock, found, pid = self.ask()
            if found == number:
                return sock, pid
        raise AssertionError(f"no connection came to worker {number}")


def line(sock: socket.socket) -> str:
    """The line a worker greets with. Raises ConnectionResetError, or fails at the end of file."""
    with sock.makefile("rb") as file:
        text = file.readline()
    assert text.endswith(b"\n"), f"the connection ended after {text!r}"
    return text.decode()


def closed(sock: socket.socket) -> bool:
    """Whether the other side has ended the connection by now."""
    readable, _, _ = select.select([sock], [], [], 0)
    return bool(readable)


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
    """Starts a service; everything it made is gone at the end, and that is checked."""
    started: list[Running] = []

    def start(lines: str = "", worker: str = "good", handler: str = "good", log_file: str = "", **env: str) -> Running:
        started.append(Running(tmp_path, lines, worker, handler, log_file, **env))
        return started[-1]

    yield start
    for running in started:
        for sock in running.clients:
            sock.close()
        with contextlib.suppress(FileNotFoundError):  # the test has stopped it
            running.service.stop()


# Start


def test_the_start_is_told_line_by_line(start: Start, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "clients"
    ipv6 = free_port("::1")
    running = start(f"http_port=[::1]:{ipv6}\nlocal_ports={path}?mode=660").ready()
    log = running.service.log
    assert f"listening: url=http://[::1]:{ipv6} key=http_port" in log
    assert f"listening: url=unix:{path} key=local_ports" in log
    assert re.search(r"\[INFO\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \[runner\] limit of open files: files=\d+", log)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with socket.create_connection(("::1", ipv6), PATIENCE) as sock:
        assert line(sock).startswith("worker ")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE)
        sock.connect(str(path))
        assert line(sock).startswith("worker ")
    assert running.service.stop() == 0
    assert not path.exists()


def test_services_says_which_children_run(start: Start) -> None:
    running = start("services=pushpin-handler,zurl").ready()
    log = running.service.log
    assert "process started: name=handler" in log
    assert "worker" not in log
    assert "listening" not in log


def test_readiness_is_told_to_systemd(start: Start, tmp_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(PATIENCE)
        running = start(NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert supervisor.recv(100) == b"READY=1"
        assert running.service.stop() == 0
        assert supervisor.recv(100) == b"STOPPING=1"
        assert select.select([supervisor], [], [], 0)[0] == []  # the children said nothing of their own


@pytest.mark.parametrize("key", ["http_port", "https_ports", "local_ports"])
def test_what_is_in_use_is_named_with_its_key(start: Start, tmp_path: pathlib.Path, key: str) -> None:
    family = socket.AF_UNIX if key == "local_ports" else socket.AF_INET
    with socket.socket(family) as other:
        other.bind(str(tmp_path / "other") if family == socket.AF_UNIX else ("127.0.0.1", 0))
        other.listen()
        value = str(tmp_path / "other") if family == socket.AF_UNIX else f"127.0.0.1:{other.getsockname()[1]}"
        running = start(f"{key}={value}")
        assert running.service.process.wait(PATIENCE) == 2
        assert f"gripproxy: [runner] {key}: {value}: already in use" in running.service.log
        assert "process started" not in running.service.log


def test_a_second_service_on_the_same_port_is_refused(start: Start) -> None:
    first = start().ready()
    second = start(f"http_port=127.0.0.1:{first.port}")
    assert second.service.process.wait(PATIENCE) == 2
    assert f"http_port: 127.0.0.1:{first.port}: already in use" in second.service.log
    assert first.ask()[1] in (1, 2)


def test_a_missing_certificate_stops_the_start(start: Start, tmp_path: pathlib.Path) -> None:
    port = free_port()
    running = start(f"https_ports=127.0.0.1:{port}")
    assert running.service.process.wait(PATIENCE) == 2
    wanted = tmp_path / "runner" / "certs" / f"default_{port}.crt"
    assert f"[runner] https_ports: no certificate: {wanted}" in running.service.log


def test_a_child_that_cannot_start_ends_the_service_with_the_reason(start: Start) -> None:
    running = start(handler="exit:1")
    workers = [running.child("worker 1"), running.child("worker 2")]
    assert running.service.process.wait(PATIENCE) == 1
    assert 'reason="5 starts failed within 30 s"' in running.service.log
    assert running.service.log.count("process started: name=handler") == 5
    assert not any(alive(pid) for pid in workers)


def test_a_child_with_a_config_error_is_not_tried_again(start: Start) -> None:
    running = start(handler="exit:2")
    assert running.service.process.wait(PATIENCE) == 2
    assert running.service.log.count("process started: name=handler") == 1
    assert "its line in the log says why" in running.service.log


# The end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everything(start: Start, number: signal.Signals) -> None:
    running = start().ready()
    held, _, _ = running.ask()
    assert running.service.stop(number) == 0  # also checks that no process is left
    assert held.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        running.connect()


def test_the_handler_ends_after_the_workers(start: Start) -> None:
    running = start().ready()
    service = running.service
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(PATIENCE) == 0
    ends = re.findall(r"\[(\w+) \d\] ended: reason=SIGTERM", service.log)
    assert sorted(ends[:2]) == ["worker", "worker"]
    assert ends[2] == "handler"


def test_ctrl_c_on_a_terminal_reaches_the_group_and_still_ends_in_order(start: Start) -> None:
    running = start().ready()
    service = running.service
    os.killpg(running.pid, signal.SIGINT)  # the service is a session of its own
    assert service.process.wait(PATIENCE) == 0
    assert re.findall(r"\[(\w+) \d\] ended: reason=SIGTERM", service.log)[2:] == ["handler"]
    assert "Traceback" not in service.log


def test_a_child_that_does_not_end_is_killed(start: Start) -> None:
    running = start(worker="deaf").ready()
    assert running.service.stop() == 0  # it has a patience of its own
    assert running.service.process.returncode == 0


def test_a_second_signal_kills_at_once(start: Start) -> None:
    running = start("shutdown_timeout=600", worker="deaf").ready()
    pids = descendants(running.pid)
    service = running.service
    service.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:  # the first second's repeats are the same wish
        with contextlib.suppress(subprocess.TimeoutExpired):
            service.process.wait(0.2)
            break
        service.process.send_signal(signal.SIGTERM)
    assert service.process.returncode == 0
    wait_gone(*pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_says_it_until_the_very_end_gets_status_0_too(start: Start, number: signal.Signals) -> None:
    service = start().ready().service
    deadline = time.monotonic() + PATIENCE
    while service.process.poll() is None:
        assert time.monotonic() < deadline
        service.process.send_signal(number)
        time.sleep(0.001)
    assert service.process.returncode == 0
    assert "Traceback" not in service.log


def test_stopped_children_do_not_prevent_the_end(start: Start) -> None:
    running = start().ready()
    for name in ("worker 1", "handler"):
        os.kill(running.child(name), signal.SIGSTOP)
    assert running.service.stop() == 0


def test_children_notice_the_death_of_the_runner(start: Start) -> None:
    running = start().ready()
    held, _, _ = running.ask()
    pids = descendants(running.pid)
    assert len(pids) == 4
    os.kill(running.pid, signal.SIGKILL)
    running.service.process.wait()
    wait_gone(*pids)
    assert held.recv(1) == b""
    assert running.service.log.count('ended: reason="the runner is gone"') == 3


def test_a_hanging_child_ends_although_the_runner_is_dead(start: Start) -> None:
    running = start(HASTY, worker="hang").ready()
    pids = descendants(running.pid)
    held, _, _ = running.ask()
    held.send(b"x")
    running.service.wait_for_log("hanging")
    os.kill(running.pid, signal.SIGKILL)
    running.service.process.wait()
    wait_gone(*pids)


# Restarts


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_stops_is_replaced_and_the_others_clients_stay(
    start: Start, number: signal.Signals
) -> None:
    running = start(HASTY if number is signal.SIGSTOP else "").ready()
    first, pid = running.client_of(1)
    second, other = running.client_of(2)
    os.kill(pid, number)
    assert running.child("worker 1", 2) != pid
    _, new = running.client_of(1)
    assert new == running.child("worker 1", 2)
    assert not closed(second)
    assert running.child("worker 2") == other
    assert first.recv(1) == b""
    reason = "signal=SIGKILL" if number is signal.SIGKILL else "no sign of life for 3 s"
    assert reason in running.service.log


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_nobody_is_disconnected_by_the_handlers_end(start: Start, number: signal.Signals) -> None:
    running = start(HASTY if number is signal.SIGSTOP else "").ready()
    held = [running.ask()[0] for _ in range(10)]
    os.kill(running.child("handler"), number)
    assert running.child("handler", 2)
    assert not any(closed(sock) for sock in held)
    assert 'process started: name="worker 1"' in running.service.log
    assert len(re.findall(r'process started: name="worker \d"', running.service.log)) == 2


def test_connections_queued_on_a_dead_workers_socket_are_served_by_its_successor(start: Start) -> None:
    running = start().ready()
    victim = running.child("worker 1")
    freeze(victim)  # so that nobody accepts what the kernel gives to this worker
    queued = [running.connect() for _ in range(40)]
    os.kill(victim, signal.SIGKILL)
    new = running.child("worker 1", 2)
    served = [int(line(sock).split()[2]) for sock in queued]  # a reset would raise here
    assert victim not in served
    assert new in served
    assert running.child("worker 2") in served


def test_a_hanging_event_loop_counts_as_silence(start: Start) -> None:
    running = start(HASTY, worker="hang").ready()
    held, number, _ = running.ask()
    held.send(b"x")
    assert running.child(f"worker {number}", 2)
    assert f'process ended: name="worker {number}"' in running.service.log


def test_a_runner_that_was_stopped_itself_kills_nobody(start: Start) -> None:
    running = start(HASTY).ready()
    pids = descendants(running.pid)
    os.kill(running.pid, signal.SIGSTOP)
    # Longer than the beat timeout, measured by something that happens: a descriptor that never becomes readable.
    quiet, _other = socket.socketpair()
    with quiet, _other:
        select.select([quiet], [], [], 4.5)
    os.kill(running.pid, signal.SIGCONT)
    running.service.process.send_signal(signal.SIGHUP)
    running.service.wait_for_log("SIGHUP received: it is passed on")
    assert descendants(running.pid) == pids
    assert "process killed" not in running.service.log


# The log


def test_sighup_reaches_all_processes_and_opens_the_file_again(start: Start, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "gripproxy.log"
    running = start(log_file=str(file))
    wait_for_text(file, "ready")
    file.rename(tmp_path / "gripproxy.log.1")
    running.service.process.send_signal(signal.SIGHUP)
    for name in ("worker 1", "worker 2", "handler 1"):
        wait_for_text(file, rf"\[{name}\] hung up")
    assert "[runner] ready" in (tmp_path / "gripproxy.log.1").read_text()
    assert running.service.stop() == 0
    lines = file.read_text().splitlines()
    assert all(re.match(r"\[[A-Z]+\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \[\w+( \d)?\] ", text) for text in lines)


def wait_for_text(file: pathlib.Path, pattern: str) -> None:
    deadline = time.monotonic() + PATIENCE
    quiet, other = socket.socketpair()
    with quiet, other:
        while not (file.exists() and re.search(pattern, file.read_text())):
            assert time.monotonic() < deadline, f"no {pattern!r} in {file}"
            select.select([quiet], [], [], 0.02)


# Without the runner


def test_a_worker_of_systemd_serves_the_sockets_it_is_given() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        # As systemd does it: descriptor 3, and the process id is the worker's own.
        script = 'exec 3<&"$1"; LISTEN_PID=$$ exec "$2" "$3" worker 1 "" good'
        process = subprocess.Popen(
            ["bash", "-c", script, "worker", str(listening.fileno()), sys.executable, str(HERE / "child.py")],
            env=os.environ | {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "http"},
            pass_fds=[listening.fileno()],
            stdout=subprocess.PIPE,
        )
        try:
            with socket.create_connection(listening.getsockname(), PATIENCE) as sock:
                assert line(sock) == f"worker 1 {process.pid}\n"
            process.send_signal(signal.SIGINT)  # Ctrl-C ends a process that runs by itself
            output, _ = process.communicate(timeout=PATIENCE)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    assert process.returncode == 0
    assert b"ended: reason=SIGINT" in output
