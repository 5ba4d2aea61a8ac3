"""Signals of the runner as events of its selector, through the wake-up descriptor of ``signal.set_wakeup_fd``."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from types import FrameType
from typing import Final

__all__ = ["SignalPipe"]

_Handler = Callable[[int, FrameType | None], object] | int | None

QUIET: Final = (signal.SIGCHLD,)
"""Signals that only wake the loop: it looks at all children in each turn."""


class SignalPipe:
    """Calls functions of the loop for signals, and wakes the loop from other threads.

    Args:
        selector: of the loop; the data of each key is a function without arguments, called when its file is readable.
        handlers: function for each signal number, called in the loop.
    """

    def __init__(self, selector: selectors.BaseSelector, handlers: Mapping[int, Callable[[], None]]) -> None:
        self._selector = selector
        self._handlers = handlers
        self._in, self._out = socket.socketpair()
        self._before: dict[int, _Handler] = {}
        self._wakeup = -1
        for sock in (self._in, self._out):
            sock.setblocking(False)

    def open(self) -> None:
        """Take over the signals of the process. Call it in the main thread."""
        for number in (*self._handlers, *QUIET):
            # The number arrives through the wake-up descriptor; the handler only keeps the default action away.
            self._before[number] = signal.signal(number, lambda *_: None)
        self._wakeup = signal.set_wakeup_fd(self._out.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._in, selectors.EVENT_READ, self._readable)

    def wake(self) -> None:
        """Make the loop turn. May be called in any thread."""
        with contextlib.suppress(OSError):  # full: the loop turns anyway; closed: it has ended
            self._out.send(b"\0")  # no signal has the number 0

    def close(self, ignored: Collection[int] = ()) -> None:
        """Give the signals back.

        Args:
            ignored: signals to be ignored from now on, instead of getting the handlers they had before ``open``.
        """
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if number in ignored else handler)
        if self._before:
            self._selector.unregister(self._in)
        self._in.close()
        self._out.close()

    def _readable(self) -> None:
        self._handle(self._in.recv(4096))

    def _handle(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            handler = self._handlers.get(number)
            if handler is not None:
                handler()
