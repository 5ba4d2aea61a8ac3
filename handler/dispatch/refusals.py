"""Refused items and requests: counted by way in, and logged at a limited rate."""

from __future__ import annotations

from typing import Final

from gripproxy.process.log import log

__all__ = ["INTERVAL", "SHOWN", "WAYS", "Refusals"]

INTERVAL: Final = 10.0
"""Seconds between two lines about a way in. The first refusal is logged immediately; further ones are counted in the
next line. A publisher that only sends invalid items costs a line per interval, and not the disk."""

SHOWN: Final = 120
"""Bytes of a refused item or request shown in the log."""

WAYS: Final = ("PULL", "SUB", "HTTP", "command")
"""Ways in, as named in the log; the metrics name them in small letters."""

SKIPPED: Final = ("PULL", "SUB")
"""Ways in without answers."""


class _Way:
    """State of a way in: all refusals, those since the last line, and the time of the next line in seconds."""

    __slots__ = ("at", "held", "last", "total")

    def __init__(self) -> None:
        self.total = self.held = 0
        self.at = float("-inf")
        self.last = ""


class Refusals:
    """Refused items and requests. Sans-I/O but for the log; times are seconds of any clock."""

    __slots__ = ("_ways",)

    def __init__(self) -> None:
        self._ways = {way: _Way() for way in WAYS}

    def note(self, way: str, reason: str, data: bytes, now: float, channel: bytes | None = None) -> None:
        """Count a refusal, and log it unless a line about its way in was written within INTERVAL.

        Args:
            way: one of WAYS.
            reason: the fault, and the expectation.
            data: the refused bytes; the first SHOWN are logged.
            now: time in seconds.
            channel: the item's channel, if it is known.
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
        event = "item skipped" if way in SKIPPED else "request refused"
        log.warning(event, way=way, channel=channel, reason=reason, data=data[:SHOWN])

    def settle(self, now: float = float("inf")) -> None:
        """Log counted refusals of ways in whose INTERVAL is over; called once a second, and at the end.

        Args:
            now: time in seconds.
        """
        for way, state in self._ways.items():
            if state.held and now >= state.at:
                state.at = now + INTERVAL
                self._write(way, state)

    def totals(self) -> dict[str, int]:
        """Return the number of refusals by way in, in small letters."""
        return {way.lower(): state.total for way, state in self._ways.items()}

    def _write(self, way: str, state: _Way) -> None:
        event = "items skipped" if way in SKIPPED else "requests refused"
        log.warning(event, way=way, more=state.held, last_reason=state.last)
        state.held = 0
        state.last = ""
