"""Messages that a backend has the proxy send by itself: keep-alives and delayed messages (docs/grip.md §8.5)."""

from __future__ import annotations

from collections.abc import Callable

from gripproxy.sessions.context import SessionContext
from gripproxy.sessions.timer_wheel import Alarm
from gripproxy.stats.counters import RouteCounters

__all__ = ["Upkeep"]


class Upkeep:
    """Timers of one WebSocket, and the frames that they send.

    Args:
        context: the context shared by all sessions of the worker.
        send: sends a frame to the client.
        figures: counters of the route.
    """

    __slots__ = (
        "_alarm",
        "_context",
        "_delayed",
        "_delayed_alarm",
        "_figures",
        "_frame",
        "_idle",
        "_send",
        "_timeout",
        "written",
    )

    def __init__(self, context: SessionContext, send: Callable[[bytes], None], figures: RouteCounters) -> None:
        self._context = context
        self._figures = figures
        self._send = send
        self._frame: bytes | None = None
        self._idle = True
        self._timeout = 0
        self._alarm: Alarm | None = None
        self._delayed: bytes | None = None
        self._delayed_alarm: Alarm | None = None
        self.written = 0.0
        """Time, in seconds, of the last write to the client; kept by the session while ``active``."""

    @property
    def active(self) -> bool:
        """True while keep-alives are sent."""
        return self._frame is not None

    def keep_alive(self, frame: bytes | None, idle: bool, timeout: int) -> None:
        """Send a frame periodically, up to a second early.

        Args:
            frame: the frame; None ends it.
            idle: the interval counts from the last write.
            timeout: the interval in seconds.
        """
        if self._alarm is not None:
            self._context.wheel.cancel(self._alarm)
        self._frame, self._idle, self._timeout = frame, idle, timeout
        if frame is not None:
            if self._alarm is None:
                self._alarm = Alarm(self._on_keep_alive)
            self.written = self._context.clock()
            self._context.wheel.set(self._alarm, self.written + self._interval())

    def _interval(self) -> float:
        return max(0.0, self._timeout - self._context.random() * 0.999)

    def _on_keep_alive(self, now: float) -> None:
        frame, alarm = self._frame, self._alarm
        if frame is None or alarm is None:
            return
        interval = self._interval()
        if self._idle and now < self.written + self._timeout - 1 and now < self.written + interval:
            self._context.wheel.set(alarm, self.written + interval)
            return
        self._context.keep_alives += 1
        self._figures.activity += 1
        self._figures.client_messages_sent += 1
        self._context.wheel.set(alarm, now + interval)
        self._send(frame)

    def delay(self, frame: bytes, timeout: float) -> None:
        """Send a frame later; a delayed one that still waits is sent now.

        Args:
            frame: the frame.
            timeout: seconds until then.
        """
        self.flush()
        self._delayed = frame
        if self._delayed_alarm is None:
            self._delayed_alarm = Alarm(self._on_delayed)
        self._context.wheel.set(self._delayed_alarm, self._context.clock() + timeout)

    def flush(self) -> None:
        """Send the delayed message now, if one waits."""
        frame, self._delayed = self._delayed, None
        if frame is not None:
            if self._delayed_alarm is not None:
                self._context.wheel.cancel(self._delayed_alarm)
            self._figures.client_messages_sent += 1
            self._send(frame)

    def _on_delayed(self, now: float) -> None:
        self.flush()

    def cancel(self) -> None:
        """Cancel all timers: the session is over."""
        self._frame = self._delayed = None
        for alarm in (self._alarm, self._delayed_alarm):
            if alarm is not None:
                self._context.wheel.cancel(alarm)
