"""Gives the exchange its time: a tick a second, and a call when something is due."""

from __future__ import annotations

import asyncio
from typing import Final

from .exchange import Exchange

__all__ = ["Clock"]

LOOK: Final = 0.1
"""Seconds between two looks at how late timers are."""

TICK: Final = 1.0
"""Seconds between two ticks (docs/grip.md §6.2 has waiting items checked every second)."""


class Clock:
    """The timers of an Exchange on the running event loop. Call ``look`` after anything that may change what is due."""

    def __init__(self, exchange: Exchange) -> None:
        self._loop = asyncio.get_running_loop()
        self._exchange = exchange
        self._due: asyncio.Handle | None = None
        self._due_at = 0.0
        self._tick = self._loop.call_later(TICK, self._on_tick)
        self._lateness = self._latest = 0.0
        self._looked = self._loop.time()
        self._lag = self._loop.call_later(LOOK, self._on_look)

    def late(self) -> float:
        """Return how late a timer was at most in the last second, in seconds."""
        return max(self._lateness, self._latest)

    def look(self) -> None:
        """See to it that the exchange is called when it next has something to do."""
        when = self._exchange.next_due()
        if self._due is not None:
            if when is not None and self._due_at <= when:
                return
            self._due.cancel()
            self._due = None
        if when is not None:
            # A handle does not always know its time: uvloop gives a plain one for a time that has passed.
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
        self._exchange.due(self._loop.time() + 0.001)
        self.look()

    def _on_look(self) -> None:
        self._lag = self._loop.call_later(LOOK, self._on_look)
        now = self._loop.time()
        self._lateness = max(self._lateness, now - self._looked - LOOK)
        self._looked = now

    def _on_tick(self) -> None:
        self._latest, self._lateness = self._lateness, 0.0
        self._tick = self._loop.call_later(TICK, self._on_tick)
        self._exchange.tick(self._loop.time())
