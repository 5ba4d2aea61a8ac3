"""Timers for very many sessions: one set per tick instead of one timer per connection.

Sans-I/O: the owner calls ``advance`` with its clock and is told what is due.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["TICK", "Alarm", "Timed", "Wheel"]

TICK: Final = 0.05
"""Length of a tick in seconds: how late a timer may fire."""

_DUE: Final = -2
"""``tick`` of a member whose time has come and that was not called yet."""


class Timed(Protocol):
    """Something with one timer. ``tick`` is the wheel's own bookkeeping, negative while nothing is set."""

    tick: int

    def on_timer(self, now: float) -> None:
        """The time set with ``Wheel.set`` has come; ``now`` in seconds of the owner's clock."""


class Wheel:
    """One timer per member; setting it again moves it, ending a member is O(1) and keeps nothing alive."""

    __slots__ = ("_current", "_slots", "failed")

    def __init__(self, now: float) -> None:
        self._slots: dict[int, set[Timed]] = {}
        self._current = int(now / TICK)
        self.failed: Callable[[Timed, Exception], None] = _raised
        """Called when an ``on_timer`` went wrong, while the exception is handled; the other members have their time."""

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def set(self, member: Timed, due: float) -> None:
        """Have ``member.on_timer`` called at ``due`` (seconds, same clock as ``advance``), instead of before."""
        tick = int(due / TICK) + 1
        if tick <= self._current:
            tick = self._current + 1
        if member.tick == tick:
            return
        if member.tick >= 0:
            self.cancel(member)
        member.tick = tick
        slot = self._slots.get(tick)
        if slot is None:
            self._slots[tick] = {member}
        else:
            slot.add(member)

    def cancel(self, member: Timed) -> None:
        """Forget the member's timer. Nothing happens if none is set."""
        slot = self._slots.get(member.tick)
        if slot is not None:
            slot.discard(member)
            if not slot:
                del self._slots[member.tick]
        member.tick = -1

    def advance(self, now: float) -> None:
        """Call ``on_timer`` of every member whose time has come by ``now``."""
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
            for member in slot:
                member.tick = _DUE
            rest = iter(slot)
            while True:
                try:
                    for member in rest:
                        # One that ran before may have ended this one, or set it again.
                        if member.tick == _DUE:
                            member.tick = -1
                            member.on_timer(now)
                    break
                except Exception as error:  # noqa: BLE001 - of one member; the time of the others has come too
                    self.failed(member, error)


class Alarm:
    """A timer of its own for a session that has several: calls ``call(now)``."""

    __slots__ = ("_call", "tick")

    def __init__(self, call: Callable[[float], None]) -> None:
        self._call = call
        self.tick = -1

    def on_timer(self, now: float) -> None:
        """The time has come."""
        self._call(now)


def _raised(member: Timed, error: Exception) -> None:
    """Stands in until there is somebody who deals with what goes wrong."""
    raise error
