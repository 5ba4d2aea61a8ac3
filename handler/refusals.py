"""What publishers sent that cannot be used: counted by way in, and logged at a limited rate."""

from __future__ import annotations

from typing import Final

from gripproxy.log import log

__all__ = ["INTERVAL", "SHOWN", "WAYS", "Refusals"]

INTERVAL: Final = 10.0
"""Seconds between two lines about one way in. The first refusal is logged at once; those until the next line are
counted in it. So a publisher that sends nothing but nonsense costs a line, and not the disk."""

SHOWN: Final = 120
"""Bytes of what was refused that the log shows."""

WAYS: Final = ("PULL", "SUB", "HTTP", "command")
"""Ways in, as the log calls them; the metrics have the same in small letters."""

SKIPPED: Final = ("PULL", "SUB")
"""Ways in on which nothing can be answered."""


class _Way:
    """State of one way in: refusals in all, those since the last line, and when the next line may come."""

    __slots__ = ("at", "held", "last", "total")

    def __init__(self) -> None:
        self.total = self.held = 0
        self.at = float("-inf")
        self.last = ""


class Refusals:
    """Items and requests that were refused. Sans-I/O but for the log; time is any clock in seconds."""

    __slots__ = ("_ways",)

    def __init__(self) -> None:
        self._ways = {way: _Way() for way in WAYS}

    def note(self, way: str, reason: str, data: bytes, now: float) -> None:
        """Count one refusal, and log it unless a line about that way was written within INTERVAL.

        Args:
            way: one of WAYS.
            reason: what is wrong, and what would be right.
            data: what was refused; its beginning is shown.
            now: time in seconds.
        """
        state = self._ways[way]
        state.total += 1
        if now < state.at:
            state.held += 1
            state.last = reason
            return
        if state.held:
            self._write(way, state)
        state.at = now + INTERVAL
        log.warning(
            "%s: %s: %s: %r", way, "item skipped" if way in SKIPPED else "request refused", reason, data[:SHOWN]
        )

    def settle(self, now: float = float("inf")) -> None:
        """Log the refusals that had no line, where INTERVAL is over. To be called once a second, and at the end."""
        for way, state in self._ways.items():
            if state.held and now >= state.at:
                state.at = now + INTERVAL
                self._write(way, state)

    def totals(self) -> dict[str, int]:
        """Return how many were refused, by way in small letters."""
        return {way.lower(): state.total for way, state in self._ways.items()}

    def _write(self, way: str, state: _Way) -> None:
        what = "items skipped" if way in SKIPPED else "requests refused"
        log.warning("%s: %s: %d more, the last one: %s", way, what, state.held, state.last)
        state.held = 0
        state.last = ""
