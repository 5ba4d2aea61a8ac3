"""Turns of the event loop, shared by the WebSockets that have more to do than one turn has room for.

Work is measured in bytes: those that were made of what a peer sent, and a price for each frame. A turn of the loop has
a budget for all of them together. What is beyond it waits here, first come, first served, a share at a time, while the
loop sees to everybody else between two turns. Sans-I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["BUDGET", "FRAME_COST", "SHARE", "Turns", "Worker"]

BUDGET: Final = 1024 * 1024
"""Bytes of work in one turn of the loop: some milliseconds of inflating, checking, masking and writing."""

SHARE: Final = 256 * 1024
"""Bytes of work that one member does before the next one has its go."""

FRAME_COST: Final = 2048
"""Bytes of work that a frame counts for beside its content: what the shortest one costs in time."""


class Worker(Protocol):
    """A member that has work waiting."""

    def work(self) -> bool:
        """Do up to a share of it; returns whether there is more that can be done."""


class Turns:
    """The budget of each turn, and the members that wait for theirs.

    ``later(callback)`` runs the callback in the next turn of the loop. Members are bounded by the number of
    connections: one waits at most once, which it sees to itself.
    """

    __slots__ = ("_armed", "_later", "_left", "_waiting")

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        self._later = later
        self._left = BUDGET
        self._armed = False
        self._waiting: deque[Worker] = deque()

    @property
    def spent(self) -> bool:
        """Whether the budget of this turn is used up."""
        return self._left <= 0

    def spend(self, cost: int) -> bool:
        """Count work that was done. Returns whether there may be more of it in this turn; ``cost`` in bytes."""
        self._left -= cost
        self._arm()
        return self._left > 0

    def wait(self, member: Worker) -> None:
        """Have ``member.work`` called in one of the next turns, behind those that wait already."""
        self._waiting.append(member)
        self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._later(self._turn)

    def _turn(self) -> None:
        """Begin a new turn, with those that wait."""
        self._armed = False
        self._left = BUDGET
        waiting = self._waiting
        while waiting and self._left > 0:
            member = waiting.popleft()
            if member.work():
                waiting.append(member)
        if waiting:
            self._arm()
