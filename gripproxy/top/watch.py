"""``gripproxy top``: the loop that reads stats sockets and keys, and draws (docs/top.md)."""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final, Self

import zmq

from gripproxy.stats_source import StatsSource
from gripproxy.top.keys import Keys
from gripproxy.top.picture import SETTLING, Picture
from gripproxy.top.screen import plain, screen, text_of
from gripproxy.top.snapshot import Snapshot
from gripproxy.top.terminal import Terminal
from gripproxy.top.view import View

__all__ = ["PATIENCE", "NobodyThere", "live", "once"]

PATIENCE: Final = 5.0
"""Seconds for the stats sockets to answer before ``--once`` goes on with those that did."""
MAX_MESSAGE: Final = 65_536
"""Bytes of a message; more breaks the connection. Events have some hundred."""
FEW: Final = 200
"""Messages taken in one turn below which we pause, so that we wake up for many at once."""
PAUSE: Final = 20
"""ms of that pause; keys end it."""
ESCAPE: Final = 0.05
"""Seconds after which an escape is the key, and not the beginning of another one."""
WIDE: Final = 400
"""Columns of plain text; rows are as wide as they need to be."""


class _Signals:
    """Signals that came, while this is entered, and a descriptor that can be read when one has."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.came: set[int] = set()
        self._numbers = numbers

    def __enter__(self) -> Self:
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        self._handlers = {number: signal.signal(number, self._on_signal) for number in self._numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._woken.close()
        self._wake.close()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._woken.fileno()

    def take(self) -> set[int]:
        """Return the numbers that came since the last call."""
        try:
            self._woken.recv(4096)
        except BlockingIOError:
            pass
        came, self.came = self.came, set()
        return came

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.came.add(number)


class _Ears:
    """All stats sockets, and the picture of what they say. ``control``: descriptors that wake us up too."""

    def __init__(self, endpoints: Sequence[str], control: Sequence[int]) -> None:
        """Raises StatsSourceError."""
        self._now = now = time.monotonic()
        self.picture = Picture(endpoints, now)
        self._poller, self._control = zmq.Poller(), zmq.Poller()
        for descriptor in control:
            self._poller.register(descriptor, zmq.POLLIN)
            self._control.register(descriptor, zmq.POLLIN)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.sources: list[StatsSource] = []
        try:
            for endpoint in dict.fromkeys(endpoints):
                self.sources.append(StatsSource(self._context, endpoint, self, self._poller, now, MAX_MESSAGE))
        except ValueError:
            self.close()
            raise

    def listen(self, seconds: float) -> dict[Any, int]:
        """Wait so long for something, at most, and take in what comes. Returns which descriptors can be read."""
        ready: dict[Any, int] = dict(self._poller.poll(max(0, math.ceil(seconds * 1000))))
        self._now = time.monotonic()
        taken = sum(source.turn(ready, self._now) for source in self.sources)
        if 0 < taken < FEW:
            ready.update(self._control.poll(PAUSE))
        return ready

    def taken(self, endpoint: str, messages: list[bytes]) -> None:
        take, now = self.picture.take, self._now
        for message in messages:
            take(endpoint, message, now)

    def connected(self, endpoint: str) -> None:
        self.picture.connected(endpoint, self._now)

    def disconnected(self, endpoint: str) -> None:
        self.picture.disconnected(endpoint, self._now)

    def hindered(self, endpoint: str, why: str) -> None:
        self.picture.hindered(endpoint, why)

    def overrun(self, endpoint: str) -> None:
        self.picture.overrun(endpoint)

    def close(self) -> None:
        for source in self.sources:
            source.close()
        self._context.term()


class NobodyThere(Exception):
    """No stats socket could be connected to in time."""


def once(endpoints: Sequence[str], view: View, interval: float, rows: int) -> str:
    """Return one snapshot as text, taken over ``interval`` seconds, with the first ``rows`` channels.

    It begins when all stats sockets are connected, or PATIENCE is over. A signal ends it early. Raises NobodyThere,
    StatsSourceError.
    """
    with _Signals(signal.SIGINT, signal.SIGTERM) as signals:
        ears = _Ears(endpoints, [signals.fileno()])
        try:

            def listen(seconds: float, done: Callable[[], bool]) -> None:
                until = time.monotonic() + seconds
                while not signals.came and not done() and (left := until - time.monotonic()) > 0:
                    ears.listen(left)

            listen(PATIENCE, lambda: all(source.connected for source in ears.sources))
            if not any(source.connected for source in ears.sources):
                tried = ", ".join(source.endpoint for source in ears.sources)
                raise NobodyThere(f"nobody answers at {tried}; is it running, and is that its stats_spec?")
            listen(SETTLING, lambda: False)
            ears.picture.snapshot(time.monotonic())
            listen(interval, lambda: False)
            snapshot = ears.picture.snapshot(time.monotonic())
        finally:
            ears.close()
    return text_of(plain(snapshot, view, rows), WIDE)


def live(endpoints: Sequence[str], view: View, interval: float) -> int:
    """Show the live view, with a snapshot every ``interval`` seconds, until a key or a signal ends it; return 0.

    Raises TerminalError, StatsSourceError.
    """
    terminal = Terminal()
    with _Signals(signal.SIGINT, signal.SIGTERM, signal.SIGWINCH, signal.SIGTSTP, signal.SIGHUP) as signals:
        try:
            ears = _Ears(endpoints, [signals.fileno(), terminal.input])
        except ValueError:
            terminal.close()
            raise
        try:
            _Live(terminal, signals, ears, view, interval).run()
        except OSError:
            pass  # the terminal is gone: nobody sees it any more
        finally:
            terminal.close()
            ears.close()
    return 0


class _Live:
    """The live view as it runs."""

    def __init__(self, terminal: Terminal, signals: _Signals, ears: _Ears, view: View, interval: float) -> None:
        self._terminal = terminal
        self._signals = signals
        self._ears = ears
        self._view = view
        self._interval = interval
        self._keys = Keys()
        self._snapshot: Snapshot

    def run(self) -> None:
        """Take over the terminal, and draw until told to end."""
        self._terminal.enter()
        self._snapshot = self._ears.picture.snapshot(time.monotonic())
        # The first one soon: what is there is told at once.
        due = time.monotonic() + min(0.3, self._interval)
        self._draw()
        while not self._view.over:
            ready = self._ears.listen(min(due - time.monotonic(), ESCAPE if self._keys.unfinished else self._interval))
            changed = self._typed(ready)
            changed |= self._obey(self._signals.take())
            if (now := time.monotonic()) >= due:
                # While it is paused snapshots go on, so that rates are those of one interval when it goes on.
                due = now + self._interval
                snapshot = self._ears.picture.snapshot(now)
                if not self._view.paused:
                    self._snapshot = snapshot
                    changed = True
            if changed and not self._view.over:
                self._draw()

    def _draw(self) -> None:
        width, height = self._terminal.size
        self._terminal.draw(screen(self._snapshot, self._view, width, height), width, height)

    def _typed(self, ready: dict[Any, int]) -> bool:
        if self._terminal.input in ready:
            data = self._terminal.read()
            keys = self._keys.feed(data)
            if not data:
                self._view.over = True
        else:
            keys = self._keys.flush() if self._keys.unfinished else []
        for key in keys:
            self._view.press(key)
        return bool(keys)

    def _obey(self, came: set[int]) -> bool:
        """Do what signals ask for; return whether to draw."""
        if came & {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}:
            self._view.over = True
        elif signal.SIGTSTP in came:
            # Stopped like any other program, with the shell's screen in its place.
            self._terminal.leave()
            handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, handler)
            self._terminal.enter()
        return bool(came)
