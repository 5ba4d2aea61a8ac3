"""Freshness: how long changes of articles wait beside a busy one. Sans-I/O."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

FAIR = 2
"""Values of the busy article that may go before a change of another one: that which is worked on as it arrives, and the
newest one, if it was there before."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait of one change.

    Attributes:
        key: the article.
        seconds: from the event to its result.
        behind: number of values of the busy article that were worked off between the change's arrival and its turn.
    """

    key: str
    seconds: float
    behind: int


class Freshness:
    """Waits of the changes that one consumer works off.

    Args:
        busy: the busy article.
    """

    def __init__(self, busy: str) -> None:
        self.waits: list[Wait] = []
        """Waits of other articles."""
        self._busy = busy
        self._worked: list[float] = []

    @property
    def worked(self) -> int:
        """Number of values of the busy article that were worked off."""
        return len(self._worked)

    def add(self, key: str, event: float, arrival: float, now: float) -> None:
        """Note that a change was worked off, or is still waiting at the end.

        Args:
            key: the article.
            event: monotonic time of its event, seconds.
            arrival: monotonic time at which the consumer could have begun with it, seconds.
            now: monotonic time, seconds.
        """
        if key == self._busy:
            self._worked.append(now)
        else:
            self.waits.append(Wait(key, now - event, self.worked - bisect_right(self._worked, arrival)))

    @property
    def held_up(self) -> list[Wait]:
        """Waits behind more values of the busy article than is fair."""
        return [wait for wait in self.waits if wait.behind > FAIR]
