"""Lane: places for one kind of requests, and the pace at which they are taken. Sans-I/O: time is an argument.

Places bound the requests under way, not the processor: thousands of callbacks that refuse connections immediately, or
acknowledge the largest events as fast as they can, would take it from all others.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from griphub.sender.host_shares import HostShares

__all__ = ["BURST", "Lane"]

BURST: Final = 0.1
"""Seconds for which places that were not taken at their time are taken faster."""

K = TypeVar("K")


class Lane(Generic[K]):
    """Places for one kind of requests.

    Args:
        shares: the places.
        interval: least number of seconds between two requests; 0 for any number.
        part: part of each second that beginning them may take; 1 for all of it.

    Attributes:
        shares: that of the arguments.
        waits: whether a request waits for nothing but its time, which is ``at``.
        at: monotonic time in seconds before which no place is taken.
    """

    __slots__ = ("_interval", "_rest", "at", "shares", "waits")

    def __init__(self, shares: HostShares[K], interval: float = 0.0, part: float = 1.0) -> None:
        self.shares: Final = shares
        self._interval = interval
        self._rest = 1 / part - 1
        self.waits = False
        self.at = float("-inf")

    def take(self, now: float) -> K | None:
        """Return the next subscription, which has a place then.

        Args:
            now: monotonic time in seconds.

        Returns:
            None if there is none that may have a place now.
        """
        early = now < self.at
        self.waits = early and len(self.shares) > 0
        return None if early else self.shares.take()

    def taken(self, began: float, ended: float) -> None:
        """Note the time that the beginning of a request has taken.

        Args:
            began: monotonic time in seconds.
            ended: the time after it.
        """
        if self._interval:
            self.at = max(self.at, began - BURST) + self._interval
        if self._rest:
            self.at = max(self.at, ended + (ended - began) * self._rest)
