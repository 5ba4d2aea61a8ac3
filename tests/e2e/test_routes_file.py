"""The routes file of a running service becomes something else, or its file system stalls (docs/routes.md)."""

from __future__ import annotations

import http.client
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.e2e.test_survival import PATIENCE, Gripproxy
from tests.support.ports import free_ports
from tests.support.service import ROOT, Service


class Stalling(Gripproxy):
    """A service whose routes file is on a file system that stalls when the test says so."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        super().__init__(folder, "log_level=2,worker:3", (), "")

    def command(self, *arguments: str) -> Service:
        # A worker that blocks is killed after a second here, and not after ten.
        self.config.write_text(self.config.read_text().replace("process_beat_timeout=900", "process_beat_timeout=2"))
        stalling = [sys.executable, "-m", "tests.e2e.processes.stalling", str(self.folder)]
        return Service([*stalling, f"--config={self.config}", *arguments])

    def routes(self, text: str) -> None:
        """Replace the routes file, as an editor does."""
        (self.folder / "routes.new").write_text(text)
        (self.folder / "routes.new").replace(self.folder / "routes")

    def workers(self) -> list[int]:
        return [int(pid) for pid in re.findall(r'process started: name="worker \d" pid=(\d+)', self.service.log)]

    def status(self, host: str) -> int:
        """Ask for a host, which no route has until there is one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", "/", headers={"Host": host})
        status = connection.getresponse().status
        connection.close()
        return status

    def begin(self, name: str) -> None:
        os.mkfifo(self.folder / name)

    def end(self, name: str) -> None:
        """Let everything go on that waits at a FIFO, however often it looks."""
        fifo = self.folder / name
        (self.folder / "gone").unlink(missing_ok=True)
        fifo.rename(self.folder / "gone")
        os.close(os.open(self.folder / "gone", os.O_RDWR | os.O_NONBLOCK))

    def log_of(self, pattern: str) -> re.Match[str]:
        return self.service.wait_for_log(pattern)


@pytest.fixture
def running(tmp_path: pathlib.Path) -> Iterator[Stalling]:
    running = Stalling(tmp_path)
    try:
        running.routes("a.test test\n")
        yield running.ready()  # type: ignore[misc]
    finally:
        for name in ("stall", "slow"):
            if (tmp_path / name).exists():
                running.end(name)
        running.close()


def use_of(generation: int) -> str:
    """All workers use these routes."""
    return "".join(rf"(?=(?s:.*)\[worker {n}\] routes in use: generation={generation} )" for n in (1, 2))


@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "socket", "gone", "empty", "nonsense", "cut off"])
def test_a_routes_file_that_is_none(running: Stalling, kind: str) -> None:
    before = running.workers()
    path, new = running.folder / "routes", running.folder / "new"
    says = {
        "fifo": "must be a regular file, not a FIFO",
        "device": "must be a regular file, not a device",
        "directory": "must be a regular file, not a directory",
        "socket": "routes file cannot be read: No such device or address",
        "gone": "routes file cannot be read: No such file or directory",
        "empty": "has no route",
        "nonsense": "no line can be used",
        "cut off": "the file was not written completely",
    }[kind]
    with socket.socket(socket.AF_UNIX) as sock:
        if kind == "fifo":
            os.mkfifo(new)
        elif kind == "device":
            new.symlink_to("/dev/zero")
        elif kind == "socket":
            sock.bind(str(new))
        elif kind != "directory" and kind != "gone":
            new.write_text({"empty": "", "nonsense": "nonsense\n", "cut off": "a.test test\nb.test loca"}[kind])
        path.unlink()
        if kind == "directory":
            path.mkdir()
        elif kind != "gone":
            new.rename(path)
        os.kill(running.service.process.pid, signal.SIGHUP)
        running.log_of(
            rf"\[ERR\] .* \[runner\] .*/routes(:\d)?: .*{says}\"? generation=1; the routes stay as they were\n"
        )
    assert running.status("a.test") == 200
    if kind == "directory":
        path.rmdir()
    running.routes("a.test test\nb.test test\n")
    running.log_of(use_of(2))
    assert (running.status("a.test"), running.status("b.test")) == (200, 200)
    assert running.workers() == before
    assert "process killed" not in running.service.log


def test_a_file_system_that_stalls(running: Stalling) -> None:
    before = running.workers()
    running.begin("stall")
    running.routes("b.test test\n")
    running.log_of(
        r"\[ERR\] .* \[runner\] routes file not read, its file system does not answer: file=.*/routes seconds=5"
    )
    # Longer than a worker may be silent; and one that dies now is started with the routes of the others.
    assert running.status("a.test") == 200
    os.kill(before[0], signal.SIGKILL)
    running.log_of(r"(?s)name=\"worker 1\" pid=\d+ signal=SIGKILL.*worker 1\] routes in use: generation=1 ")
    assert running.status("a.test") == 200
    reload = [sys.executable, "-m", "gripproxy", "reload", f"--config={running.config}"]
    done = subprocess.run(reload, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gripproxy reload: error: the configuration cannot be read: no answer within 10 s\n"
    assert running.status("a.test") == 200
    running.end("stall")
    running.log_of(r"\[INFO\] .* \[runner\] routes file read again: file=.*/routes")
    running.log_of(use_of(2))
    assert running.status("b.test") == 200
    done = subprocess.run(reload, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0
    assert "process killed" not in running.service.log


def test_no_worker_uses_new_routes_before_all_can(running: Stalling) -> None:
    running.begin("slow")
    running.routes("b.test test\n")
    # The worker 1 is ready with them long before the runner has heard of the worker 2, which waits.
    deadline = time.monotonic() + PATIENCE
    while not (running.folder / "waiting").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert {running.status("b.test") for _ in range(20)} == {502}
    running.end("slow")
    running.log_of(use_of(2))
    running.log_of(r"routes loaded: generation=2 routes=1 workers=2\n")
    ready = running.log_of(r"\] (\S+ \S+) \[worker 2\] prepares new routes only now")
    assert ready[1] <= running.log_of(r"\] (\S+ \S+) \[worker 1\] routes in use: generation=2 ")[1]
    assert {running.status("b.test") for _ in range(20)} == {200}


def test_the_generation_is_in_the_metrics(tmp_path: pathlib.Path) -> None:
    (port,) = free_ports(1)
    running = Gripproxy(tmp_path, "", (), f"prometheus_port=127.0.0.1:{port}")
    try:
        running.ready()
        for generation in (1, 2, 3):
            running.service.wait_for_log(rf"routes loaded: generation={generation} ")
            wanted = {f'gripproxy_routes_generation{{worker="{number}"}} {generation}.0' for number in (1, 2)}
            deadline = time.monotonic() + PATIENCE
            while not wanted <= metrics(port):
                assert time.monotonic() < deadline
            os.kill(running.service.process.pid, signal.SIGHUP)
    finally:
        running.close()


def metrics(port: int) -> set[str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/metrics")
    lines = set(connection.getresponse().read().decode().splitlines())
    connection.close()
    return lines
