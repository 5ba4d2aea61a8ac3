"""Timers of the handler: a tick a second, a call when something is due, and the lag of the event loop."""

from __future__ import annotations

import asyncio
from typing import Final

from .dispatcher import Dispatcher

__all__ = ["Timers"]

LAG_INTERVAL: Final = 0.1
"""Seconds between two measurements of how late timers are."""

TICK: Final = 1.0
"""Seconds between two ticks (docs/grip.md §6.2: waiting items are checked every second)."""


class Timers:
    """The timers of an Dispatcher on the running event loop.

    Args:
        dispatcher: its ``due`` and ``tick`` are called.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._loop = asyncio.get_running_loop()
        self._dispatcher = dispatcher
        self._due: asyncio.Handle | None = None
        self._due_at = 0.0
        self._tick = self._loop.call_later(TICK, self._on_tick)
        self._lateness = self._latest = 0.0
        self._measured = self._loop.time()
        self._lag = self._loop.call_later(LAG_INTERVAL, self._measure)

    def late(self) -> float:
        """Return the longest delay of a timer in the last second, in seconds."""
        return max(self._lateness, self._latest)

    def schedule(self) -> None:
        """Set the timer of the next call of ``due``; to be called after anything that may change its time."""
        when = self._dispatcher.next_due()
        if self._due is not None:
            if when is not None and self._due_at <= when:
                return
            self._due.cancel()
            self._due = None
        if when is not None:
            # The time is kept here: uvloop returns a plain handle, without one, for a time in the past.
            self._due_at = when
            self._due = self._loop.call_at(when, self._on_due)

    def close(self) -> None:
        """Stop all timers."""
        self._tick.cancel()
        self._lag.cancel()
        if self._due is not None:
            self._due.cancel()

    def _on_due(self) -> None:
        self._due = None
        # Timers of the loop have a resolution of a millisecond and may be that early.
        self._dispatcher.due(self._loop.time() + 0.001)
        self.schedule()

    def _measure(self) -> None:
        self._lag = self._loop.call_later(LAG_INTERVAL, self._measure)
        now = self._loop.time()
        self._lateness = max(self._lateness, now - self._measured - LAG_INTERVAL)
        self._measured = now

    def _on_tick(self) -> None:
        self._latest, self._lateness = self._lateness, 0.0
        self._tick = self._loop.call_later(TICK, self._on_tick)
        self._dispatcher.tick(self._loop.time())
