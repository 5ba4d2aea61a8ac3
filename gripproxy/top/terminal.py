"""Terminal of the live view: raw keys and an alternate screen, restored at the end."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
from typing import Any, Final

from rich.console import Console, RenderableType

from gripproxy.grip.errors import OperatorError

__all__ = ["Terminal", "TerminalError"]

READ: Final = 4096
"""Greatest number of bytes of a read."""
WRITE_TIMEOUT: Final = 0.2
"""Seconds for the terminal to accept a frame; then its remaining bytes are sent later, and frames meanwhile are
skipped. A stalled terminal (a hung ssh) must block neither the loop nor a signal."""

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
"""Switch to the alternate screen without a cursor, and back."""


class TerminalError(OperatorError):
    """The live view cannot be shown on standard input and output; the text has the remedy."""


class Terminal:
    """Standard input and output of this process. ``enter`` and ``leave`` may be called repeatedly.

    Raises:
        TerminalError: they are no terminal, or one that cannot show the view.
    """

    def __init__(self) -> None:
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
            # A file description that is not shared with the shell can be made non-blocking.
            self._output = os.open(os.ttyname(sys.stdout.fileno()), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as e:
            raise TerminalError(f"the terminal cannot be opened: {e.strerror}: use --once for one snapshot") from e
        self._rest = b""
        self._before: list[Any] | None = None
        # Colours by the environment: NO_COLOR, TERM, COLORTERM.
        self._colors = Console().color_system

    def enter(self) -> None:
        """Switch to the alternate screen and to single keys without echo."""
        self._before = termios.tcgetattr(self.input)
        modes = termios.tcgetattr(self.input)
        # Keys of signals stay. Without IXON a Ctrl-S cannot block the output.
        modes[0] &= ~(termios.IXON | termios.ICRNL)
        modes[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.input, termios.TCSANOW, modes)
        self._send(ENTER)

    def leave(self) -> None:
        """Restore the screen and the modes of the terminal."""
        if self._before is not None:
            before, self._before = self._before, None
            try:
                termios.tcsetattr(self.input, termios.TCSANOW, before)
                self._send(LEAVE)
            except (OSError, termios.error):
                pass  # The terminal is closed.

    def close(self) -> None:
        """Restore the terminal, and close its descriptor."""
        self.leave()
        os.close(self._output)

    def read(self) -> bytes:
        """Return the bytes of typed keys; empty if the terminal is closed."""
        try:
            return os.read(self.input, READ)
        except OSError:
            return b""

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of columns and lines; 80 and 24 if they are unknown."""
        columns, lines = os.get_terminal_size(self._output)
        return columns or 80, lines or 24

    def draw(self, drawing: RenderableType, width: int, height: int) -> None:
        """Show a frame, unless the terminal has not accepted the last one.

        Args:
            drawing: the frame.
            width: its columns.
            height: its lines.

        Raises:
            OSError: the terminal is closed.
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
        # Each line clears to its end: clearing the screen first would flicker.
        self._send("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")

    def _send(self, text: str) -> bool:
        """Write unsent bytes and ``text``; return whether the terminal accepted all of them."""
        data = self._rest + text.encode()
        deadline = time.monotonic() + WRITE_TIMEOUT
        while data:
            try:
                data = data[os.write(self._output, data) :]
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([], [self._output], [], left)[1]:
                    break
        self._rest = data
        return not data
