"""Host shares: places for requests, so that a dead host or a hostile owner has its own places only. Sans-I/O.

Subscriptions that wait are grouped by owner and host. Owners have turns, within them their hosts, within these their
subscriptions in order. Neither a host nor an owner has more than its share of the places. Then those of others are free
however long a host takes for each answer.

A group waits in one of two places: with its owner (``active``), or, found there while its host had no place left, with
its host (``parked``). An owner that has places left and active groups is in the sequence of turns; so is a host that
has places left and parked groups, in the name of their owners. So a group that can run is always in the sequence, and
no turn looks at the groups of hosts without places again and again: there may be ten thousand.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

__all__ = ["HOST_MAX", "OWNER_MAX", "TOTAL_MAX", "HostShares"]

TOTAL_MAX: Final = 200
"""Places in all. Each has a connection, and in memory at most a page of events."""

HOST_MAX: Final = 10
"""Places of one host, of all owners together."""

OWNER_MAX: Final = 40
"""Places of one owner, on all hosts together."""

K = TypeVar("K")


@dataclass(slots=True, eq=False)
class _Owner(Generic[K]):
    """Owner with subscriptions that wait or have places."""

    name: str
    running: int = 0
    active: OrderedDict[_Group[K], None] = field(default_factory=OrderedDict)
    groups: dict[str, _Group[K]] = field(default_factory=dict)
    """All its groups, by host."""


@dataclass(slots=True, eq=False)
class _Host(Generic[K]):
    """Host that subscriptions wait for or have places at."""

    name: str
    running: int = 0
    parked: OrderedDict[_Group[K], None] = field(default_factory=OrderedDict)
    groups: int = 0
    """Number of its groups, active ones too."""


@dataclass(slots=True, eq=False)
class _Group(Generic[K]):
    """Subscriptions of one owner that wait for one host, in order; there is at least one."""

    owner: _Owner[K]
    host: _Host[K]
    keys: OrderedDict[K, None] = field(default_factory=OrderedDict)

    def line(self) -> OrderedDict[_Group[K], None]:
        """Return the line that it waits in: its host's or its owner's."""
        return self.host.parked if self in self.host.parked else self.owner.active


@dataclass(slots=True, eq=False)
class _Place(Generic[K]):
    """Place that a subscription has."""

    owner: _Owner[K]
    host: _Host[K]
    again: tuple[str, str] | None = None
    """Owner and host if it waits for its next place already."""


class HostShares(Generic[K]):
    """Subscriptions that wait for a place, and those that have one.

    Args:
        total: places in all.
        host_max: places of one host.
        owner_max: places of one owner.
    """

    __slots__ = ("_host_max", "_hosts", "_owner_max", "_owners", "_places", "_total", "_turns", "_waiting")

    def __init__(self, total: int = TOTAL_MAX, host_max: int = HOST_MAX, owner_max: int = OWNER_MAX) -> None:
        self._total = total
        self._host_max = host_max
        self._owner_max = owner_max
        self._owners: dict[str, _Owner[K]] = {}
        self._hosts: dict[str, _Host[K]] = {}
        self._waiting: dict[K, _Group[K]] = {}
        self._places: dict[K, _Place[K]] = {}
        self._turns: OrderedDict[_Owner[K] | _Host[K], None] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of subscriptions that wait, without those that have a place."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of places in use."""
        return len(self._places)

    def add(self, key: K, owner: str, host: str) -> None:
        """Let a subscription wait for a place.

        Args:
            key: of the subscription. One that waits keeps its turn; one that has a place waits when it has finished.
            owner: key of its owner.
            host: name of the host, in the form in which equal hosts have equal names.
        """
        if key in self._waiting:
            return
        place = self._places.get(key)
        if place is not None:
            place.again = (owner, host)
            return
        group = self._group(owner, host)
        group.keys[key] = None
        self._waiting[key] = group

    def take(self) -> K | None:
        """Return the next subscription, which has a place then; None if there is none that may run now."""
        if len(self._places) >= self._total:
            return None
        while self._turns:
            turn, _ = self._turns.popitem(last=False)
            group = self._of_owner(turn) if isinstance(turn, _Owner) else self._of_host(turn)
            if group is not None:
                return self._placed(group, turn.active if isinstance(turn, _Owner) else turn.parked)
        return None

    def finished(self, key: K) -> None:
        """Give the place of a subscription back.

        Args:
            key: of the subscription.

        Raises:
            ValueError: it has no place.
        """
        place = self._places.pop(key, None)
        if place is None:
            raise ValueError(f"{key!r} has no place to give back")
        owner, host = place.owner, place.host
        owner.running -= 1
        host.running -= 1
        self._enqueue(owner, host)
        self._forget(owner, host)
        if place.again is not None:
            self.add(key, *place.again)

    def remove(self, key: K) -> bool:
        """Let a subscription wait no more; a place that it has stays its own until it has finished.

        Args:
            key: of the subscription.

        Returns:
            Whether it waited.
        """
        place = self._places.get(key)
        if place is not None:
            waited, place.again = place.again is not None, None
            return waited
        group = self._waiting.pop(key, None)
        if group is None:
            return False
        del group.keys[key]
        if not group.keys:
            del group.line()[group]
            self._drop(group)
        return True

    # --- groups and their turns

    def _group(self, owner_name: str, host_name: str) -> _Group[K]:
        owner = self._owners.get(owner_name)
        if owner is None:
            owner = self._owners[owner_name] = _Owner(owner_name)
        group = owner.groups.get(host_name)
        if group is None:
            host = self._hosts.get(host_name)
            if host is None:
                host = self._hosts[host_name] = _Host(host_name)
            host.groups += 1
            group = owner.groups[host_name] = _Group(owner, host)
            owner.active[group] = None
            self._enqueue(owner, host)
        return group

    def _of_owner(self, owner: _Owner[K]) -> _Group[K] | None:
        """Return the owner's next group that can run, out of its line; those of hosts without a place are parked."""
        if owner.running >= self._owner_max:
            return None
        while owner.active:
            group, _ = owner.active.popitem(last=False)
            if group.host.running < self._host_max:
                return group
            group.host.parked[group] = None
        return None

    def _of_host(self, host: _Host[K]) -> _Group[K] | None:
        """Return the host's next parked group that can run, out of its line.

        Those of owners without a place return to them: they are in the sequence again when the owner has one.
        """
        if host.running >= self._host_max:
            return None
        while host.parked:
            group, _ = host.parked.popitem(last=False)
            if group.owner.running < self._owner_max:
                return group
            group.owner.active[group] = None
        return None

    def _placed(self, group: _Group[K], line: OrderedDict[_Group[K], None]) -> K:
        """Give a place to the first of a group, which returns to the end of its line."""
        key, _ = group.keys.popitem(last=False)
        del self._waiting[key]
        owner, host = group.owner, group.host
        owner.running += 1
        host.running += 1
        self._places[key] = _Place(owner, host)
        if group.keys:
            line[group] = None
        else:
            self._drop(group)
        self._enqueue(owner, host)
        return key

    def _enqueue(self, owner: _Owner[K], host: _Host[K]) -> None:
        """Put an owner and a host at the end of the turns, unless they have a turn, or no group or place for one."""
        if owner.active and owner.running < self._owner_max:
            self._turns.setdefault(owner)
        if host.parked and host.running < self._host_max:
            self._turns.setdefault(host)

    def _drop(self, group: _Group[K]) -> None:
        """Forget an empty group that is in no line any more."""
        del group.owner.groups[group.host.name]
        group.host.groups -= 1
        self._forget(group.owner, group.host)

    def _forget(self, owner: _Owner[K], host: _Host[K]) -> None:
        if not owner.running and not owner.groups:
            self._owners.pop(owner.name, None)
            self._turns.pop(owner, None)
        if not host.running and not host.groups:
            self._hosts.pop(host.name, None)
            self._turns.pop(host, None)
