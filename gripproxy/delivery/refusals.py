"""Items refused for sessions because they exceed a bound: counted, and reported at a limited rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gripproxy.stats.counters import WorkerCounters

__all__ = ["INTERVAL", "KINDS_MAX", "REASON", "REPORTS", "Refusals"]

REASON: Final = "filter-limit"
"""Reason of dropped deliveries in the statistics."""

INTERVAL: Final = 1.0
"""Seconds in which refusals are collected before they are reported."""

REPORTS: Final = 5
"""Lines in one interval; further ones are summed up in one more."""

KINDS_MAX: Final = 1000
"""Pairs of channel and reason that are reported separately in one interval; others are only counted. With names of at
most 1,024 bytes, that is a megabyte."""


class _Kind:
    """Refusals on one channel by one filter."""

    __slots__ = ("reason", "sessions")

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.sessions = 0


class Refusals:
    """Counts refusals.

    Args:
        ledger: where undelivered items are counted.
        arm: ``arm(seconds, callback)`` calls back after that time.
        report: writes one line: channel (empty: several), reason, sessions.
    """

    __slots__ = ("_arm", "_kinds", "_ledger", "_others", "_report")

    def __init__(
        self,
        ledger: WorkerCounters,
        arm: Callable[[float, Callable[[], None]], object],
        report: Callable[[bytes, str, int], object],
    ) -> None:
        self._ledger = ledger
        self._arm = arm
        self._report = report
        self._kinds: dict[tuple[bytes, str], _Kind] = {}
        self._others = 0

    def add(self, channel: bytes, filter_name: str, reason: str) -> None:
        """Count an item refused for one session.

        Args:
            channel: full name.
            filter_name: the filter that refused it: one line is written for each in an interval.
            reason: text with numbers; the first one is reported.
        """
        self._ledger.dropped(REASON)
        if not self._kinds and not self._others:
            self._arm(INTERVAL, self._tell)
        kind = self._kinds.get((channel, filter_name))
        if kind is None:
            if len(self._kinds) >= KINDS_MAX:
                self._others += 1
                return
            kind = self._kinds[channel, filter_name] = _Kind(reason)
        kind.sessions += 1

    def _tell(self) -> None:
        kinds, self._kinds = self._kinds, {}
        others, self._others = self._others, 0
        for number, ((channel, _), kind) in enumerate(kinds.items()):
            if number < REPORTS:
                self._report(channel, kind.reason, kind.sessions)
            else:
                others += kind.sessions
        if others:
            self._report(b"", "as above, on further channels", others)
