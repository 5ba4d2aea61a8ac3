"""The runner's children: which there are, what starts them, and one process with its tie to the runner.

gripproxy.process is the other end of that tie; gripproxy.life decides when a child is started and ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gripproxy.config import Config
from gripproxy.life import Life, State
from gripproxy.listeners import LISTENERS_VARIABLE, Listener, listeners_variable
from gripproxy.process import (
    CHILD_VARIABLE,
    OWNED_VARIABLE,
    RESTARTS_VARIABLE,
    RETIRING_VARIABLE,
    ROUTES_VARIABLE,
    RUNNER_SIGNALS,
    child_variable,
    owned_variable,
    routes_order,
)

__all__ = ["Command", "Process", "default_command", "describe_status", "make_processes"]

_DROPPED_VARIABLES: Final = (
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
)
"""What systemd tells the runner is not for its children."""


Command = Callable[[str, int, Sequence[str]], list[str]]
"""Makes the command of a child from its kind (worker, handler), its number and the options of the configuration."""


def default_command(kind: str, number: int, argv: Sequence[str]) -> list[str]:
    """Return the command of a child: this Python, this package.

    ``-P``: what lies in the working directory must not be imported in place of our modules.
    """
    numbered = [f"--number={number}"] if kind == "worker" else []
    return [sys.executable, "-P", "-m", "gripproxy", kind, *numbered, *argv]


def describe_status(status: int) -> str:
    """Return an exit status for people; negative is a signal's number."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


class Process:
    """One child process: its command, its inherited descriptors, its socket pair."""

    def __init__(self, kind: str, number: int, command: list[str], listeners: Sequence[Listener], life: Life) -> None:
        self.kind = kind
        self.number = number
        self.life = life
        self.sock: socket.socket | None = None
        self.popen: subprocess.Popen[bytes] | None = None
        self.shutdown_timeout = 0.0
        """What the process knows as shutdown_timeout, in seconds."""
        self.generation = 0
        """Number of the newest routes that it was given; 0 for none."""
        self.unanswered = 0
        """Offers of routes that it has not answered."""
        self._starts = 0
        self._command = command
        self._listeners = listeners

    @property
    def name(self) -> str:
        """The process for people. Two of one number differ: one of them retires."""
        if self.kind != "worker":
            return self.kind
        if self.life.state is State.RETIRING and self.popen is not None:
            return f"worker {self.number} (retiring, process {self.popen.pid})"
        return f"worker {self.number}"

    @property
    def identity(self) -> str:
        """The name, with the process id."""
        name = self.name
        return name if name.endswith(")") else f"{name} (process {self.pid})"

    @property
    def pid(self) -> int:
        """Its process id, 0 if there is none."""
        return self.popen.pid if self.popen is not None else 0

    def successor(self, life: Life) -> Process:
        """Return a process, not started, that does the same with the same sockets."""
        return Process(self.kind, self.number, self._command, self._listeners, life)

    @property
    def alive(self) -> bool:
        """Whether there is a process that was not waited for yet."""
        return self.popen is not None

    def start(self, config: Config, retiring: int = 0, routes: tuple[int, int] | None = None) -> None:
        """Start the process.

        Args:
            config: of the service.
            retiring: workers that retire, for the handler.
            routes: descriptor and generation of the routes, for a worker.

        Raises:
            OSError: that cannot be done (no memory, no more processes).
        """
        settings = config.runner
        self.shutdown_timeout = settings.shutdown_timeout
        self.generation, self.unanswered = routes[1] if routes is not None else 0, 0
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = [theirs.fileno(), *(listener.sock.fileno() for listener in self._listeners)]
            environment = {name: value for name, value in os.environ.items() if name not in _DROPPED_VARIABLES}
            environment[CHILD_VARIABLE] = child_variable(
                theirs.fileno(), settings.process_beat_timeout, settings.shutdown_timeout
            )
            environment[OWNED_VARIABLE] = owned_variable(config)
            environment[RESTARTS_VARIABLE] = str(self._starts)
            environment[RETIRING_VARIABLE] = str(retiring)
            self._starts += 1
            if routes is not None:
                descriptors.append(routes[0])
                environment[ROUTES_VARIABLE] = f"{routes[0]},{routes[1]}"
            if self._listeners:
                environment[LISTENERS_VARIABLE] = listeners_variable(self._listeners)
            root = str(Path(__file__).resolve().parent.parent)
            if sys.path and sys.path[0] == root:  # running from the source tree, without being installed
                environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
            signal.pthread_sigmask(signal.SIG_BLOCK, RUNNER_SIGNALS)
            try:
                self.popen = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, env=environment, pass_fds=descriptors
                )
            except OSError:
                ours.close()
                raise
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, RUNNER_SIGNALS)
        ours.setblocking(False)
        self.sock = ours

    def signal(self, number: int) -> None:
        """Send a signal if the process was not waited for yet (so its id cannot be somebody else's)."""
        if self.popen is not None:
            self.popen.send_signal(number)

    def tell(self, line: bytes) -> None:
        """Write a line to the process; one that is about to die need not get it."""
        if self.sock is not None:
            with contextlib.suppress(OSError):
                self.sock.send(line)

    def offer(self, generation: int, descriptor: int) -> bool:
        """Send the process new routes to prepare. Returns whether they are on their way: one that ends needs none."""
        if self.sock is None:
            return False
        try:
            socket.send_fds(self.sock, [routes_order(generation)], [descriptor])
        except OSError:
            return False
        return True

    def read(self) -> bytes | None:
        """Return the signs of life that have come; None if there are none now, empty if none will come any more."""
        if self.sock is None:
            return b""
        try:
            return self.sock.recv(4096)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b""

    def wait(self) -> int | None:
        """Return the exit status if the process has ended, else None."""
        if self.popen is None:
            return None
        status = self.popen.poll()
        if status is not None:
            self.popen = None
        return status


def make_processes(
    config: Config, listeners: Sequence[Sequence[Listener]], argv: Sequence[str], command: Command, now: float
) -> list[Process]:
    """Return the children that ``[runner] services`` asks for, not started: the handler, then a worker per list of
    listeners. ``now`` is the monotonic clock in seconds; see ``run`` for the others."""
    beat_timeout = config.runner.process_beat_timeout
    processes: list[Process] = []
    if "handler" in config.services:
        processes.append(Process("handler", 1, command("handler", 1, argv), (), Life(beat_timeout, now)))
    if "worker" in config.services:
        processes += [
            Process("worker", number, command("worker", number, argv), sockets, Life(beat_timeout, now))
            for number, sockets in enumerate(listeners, 1)
        ]
    return processes
