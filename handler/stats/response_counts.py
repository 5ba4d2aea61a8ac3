"""Response counts: responses to clients by route, status class and reason, since the start and since a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from gripproxy.grip.stats_format import ANSWERS

__all__ = ["OTHERS", "ROUTES_MAX", "ResponseCount", "ResponseCounts", "class_name"]

ROUTES_MAX: Final = 1000
"""Greatest number of route ids with counters of their own, a few dozen each; further routes count as OTHERS."""

OTHERS: Final = b"(others)"
"""Route id of the routes beyond ROUTES_MAX."""


class ResponseCount(NamedTuple):
    """Number of responses of a route with a class of the status and a reason."""

    route: bytes
    kind: int
    reason: str
    number: int


def class_name(kind: int) -> str:
    """Return the name of a class of status codes.

    Args:
        kind: its digit; 0: the client left before its response.

    Returns:
        ``2xx``, …; ``none`` for 0.
    """
    return f"{kind}xx" if kind else "none"


class ResponseCounts:
    """Numbers of responses."""

    def __init__(self) -> None:
        self.totals: dict[bytes, dict[tuple[int, str], int]] = {}
        """Numbers since the start, by route id, then class and reason."""
        self._fresh: dict[tuple[bytes, int, str], int] = {}
        """Numbers since the last call of ``take``."""

    def add(self, deltas: Iterable[tuple[bytes, int, str, int]]) -> None:
        """Add the responses reported by a worker.

        Args:
            deltas: route id, first digit of the status (0: the client left), one of ANSWERS, number.

        Raises:
            ValueError: a delta has the wrong shape.
            TypeError: a delta has the wrong shape.
        """
        for route, kind, reason, count in deltas:
            if not 0 <= kind <= 9:
                raise ValueError(f"{kind!r} is no class of a response")
            if reason not in ANSWERS:
                # The worker is newer than this handler.
                reason = "other"
            known = self.totals.get(route)
            if known is None:
                if len(self.totals) >= ROUTES_MAX:
                    route = OTHERS
                known = self.totals.setdefault(route, {})
            known[kind, reason] = known.get((kind, reason), 0) + count
            self._fresh[route, kind, reason] = self._fresh.get((route, kind, reason), 0) + count

    def take(self) -> Iterator[ResponseCount]:
        """Return the numbers since the last call that are not 0."""
        fresh, self._fresh = self._fresh, {}
        return (ResponseCount(*key, count) for key, count in fresh.items())
