"""A command in a terminal of its own: keys go in, the screen comes out.

Not a whole terminal: it knows the output of `gripproxy top`, frames that begin at the upper left corner and end by
clearing all lines below. Nothing here sleeps: each wait is for a screen, or the end of the process, with a deadline.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.support.service import ROOT

__all__ = ["Terminal", "top"]

PATIENCE = 30.0
"""Seconds for anything that has to happen."""
FRAME = re.compile(r"\x1b\[H((?:(?!\x1b\[H).)*?)\x1b\[K\x1b\[J", re.DOTALL)
STYLE = re.compile(r"\x1b\[[0-9;]*[mK]")


class Terminal:
    """A terminal of so many columns and lines, with a command in it."""

    def __init__(self, command: Sequence[str], columns: int = 80, lines: int = 24) -> None:
        self.command = list(command)
        self.ours, self.theirs = os.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.theirs)
        """Modes of the terminal before the command."""
        self.written = ""
        """All that was written."""

        def take_over() -> None:
            # Its own terminal, so that Ctrl-C and changes of its size reach it.
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=os.environ | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=take_over,
        )

    def resize(self, columns: int, lines: int) -> None:
        """Change the size, and notify the program."""
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.ours, keys.encode())

    @property
    def modes(self) -> list[Any]:
        """Modes of the terminal now."""
        return termios.tcgetattr(self.theirs)

    @property
    def screen(self) -> list[str]:
        """Lines of the last frame, without colours; none if there was no frame."""
        frames = FRAME.findall(self.written)
        return [STYLE.sub("", line).rstrip() for line in frames[-1].split("\r\n")] if frames else []

    def read(self, seconds: float) -> bool:
        """Read output, waiting for ``seconds`` at most; return whether there was any."""
        readable, _, _ = select.select([self.ours], [], [], seconds)
        if readable:
            with contextlib.suppress(OSError):
                self.written += os.read(self.ours, 65_536).decode(errors="replace")
        return bool(readable)

    def until(self, done: Callable[[list[str]], object]) -> list[str]:
        """Return the first screen from now on for which ``done`` is true."""
        deadline = time.monotonic() + PATIENCE
        while not (self.screen and done(self.screen)):
            assert time.monotonic() < deadline, "\n".join(["", *self.screen])
            assert self.process.poll() is None, self.written[-3000:]
            self.read(0.2)
        return self.screen

    def shows(self, *patterns: str) -> list[str]:
        """Return the first screen that has a line for each of these regular expressions."""
        return self.until(lambda lines: all(any(re.search(one, line) for line in lines) for one in patterns))

    def wait_for_text(self, pattern: str) -> None:
        """Return when something like this regular expression was written, in a frame or not."""
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.written):
            assert time.monotonic() < deadline, self.written[-3000:]
            self.read(0.2)

    def ends(self) -> int:
        """Wait until the command has ended; return its exit status."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "\n".join([f"{self.command} does not end", *self.screen])
            self.read(0.05)
        while self.read(0):
            pass
        return self.process.returncode

    def close(self) -> None:
        """End the command if it still runs, and the terminal."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@contextlib.contextmanager
def top(*arguments: str, columns: int = 80, lines: int = 24) -> Iterator[Terminal]:
    """The live view in a terminal, looking five times a second."""
    command = [sys.executable, "-m", "gripproxy", "top", "--interval=0.2", *arguments]
    terminal = Terminal(command, columns, lines)
    try:
        yield terminal
    finally:
        terminal.close()
