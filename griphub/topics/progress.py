"""Progress of watchers: times at which each range gets it, and stamps that make its ids unique. Sans-I/O.

Ranges of one topic are spread evenly over the interval of the topic, each at a phase of its own, so that ten thousand
ranges with an interval of ten seconds get a thousand items in each second, not ten thousand in one of ten. A phase
comes once in each interval, so the first progress of a watcher comes within one interval of its start, too.
"""

from __future__ import annotations

import heapq
import math
import zlib
from typing import Final

from griphub.topics.channel_index import HeldRange

__all__ = ["LOOK", "RESERVE", "ProgressSchedule", "ProgressStamps"]

LOOK: Final = 60.0
"""Seconds after which the interval of a range is looked at again: a shorter one counts from then on."""

MOMENT: Final = 0.1
"""Seconds after which progress that could not be made is tried again."""

RESERVE: Final = 60_000_000
"""Microseconds for which stamps are reserved in the store at a time."""


class ProgressStamps:
    """Source of stamps, microseconds of the clock: strictly increasing, also when the clock goes back.

    The store keeps a stamp above all that were given, so that a later start gives others, also with a clock that is
    behind. It is written ahead, for a minute at a time.

    Args:
        first: stamp above all that were given before, in microseconds since 1970.
    """

    def __init__(self, first: int = 0) -> None:
        self.last = first
        """Stamp that was given last, or before the first one."""
        self._reserved = first
        self._asked = first

    def begin(self, first: int) -> None:
        """Begin above ``first``, the stamp that the store has kept."""
        self.last = max(self.last, first)

    def next(self, now: int) -> int:
        """Return a stamp that was not given before.

        Args:
            now: microseconds since 1970.
        """
        self.last = now if now > self.last else self.last + 1
        return self.last

    def wanted(self, now: int) -> int | None:
        """Return the stamp up to which the store has to reserve now; None while enough are reserved, or asked for.

        Args:
            now: microseconds since 1970.
        """
        ahead = max(self.last, now)
        if ahead + RESERVE // 2 <= self._asked:
            return None
        self._asked = ahead + RESERVE
        return self._asked

    def reserved(self, until: int) -> None:
        """Note that the store has reserved stamps ``until`` this one."""
        self._reserved = max(self._reserved, until)

    def failed(self) -> None:
        """Note that the store could not reserve: it is asked again."""
        self._asked = self._reserved


class ProgressSchedule:
    """Times at which ranges get progress."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, float, HeldRange]] = []
        """Heap of the time to look, a number that orders equal ones, the time that is due, and the range."""
        self._order = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, held: HeldRange, interval: float, now: float) -> None:
        """Schedule the progress of a range, within an interval from now; a range that is scheduled stays as it is.

        Args:
            held: a range of the index that has a watcher.
            interval: seconds between two reports.
            now: time in seconds.
        """
        if not held.watched:
            held.watched = True
            self._push(held, _following(held, interval, now), now)

    def take(self, now: float) -> tuple[HeldRange, bool] | None:
        """Return the next range to look at, and forget it: ``again`` schedules it once more, or ``end`` does not.

        Args:
            now: time in seconds.

        Returns:
            The range, and whether its progress is due; None if there is nothing to look at.
        """
        if not self._waiting or self._waiting[0][0] > now:
            return None
        _, _, due, held = heapq.heappop(self._waiting)
        return held, due <= now

    def again(self, held: HeldRange, interval: float, now: float) -> None:
        """Schedule the next progress of a range that was taken.

        Args:
            held: the range.
            interval: seconds between two reports, as it is now.
            now: time in seconds.
        """
        self._push(held, _following(held, interval, now), now)

    def soon(self, held: HeldRange, now: float) -> None:
        """Schedule a range that was taken once more, a moment later: it could not have its progress.

        Args:
            held: the range.
            now: time in seconds.
        """
        self._push(held, now + MOMENT, now)

    def end(self, held: HeldRange) -> None:
        """Note that ``held``, a range that was taken, has no watchers any more."""
        held.watched = False

    def lag(self, now: float) -> float:
        """Return the seconds by which progress is late: for which the range that is first has been waiting.

        Args:
            now: time in seconds.
        """
        return max(0.0, now - self._waiting[0][0]) if self._waiting else 0.0

    def _push(self, held: HeldRange, due: float, now: float) -> None:
        self._order += 1
        heapq.heappush(self._waiting, (min(due, now + LOOK), self._order, due, held))


def _following(held: HeldRange, interval: float, now: float) -> float:
    """Return the time of the next progress of a range."""
    name = f"{held.number}/{held.keys.low}/{held.keys.high}/{held.keys.keyed}"
    phase = zlib.crc32(name.encode("utf-8", "surrogatepass")) / 2**32
    due = (math.floor(now / interval - phase) + 1 + phase) * interval
    # At its own time rounding may find the same one.
    return due if due > now else due + interval
