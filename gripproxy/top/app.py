"""Application of ``gripproxy top``: the loop that reads stats sockets and keys, and draws (docs/top.md)."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final, Self

import zmq

from gripproxy.grip.errors import OperatorError
from gripproxy.live.model import SETTLING, LiveModel
from gripproxy.live.snapshot import Snapshot, as_data
from gripproxy.stats.subscriber import StatsSubscriber
from gripproxy.top.keys import Keys
from gripproxy.top.screen import plain, screen, text_of
from gripproxy.top.terminal import Terminal
from gripproxy.top.view import View

__all__ = ["CONNECT_TIMEOUT", "NotConnected", "live", "once"]

CONNECT_TIMEOUT: Final = 5.0
"""Seconds for the stats sockets to connect before ``--once`` continues with the connected ones."""
MAX_MESSAGE: Final = 65_536
"""Greatest length of a message in bytes; a longer one ends the connection. Events have some hundred bytes."""
FEW: Final = 200
"""Messages read in a turn below which the loop pauses, so that it wakes up for many together."""
PAUSE: Final = 20
"""Milliseconds of the pause; keys and signals end it."""
ESCAPE: Final = 0.05
"""Seconds after which an escape byte is the key, and not the beginning of a sequence."""
WIDE: Final = 400
"""Columns of plain text; a row is as wide as its content."""


class _Signals:
    """Signals received within a ``with`` block, and a descriptor that becomes readable with each."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.received: set[int] = set()
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
        """Return the signals received since the last call."""
        try:
            self._woken.recv(4096)
        except BlockingIOError:
            pass
        received, self.received = self.received, set()
        return received

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.received.add(number)


class _Sockets:
    """Subscribers of all stats sockets, and the model of their events.

    Args:
        endpoints: addresses of the stats sockets.
        control: further descriptors that end a wait.

    Raises:
        StatsSubscriberError: an address cannot be used.
    """

    def __init__(self, endpoints: Sequence[str], control: Sequence[int]) -> None:
        self._now = now = time.monotonic()
        self.model = LiveModel(endpoints, now)
        self._poller, self._control = zmq.Poller(), zmq.Poller()
        for descriptor in control:
            self._poller.register(descriptor, zmq.POLLIN)
            self._control.register(descriptor, zmq.POLLIN)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.subscribers: list[StatsSubscriber] = []
        try:
            for endpoint in dict.fromkeys(endpoints):
                self.subscribers.append(StatsSubscriber(self._context, endpoint, self, self._poller, now, MAX_MESSAGE))
        except ValueError:
            self.close()
            raise

    def listen(self, seconds: float) -> dict[Any, int]:
        """Wait for events, keys or signals, and process the events.

        Args:
            seconds: longest time to wait.

        Returns:
            The readable descriptors.
        """
        ready: dict[Any, int] = dict(self._poller.poll(max(0, math.ceil(seconds * 1000))))
        self._now = time.monotonic()
        taken = sum(subscriber.turn(ready, self._now) for subscriber in self.subscribers)
        if 0 < taken < FEW:
            ready.update(self._control.poll(PAUSE))
        return ready

    def taken(self, endpoint: str, messages: list[bytes]) -> None:
        take, now = self.model.take, self._now
        for message in messages:
            take(endpoint, message, now)

    def connected(self, endpoint: str) -> None:
        self.model.connected(endpoint, self._now)

    def disconnected(self, endpoint: str) -> None:
        self.model.disconnected(endpoint, self._now)

    def hindered(self, endpoint: str, why: str) -> None:
        self.model.hindered(endpoint, why)

    def overrun(self, endpoint: str) -> None:
        self.model.overrun(endpoint)

    def close(self) -> None:
        for subscriber in self.subscribers:
            subscriber.close()
        self._context.term()


class NotConnected(OperatorError):
    """No stats socket was connected within CONNECT_TIMEOUT."""


