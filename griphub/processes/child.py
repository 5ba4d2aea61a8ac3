"""Child's part of its start: arguments, signals and log.

A child ignores SIGINT, which a terminal sends to all processes: the hub ends it by closing the socket. SIGTERM ends it
after the work that it has.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import socket
from dataclasses import dataclass

from griphub.processes.frames import FrameSocket
from gripproxy.process.log import INFO, log

__all__ = ["Child", "ChildLog", "child_arguments", "child_parser", "reopen_on_hangup"]


@dataclass(frozen=True, slots=True)
class ChildLog:
    """Log of a child: that of the hub.

    Attributes:
        level: of the lines, 0 to 3.
        file: path of the file; None for standard output.
        json: lines are JSON.
    """

    level: int = INFO
    file: str | None = None
    json: bool = False


def child_arguments(path: pathlib.Path, settings: ChildLog) -> list[str]:
    """Return the arguments that every child has.

    Args:
        path: of the store.
        settings: of its log.
    """
    arguments = ["--store", str(path), "--log-level", str(settings.level)]
    if settings.file is not None:
        arguments += ["--log-file", settings.file]
    return [*arguments, "--log-json"] if settings.json else arguments


def child_parser() -> argparse.ArgumentParser:
    """Return a parser of the arguments that every child has."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--store", type=pathlib.Path, required=True)
    parser.add_argument("--log-level", type=int, default=INFO)
    parser.add_argument("--log-file")
    parser.add_argument("--log-json", action="store_true")
    return parser


def reopen_on_hangup() -> None:
    """Open the log file again with each SIGHUP, which the hub has blocked until now."""
    signal.signal(signal.SIGHUP, lambda *_: log.reopen())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


class Child:
    """The process of a child.

    Args:
        options: parsed arguments.
        name: of the process, for the log.
    """

    def __init__(self, options: argparse.Namespace, name: str) -> None:
        log.configure(options.log_level, options.log_file, json=options.log_json, process=name)
        self._wake_end, self._wakeup = os.pipe()
        for descriptor in (self._wake_end, self._wakeup):
            os.set_blocking(descriptor, False)
        self.terminating = False
        """True once SIGTERM has arrived."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminate)
        reopen_on_hangup()
        self.channel = FrameSocket(socket.socket(fileno=options.fd), self._wake_end)
        """Connection to the hub."""

    def wake(self) -> None:
        """End a wait of the channel; from any thread."""
        try:
            os.write(self._wakeup, b"\0")
        except BlockingIOError:
            # It is full: the wait ends anyway.
            pass

    def _terminate(self, *_: object) -> None:
        self.terminating = True
        self.wake()
