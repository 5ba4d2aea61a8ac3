"""Work for many sessions in turns: each turn ends by time, so that the loop serves everything else in between.

Sans-I/O. A caller with more to do than fits into this turn of the loop adds the remainder as a *work*. Works are served
one after the other, a slice each: one that costs much does not delay those behind it. New works are served before those
that have had a slice: behind a hundred costly ones, a cheap one would wait for a slice of each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["SLICE_TIME", "TURN_TIME", "Turns", "Work"]

TURN_TIME: Final = 0.005
"""Seconds of work for many sessions after which the loop gets a turn. A session's own share is bounded beside this: by
``filter_output_max``, the directives of a template and the work of a patch."""

SLICE_TIME: Final = 0.002
"""Seconds of a turn that one work gets before the next one is served."""

Work = Callable[[], bool]
"""Does a part, until ``Turns.late``, at least one step. Returns whether all is done. Its errors are its own."""


class Turns:
    """Works, served in turn.

    Args:
        later: calls back in the next turn of the loop.
        clock: the loop's time, in seconds.
    """

    __slots__ = ("_armed", "_clock", "_new", "_until", "_works", "later")

    def __init__(self, later: Callable[[Callable[[], None]], object], clock: Callable[[], float]) -> None:
        self.later = later
        self._clock = clock
        self._new: deque[Work] = deque()
        self._works: deque[Work] = deque()
        """Works that have had a slice."""
        self._until = 0.0
        """Time, in seconds, when this turn has to end; 0 before its first work."""
        self._armed = False

    def late(self) -> bool:
        """Return whether the time of this turn is over. The first call in a turn of the loop begins it: False."""
        now = self._clock()
        if self._until:
            return now >= self._until
        self._until = now + TURN_TIME
        self._arm()
        return False

    def add(self, work: Work) -> None:
        """Have a work done from the next turn of the loop on. Callers bound their number: one for each at most.

        Args:
            work: the work, of which nothing has been done yet.
        """
        self._new.append(work)
        self._arm()

    def again(self, work: Work) -> None:
        """Have a work done that has had time already: behind the new ones.

        Args:
            work: the work.
        """
        self._works.append(work)
        self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self.later(self._run)

    def _run(self) -> None:
        """Do works for one turn, new ones first; without any, the turn that has begun is over."""
        new, works = self._new, self._works
        count = len(works)
        end = self._clock() + TURN_TIME
        first = True
        try:
            while new and (first or self._clock() < end):
                first = False
                self._serve(new.popleft(), end)
            # At least one of the others: new works, however many, must not stop them.
            for number in range(count):
                if number and self._clock() >= end:
                    break
                self._serve(works.popleft(), end)
        finally:
            self._until = 0.0
            self._armed = False
            if works or new:
                self._arm()

    def _serve(self, work: Work, end: float) -> None:
        self._until = min(end, self._clock() + SLICE_TIME)
        if not work():
            self._works.append(work)
