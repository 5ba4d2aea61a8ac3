"""Child process of the runner, with the socket pair that ties it to the runner.

``gripproxy.process.supervised`` is the other end of the socket pair; ``gripproxy.runner.lifecycle`` decides when a
child starts and ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gripproxy.config import Config
from gripproxy.process.handover import HANDOVER_VARIABLE, Handover, InheritedRoutes, Owned
from gripproxy.process.listening_sockets import ListeningSocket, describe
from gripproxy.process.runner_messages import PrepareRoutes, RunnerMessage, encode_message
from gripproxy.process.supervised import RUNNER_SIGNALS
from gripproxy.runner.lifecycle import Lifecycle, State
from gripproxy.runner.service import Service

__all__ = ["ChildProcess", "how_ended", "make_processes"]

_DROPPED_VARIABLES: Final = (
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
)
"""Variables of systemd for the runner, which its children must not have."""

_ROOT: Final = str(Path(__file__).resolve().parents[2])
"""Folder of the package."""


def how_ended(status: int) -> dict[str, object]:
    """Return the field for an exit ``status`` in the log; negative: the number of a signal."""
    if status >= 0:
        return {"status": status}
    try:
        return {"signal": signal.Signals(-status).name}
    except ValueError:
        return {"signal": -status}


class ChildProcess:
    """One child process: its service, its inherited descriptors, its socket pair.

    Args:
        service: it belongs to.
        number: of the process in its service, from 1.
        listeners: listening sockets it inherits.
        lifecycle: of the process.
    """

    def __init__(
        self, service: Service, number: int, listeners: Sequence[ListeningSocket], lifecycle: Lifecycle
    ) -> None:
        self.service = service
        self.number = number
        self.lifecycle = lifecycle
        self.sock: socket.socket | None = None
        """Runner's end of the socket pair; None if the process does not run, or has closed its end."""
        self.popen: subprocess.Popen[bytes] | None = None
        self.shutdown_timeout = 0.0
        """Value of shutdown_timeout that the process was started with, in seconds."""
        self.generation = 0
        """Number of the newest routes that were sent to it; 0 for none."""
        self.unanswered = 0
        """Number of PrepareRoutes messages that it has not answered."""
        self._starts = 0
        self._listeners = listeners

    @property
    def kind(self) -> str:
        """Kind of its service."""
        return self.service.kind

    @property
    def name(self) -> str:
        """Name of the process in the log. Two with one number differ: one of them retires."""
        name = f"{self.kind} {self.number}" if self.service.numbered else self.kind
        if self.lifecycle.state is State.RETIRING and self.popen is not None:
            return f"{name} (retiring, process {self.popen.pid})"
        return name

    @property
    def identity(self) -> str:
        """Name of the process with its process id."""
        name = self.name
        return name if name.endswith(")") else f"{name} (process {self.pid})"

    @property
    def pid(self) -> int:
        """Process id, 0 if the process does not run."""
        return self.popen.pid if self.popen is not None else 0

    @property
    def alive(self) -> bool:
        """True from the start of the process until ``wait`` has returned its exit status."""
        return self.popen is not None

    def successor(self, lifecycle: Lifecycle) -> ChildProcess:
        """Return a process of the service with this number and these sockets, not started, with ``lifecycle``."""
        return ChildProcess(self.service, self.number, self._listeners, lifecycle)

    def start(
        self, config: Config, retiring: Mapping[str, int] | None = None, routes: InheritedRoutes | None = None
    ) -> None:
        """Start the process.

        Args:
            config: of the service.
            retiring: number of processes that retire, by kind.
            routes: those the process starts with.

        Raises:
            OSError: that is impossible (no memory, no more processes).
        """
        settings = config.runner
        self.shutdown_timeout = settings.shutdown_timeout
        self.generation, self.unanswered = routes.generation if routes is not None else 0, 0
        ours, theirs = socket.socketpair()
        with theirs:
            handover = Handover(
                theirs.fileno(),
                settings.process_beat_timeout,
                settings.shutdown_timeout,
                Owned(config.globals.rundir, config.globals.ipc_prefix, config.proxy.workers),
                self._starts,
                dict(retiring or {}),
                routes,
                describe(self._listeners),
            )
            self._starts += 1
            try:
                self.popen = self._popen(handover)
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        self.sock = ours

    def _popen(self, handover: Handover) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name not in _DROPPED_VARIABLES}
        environment[HANDOVER_VARIABLE] = handover.encode()
        if sys.path and sys.path[0] == _ROOT:  # running from the source tree, without being installed
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
        signal.pthread_sigmask(signal.SIG_BLOCK, RUNNER_SIGNALS)
        try:
            return subprocess.Popen(
                self.service.command(self.number),
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=handover.descriptors,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, RUNNER_SIGNALS)

    def signal(self, number: int) -> None:
        """Send a signal while the process is ``alive``: later its id may belong to another process.

        Args:
            number: of the signal.
        """
        if self.popen is not None:
            self.popen.send_signal(number)

    def send(self, message: RunnerMessage) -> None:
        """Send a message to the process; a process that is ending may lose it."""
        if self.sock is not None:
            with contextlib.suppress(OSError):
                self.sock.send(encode_message(message))

    def offer(self, generation: int, descriptor: int) -> bool:
        """Send new routes to be prepared.

        Args:
            generation: of the routes.
            descriptor: of the file that holds them.

        Returns:
            Whether they were sent.
        """
        if self.sock is None:
            return False
        try:
            socket.send_fds(self.sock, [encode_message(PrepareRoutes(generation))], [descriptor])
        except OSError:
            return False
        self.generation = generation
        self.unanswered += 1
        return True

    def answered(self, prepared: int, refused: int) -> None:
        """Note answers to PrepareRoutes.

        Args:
            prepared: number of generations that are prepared.
            refused: number of generations that the process had no descriptor for.
        """
        self.unanswered = max(0, self.unanswered - prepared - refused)
        if refused:
            self.generation = 0

    def read(self) -> bytes | None:
        """Return the bytes sent by the process; None if there are none now, empty at the end of the connection."""
        if self.sock is None:
            return b""
        try:
            return self.sock.recv(4096)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        """Close the socket pair."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def wait(self) -> int | None:
        """Return the exit status if the process has ended, else None. Does not block."""
        if self.popen is None:
            return None
        status = self.popen.poll()
        if status is not None:
            self.popen = None
        return status


def make_processes(
    services: Sequence[Service], listeners: Sequence[Sequence[ListeningSocket]], beat_timeout: float, now: float
) -> list[ChildProcess]:
    """Return the processes of all services, not started.

    Args:
        services: in the order of their start.
        listeners: listening sockets by number, for the service that listens.
        beat_timeout: seconds without a beat after which a process is killed.
        now: monotonic clock in seconds.
    """
    return [
        ChildProcess(service, number, listeners[number - 1] if service.listens else (), Lifecycle(beat_timeout, now))
        for service in services
        for number in range(1, service.count + 1)
    ]
