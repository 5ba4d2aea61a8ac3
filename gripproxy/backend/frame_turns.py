"""Turns of the event loop, shared by the WebSockets whose received frames are more work than one turn allows.

Work is measured in bytes: the content produced from the frames of peers, and a fixed cost for each frame. One budget
per turn of the loop covers all WebSockets. Work beyond it is queued: members run in order, a share at a time, and
between two turns the loop serves all other connections. Sans-I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["BUDGET", "FRAME_COST", "SHARE", "FrameTurns", "Worker"]

BUDGET: Final = 1024 * 1024
"""Bytes of work in one turn of the loop: some milliseconds of inflating, validating, masking and writing."""

SHARE: Final = 256 * 1024
"""Bytes of work that one member does before the next one runs."""

FRAME_COST: Final = 2048
"""Bytes of work added for each frame to those of its content: the time that the shortest frame takes."""


class Worker(Protocol):
    """Member of the turns: one connection of a WebSocket with frames to pass on."""

    def work(self) -> bool:
        """Return whether more work can be done, after doing up to SHARE bytes of it."""


class FrameTurns:
    """Budget of each turn, and queue of the members that wait for one.

    A member queues itself at most once, so the number of connections bounds the queue.

    Args:
        later: Runs a callback in the next turn of the loop.
    """

    __slots__ = ("_armed", "_later", "_left", "_waiting")

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        self._later = later
        self._left = BUDGET
        self._armed = False
        self._waiting: deque[Worker] = deque()

    @property
    def spent(self) -> bool:
        """True if the budget of this turn is used up."""
        return self._left <= 0

    def spend(self, cost: int) -> bool:
        """Return whether more work may be done in this turn, after subtracting ``cost`` bytes from its budget."""
        self._left -= cost
        self._arm()
        return self._left > 0

    def wait(self, member: Worker) -> None:
        """Queue ``member``: its ``work`` is called in one of the next turns, in the order of the queue."""
        self._waiting.append(member)
        self._arm()

    def _arm(self) -> None:
        """Schedule the next turn, unless scheduled already."""
        if not self._armed:
            self._armed = True
            self._later(self._turn)

    def _turn(self) -> None:
        """Begin a turn with a full budget; run queued members until it is used up."""
        self._armed = False
        self._left = BUDGET
        waiting = self._waiting
        while waiting and self._left > 0:
            member = waiting.popleft()
            if member.work():
                waiting.append(member)
        if waiting:
            self._arm()
