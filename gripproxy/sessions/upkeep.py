"""Messages that a backend has the proxy send by itself: keep-alives and delayed ones (docs/grip.md §8.5)."""

from __future__ import annotations

from collections.abc import Callable

from gripproxy.sessions.figures import Figures
from gripproxy.sessions.keeper import Keeper
from gripproxy.sessions.wheel import Alarm

__all__ = ["Upkeep"]


class Upkeep:
    """The timers of one WebSocket, and what they send. ``send(frame)`` writes a message; framed bytes throughout.

    ``figures`` are those of the WebSocket's route.
    """

    __slots__ = (
        "_alarm",
        "_delayed",
        "_delayed_alarm",
        "_figures",
        "_frame",
        "_idle",
        "_keeper",
        "_send",
        "_timeout",
        "written",
    )

    def __init__(self, keeper: Keeper, send: Callable[[bytes], None], figures: Figures) -> None:
        self._keeper = keeper
        self._figures = figures
        self._send = send
        self._frame: bytes | None = None
        self._idle = True
        self._timeout = 0
        self._alarm: Alarm | None = None
        self._delayed: bytes | None = None
        self._delayed_alarm: Alarm | None = None
        self.written = 0.0
        """When something was last written to the client, in seconds; kept up by the session while ``active``."""

    @property
    def active(self) -> bool:
        """Whether keep-alives are sent."""
        return self._frame is not None

    def keep_alive(self, frame: bytes | None, idle: bool, timeout: int) -> None:
        """Send ``frame`` every ``timeout`` seconds, less up to one; ``idle``: since the last write. None ends it."""
        if self._alarm is not None:
            self._keeper.wheel.cancel(self._alarm)
        self._frame, self._idle, self._timeout = frame, idle, timeout
        if frame is not None:
            if self._alarm is None:
                self._alarm = Alarm(self._on_keep_alive)
            self.written = self._keeper.clock()
            self._keeper.wheel.set(self._alarm, self.written + self._interval())

    def _interval(self) -> float:
        return max(0.0, self._timeout - self._keeper.random() * 0.999)

    def _on_keep_alive(self, now: float) -> None:
        frame, alarm = self._frame, self._alarm
        if frame is None or alarm is None:
            return
        interval = self._interval()
        if self._idle and now < self.written + self._timeout - 1 and now < self.written + interval:
            self._keeper.wheel.set(alarm, self.written + interval)
            return
        self._keeper.keep_alives += 1
        self._figures.activity += 1
        self._figures.client_messages_sent += 1
        self._keeper.wheel.set(alarm, now + interval)
        self._send(frame)

    def delay(self, frame: bytes, timeout: float) -> None:
        """Send ``frame`` after ``timeout`` seconds; one that still waits is sent now."""
        self.flush()
        self._delayed = frame
        if self._delayed_alarm is None:
            self._delayed_alarm = Alarm(self._on_delayed)
        self._keeper.wheel.set(self._delayed_alarm, self._keeper.clock() + timeout)

    def flush(self) -> None:
        """Send the delayed message now, if one waits."""
        frame, self._delayed = self._delayed, None
        if frame is not None:
            if self._delayed_alarm is not None:
                self._keeper.wheel.cancel(self._delayed_alarm)
            self._figures.client_messages_sent += 1
            self._send(frame)

    def _on_delayed(self, now: float) -> None:
        self.flush()

    def cancel(self) -> None:
        """The session is over."""
        self._frame = self._delayed = None
        for alarm in (self._alarm, self._delayed_alarm):
            if alarm is not None:
                self._keeper.wheel.cancel(alarm)
