"""Commands as real processes: started, waited for, and ended with everything below them.

The wire cases' kit (tests/wire/wirekit) starts a proxy with chosen settings and reads HTTP byte by byte; this is for
everything else that is started by a command. Nothing here sleeps: each wait is for a port, a line of output or the end
of a process, with a deadline.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

__all__ = ["ROOT", "Service", "alive", "descendants", "freeze", "running"]

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
"""The top of the repository."""
START_PATIENCE = 60.0
"""Seconds for a command to answer on its ports."""
STOP_PATIENCE = 30.0
"""Seconds for a command to end after a signal."""


def descendants(pid: int) -> list[int]:
    """``pid`` and all processes below it, parents first."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in pathlib.Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def alive(pid: int) -> bool:
    """Return whether the process ``pid`` runs; a zombie does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def freeze(pid: int) -> None:
    """Stop a process with SIGSTOP, and return when it has stopped: one that runs elsewhere goes on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOP_PATIENCE
    tasks = pathlib.Path(f"/proc/{pid}/task")
    while any((task / "stat").read_text().rpartition(")")[2].split()[0] not in "TZ" for task in tasks.iterdir()):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


class Service:
    """A started command with its output in a file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start ``command`` in the top folder, with ``environment`` added to that of the tests."""
        self.command = list(command)
        descriptor, name = tempfile.mkstemp(prefix="service-", suffix=".log")
        self._output = pathlib.Path(name)
        with open(descriptor, "wb") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._pids = {self.process.pid}

    @property
    def log(self) -> str:
        """All output so far."""
        return self._output.read_text(errors="replace")

    def _look_again(self, what: str, deadline: float) -> None:
        try:
            code = self.process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            self._pids.update(descendants(self.process.pid))
            if time.monotonic() < deadline:
                return
            raise AssertionError(f"{self.command}: no {what} in time; its output:\n{self.log}") from None
        raise AssertionError(f"{self.command} ended with status {code} before {what}; its output:\n{self.log}")

    def wait_for_port(self, *ports: int) -> None:
        """Return when something accepts on each of the loopback ``ports``."""
        deadline = time.monotonic() + START_PATIENCE
        for port in ports:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    self._look_again(f"answer on port {port}", deadline)

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        """Return the first match of a regular expression in the output, once there is one."""
        deadline = time.monotonic() + START_PATIENCE
        while not (found := re.search(pattern, self.log)):
            self._look_again(f"output like {pattern!r}", deadline)
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal to the command (not to its children), wait for its end, return its exit status.

        Fails if it does not end or leaves a process behind; these are killed first, each by its id.
        """
        self._pids.update(descendants(self.process.pid))
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code: int | None = self.process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        left = [pid for pid in self._pids if alive(pid)]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        log = self.log
        self._output.unlink()
        assert code is not None, f"{self.command} did not end on {number.name}; its output:\n{log}"
        assert not left, f"{self.command} left the processes {left} behind; its output:\n{log}"
        return code


@contextlib.contextmanager
def running(command: Sequence[str], *ports: int, environment: Mapping[str, str] | None = None) -> Iterator[Service]:
    """A service that accepts on ``ports``, ended with SIGTERM afterwards if it still runs."""
    service = Service(command, environment)
    try:
        service.wait_for_port(*ports)
        yield service
    finally:
        if service.process.returncode is None:
            service.stop()
