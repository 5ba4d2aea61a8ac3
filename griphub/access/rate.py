"""Rates: how often an owner may do something, as a token bucket for each of them."""

from __future__ import annotations

from typing import Final

from griphub.access.quota import LimitReached

__all__ = ["OWNERS_MAX", "RateLimit"]

OWNERS_MAX: Final = 10_000
"""Number of owners that are remembered; the one that spent longest ago is forgotten first: its bucket is full again."""


class RateLimit:
    """Limit per minute, with a burst.

    Args:
        name: of the limit, for the answer.
        per_minute: turns of one owner per minute, at least 1.
        burst: turns that an owner may take together after a pause, at least 1.
        owners_max: number of owners that are remembered.

    Raises:
        ValueError: a number is below 1.
    """

    __slots__ = ("_burst", "_full_at", "_interval", "_name", "_owners_max", "_per_minute")

    def __init__(self, name: str, per_minute: int, burst: int, owners_max: int = OWNERS_MAX) -> None:
        if min(per_minute, burst, owners_max) < 1:
            raise ValueError(f"{name}: {per_minute} per minute, {burst} together, {owners_max} owners: at least 1 each")
        self._name = name
        self._per_minute = per_minute
        self._burst = burst
        self._owners_max = owners_max
        self._interval = 60 / per_minute
        # Time at which the bucket of an owner is full again, in seconds; the owner that spent last is at the end.
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, owner: str, now: float) -> float:
        """Return the time until an owner may take a turn, in seconds; 0 for now.

        Args:
            owner: key of the owner, or an address.
            now: monotonic time in seconds.
        """
        full_at = self._full_at.get(owner)
        if full_at is None:
            return 0.0
        return max(0.0, full_at - now - (self._burst - 1) * self._interval)

    def spend(self, owner: str, now: float) -> None:
        """Take a turn.

        Args:
            owner: key of the owner, or an address.
            now: monotonic time in seconds.

        Raises:
            LimitReached: the owner has none left; it costs nothing to be refused.
        """
        wait = self.wait(owner, now)
        if wait > 0:
            raise LimitReached(self._name, self._per_minute, "owner", max(1.0, wait))
        full_at = max(now, self._full_at.pop(owner, now)) + self._interval
        if len(self._full_at) >= self._owners_max:
            del self._full_at[next(iter(self._full_at))]
        self._full_at[owner] = full_at
