"""Timers for very many sessions: the members of each tick instead of one timer per connection.

Sans-I/O: the owner calls ``advance`` with its clock, and members that are due are called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["TICK", "Alarm", "Timed", "Wheel"]

TICK: Final = 0.05
"""Length of a tick in seconds: how late a timer may fire."""

_DUE: Final = -2
"""``tick`` of a member that is due and was not called yet."""


class Timed(Protocol):
    """Owner of one timer. ``tick`` belongs to the wheel; it is negative while no timer is set."""

    tick: int

    def on_timer(self, now: float) -> None:
        """Act on the timer.

        Args:
            now: time in seconds, of the clock that ``advance`` gets.
        """


def _raised(member: Timed, error: Exception) -> None:
    """Raise: the default without an error boundary."""
    raise error


class Wheel:
    """Timers, one per member. Setting one again moves it; cancelling one is O(1) and keeps no reference.

    Args:
        now: Time in seconds of the owner's clock.
        failed: Called with a member and the exception of its ``on_timer``, while it is handled; the others go on.
    """

    __slots__ = ("_current", "_failed", "_slots")

    def __init__(self, now: float, failed: Callable[[Timed, Exception], None] = _raised) -> None:
        # All members keep the same object as their tick; a dict of members takes half of the memory of a set.
        self._slots: dict[int, tuple[int, dict[Timed, None]]] = {}
        self._current = int(now / TICK)
        self._failed = failed

    def __len__(self) -> int:
        return sum(len(members) for _, members in self._slots.values())

    def set(self, member: Timed, due: float) -> None:
        """Set or move the timer of a member.

        Args:
            member: whose ``on_timer`` is called.
            due: time in seconds, of the clock that ``advance`` gets.
        """
        tick = int(due / TICK) + 1
        if tick <= self._current:
            tick = self._current + 1
        if member.tick == tick:
            return
        if member.tick >= 0:
            self.cancel(member)
        slot = self._slots.get(tick)
        if slot is None:
            self._slots[tick] = tick, {member: None}
        else:
            tick, members = slot
            members[member] = None
        member.tick = tick

    def cancel(self, member: Timed) -> None:
        """Cancel the timer of a member, if one is set.

        Args:
            member: the member.
        """
        slot = self._slots.get(member.tick)
        if slot is not None:
            members = slot[1]
            members.pop(member, None)
            if not members:
                del self._slots[member.tick]
        member.tick = -1

    def advance(self, now: float) -> None:
        """Call ``on_timer`` of every member that is due.

        Args:
            now: time in seconds.
        """
        target = int(now / TICK)
        if target <= self._current:
            return
        passed = range(self._current + 1, target + 1)
        self._current = target
        ticks = passed if len(passed) <= len(self._slots) else sorted(t for t in self._slots if t <= target)
        for tick in ticks:
            slot = self._slots.pop(tick, None)
            if slot is None:
                continue
            members = slot[1]
            for member in members:
                member.tick = _DUE
            rest = iter(members)
            while True:
                try:
                    for member in rest:
                        # A member called before may have cancelled the timer of this one, or set it again.
                        if member.tick == _DUE:
                            member.tick = -1
                            member.on_timer(now)
                    break
                except Exception as error:  # noqa: BLE001 - of one member; the time of the others has come too
                    self._failed(member, error)


class Alarm:
    """Timer for a session that has several.

    Args:
        call: called with the time in seconds when the timer is due.
    """

    __slots__ = ("_call", "tick")

    def __init__(self, call: Callable[[float], None]) -> None:
        self._call = call
        self.tick = -1

    def on_timer(self, now: float) -> None:
        """Call the session.

        Args:
            now: time in seconds.
        """
        self._call(now)
