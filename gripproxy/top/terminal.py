"""The terminal of the live view: taken over while it lasts, and given back as it was."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
from typing import Any, Final

from rich.console import Console, RenderableType

__all__ = ["Terminal", "TerminalError"]

READ: Final = 4096
"""Bytes read at once."""
PATIENCE: Final = 0.2
"""Seconds for the terminal to take a frame; then it gets the rest of it later, and frames meanwhile are left out. One
that stands still (a hung ssh) must stop neither us nor a signal."""

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
"""Another screen than that of the shell, without a cursor; and back."""


class TerminalError(Exception):
    """There is no terminal that could show the live view; the text says what to do."""


class Terminal:
    """Standard input and output of this process. ``enter`` and ``leave`` may be called again and again."""

    def __init__(self) -> None:
        """Raises TerminalError."""
        if not sys.stdin.isatty() or not sys.stdout.isatty():
            which = "output" if sys.stdin.isatty() else "input"
            raise TerminalError(f"standard {which} is no terminal: use --once for one snapshot as text")
        if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
            raise TerminalError(
                f"the terminal cannot move its cursor (TERM is '{os.environ.get('TERM', '')}'): "
                "use --once for one snapshot as text"
            )
        self.input = sys.stdin.fileno()
        try:
            # A description of our own can be non-blocking without harm to the shell, which shares the other one.
            self._output = os.open(os.ttyname(sys.stdout.fileno()), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as e:
            raise TerminalError(f"the terminal cannot be opened: {e.strerror}: use --once for one snapshot") from e
        self._rest = b""
        self._before: list[Any] | None = None
        # Colours as the environment has them: NO_COLOR, TERM, COLORTERM.
        self._colors = Console().color_system

    def enter(self) -> None:
        """Take over: keys come one by one and are not shown."""
        self._before = termios.tcgetattr(self.input)
        modes = termios.tcgetattr(self.input)
        # Signals stay. Without IXON a Ctrl-S cannot stop us in the middle of drawing.
        modes[0] &= ~(termios.IXON | termios.ICRNL)
        modes[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.input, termios.TCSANOW, modes)
        self._send(ENTER)

    def leave(self) -> None:
        """Give back."""
        if self._before is not None:
            before, self._before = self._before, None
            try:
                termios.tcsetattr(self.input, termios.TCSANOW, before)
                self._send(LEAVE)
            except (OSError, termios.error):
                pass  # it is gone

    def close(self) -> None:
        """Give back, for good."""
        self.leave()
        os.close(self._output)

    def read(self) -> bytes:
        """Return what was typed; empty if the terminal is gone."""
        try:
            return os.read(self.input, READ)
        except OSError:
            return b""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines; 80 and 24 if the terminal does not know."""
        columns, lines = os.get_terminal_size(self._output)
        return columns or 80, lines or 24

    def draw(self, drawing: RenderableType, width: int, height: int) -> None:
        """Show a drawing of so many columns and lines; not if the terminal has not taken the one before.

        Raises OSError if the terminal is gone.
        """
        if self._rest and not self._send(""):
            return
        console = Console(
            width=width,
            height=height,
            color_system=self._colors,  # type: ignore[arg-type]
            force_terminal=True,
            legacy_windows=False,
            _environ={},
        )
        with console.capture() as capture:
            console.print(drawing, end="")
        lines = capture.get().split("\n")[:height]
        # Each line clears its rest: nothing flickers, as it would if all were cleared first.
        self._send("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")

    def _send(self, text: str) -> bool:
        """Write this behind what is left of before. Returns whether all of it was taken."""
        data = self._rest + text.encode()
        deadline = time.monotonic() + PATIENCE
        while data:
            try:
                data = data[os.write(self._output, data) :]
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([], [self._output], [], left)[1]:
                    break
        self._rest = data
        return not data