def once(endpoints: Sequence[str], view: View, interval: float, rows: int, as_json: bool = False) -> str:
    """Take one snapshot as text or JSON.

    The interval begins when all stats sockets are connected, or CONNECT_TIMEOUT is over. A signal ends it.

    Args:
        endpoints: addresses of the stats sockets.
        view: orders and filters of the tables.
        interval: seconds of the rates.
        rows: number of channels of the text.
        as_json: return an object of JSON, with a line end, whose members are those of ``Snapshot``.

    Returns:
        The text.

    Raises:
        NotConnected: no stats socket was connected.
        StatsSubscriberError: an address cannot be used.
    """
    with _Signals(signal.SIGINT, signal.SIGTERM) as signals:
        sockets = _Sockets(endpoints, [signals.fileno()])
        try:

            def listen(seconds: float, done: Callable[[], bool]) -> None:
                until = time.monotonic() + seconds
                while not signals.received and not done() and (left := until - time.monotonic()) > 0:
                    sockets.listen(left)

            listen(CONNECT_TIMEOUT, lambda: all(subscriber.connected for subscriber in sockets.subscribers))
            if not any(subscriber.connected for subscriber in sockets.subscribers):
                tried = ", ".join(subscriber.endpoint for subscriber in sockets.subscribers)
                raise NotConnected(
                    f"no stats socket answers at {tried}; is the service running, and is that its stats_spec?"
                )
            listen(SETTLING, lambda: False)
            sockets.model.snapshot(time.monotonic())
            listen(interval, lambda: False)
            snapshot = sockets.model.snapshot(time.monotonic())
        finally:
            sockets.close()
    if as_json:
        return json.dumps(as_data(snapshot), ensure_ascii=False) + "\n"
    return text_of(plain(snapshot, view, rows), WIDE)


def live(endpoints: Sequence[str], view: View, interval: float) -> int:
    """Show the live view until a key or a signal ends it.

    Args:
        endpoints: addresses of the stats sockets.
        view: state of the view.
        interval: seconds between two snapshots.

    Returns:
        The exit status 0.

    Raises:
        TerminalError: standard input and output cannot show the view.
        StatsSubscriberError: an address cannot be used.
    """
    terminal = Terminal()
    with _Signals(signal.SIGINT, signal.SIGTERM, signal.SIGWINCH, signal.SIGTSTP, signal.SIGHUP) as signals:
        try:
            sockets = _Sockets(endpoints, [signals.fileno(), terminal.input])
        except ValueError:
            terminal.close()
            raise
        try:
            _LiveView(terminal, signals, sockets, view, interval).run()
        except OSError:
            pass  # The terminal is closed.
        finally:
            terminal.close()
            sockets.close()
    return 0


class _LiveView:
    """The running live view."""

    def __init__(self, terminal: Terminal, signals: _Signals, sockets: _Sockets, view: View, interval: float) -> None:
        self._terminal = terminal
        self._signals = signals
        self._sockets = sockets
        self._view = view
        self._interval = interval
        self._keys = Keys()
        self._snapshot: Snapshot

    def run(self) -> None:
        """Draw until the view is over."""
        self._terminal.enter()
        self._snapshot = self._sockets.model.snapshot(time.monotonic())
        # The first one soon: gripproxy reports its present state immediately.
        due = time.monotonic() + min(0.3, self._interval)
        self._draw()
        while not self._view.over:
            ready = self._sockets.listen(
                min(due - time.monotonic(), ESCAPE if self._keys.unfinished else self._interval)
            )
            changed = self._typed(ready)
            changed |= self._handle(self._signals.take())
            if (now := time.monotonic()) >= due:
                # Snapshots continue while the view is paused, so that later rates are those of one interval.
                due = now + self._interval
                snapshot = self._sockets.model.snapshot(now)
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
                self._view.end()
        else:
            keys = self._keys.flush() if self._keys.unfinished else []
        for key in keys:
            self._view.press(key)
        return bool(keys)

    def _handle(self, signals: set[int]) -> bool:
        """Handle received signals; return whether to draw."""
        if signals & {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}:
            self._view.end()
        elif signal.SIGTSTP in signals:
            # Stop like any other program, with the shell's screen restored.
            self._terminal.leave()
            handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, handler)
            self._terminal.enter()
        return bool(signals)
