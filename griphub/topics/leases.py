"""Leases of snapshots: versions that are being read, which the retention of a topic leaves alone for a while.

The versions of a topic are shared by the owners that read them: while all are leased, another owner takes the place of
the one that has most. The delay of a topic's retention is bounded however many leases follow one another: in time by
that of one lease from each demand on, and by a share of the topic's bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

__all__ = ["GROWTH", "LEASE_TIME", "SnapshotLeases"]

LEASE_TIME: Final = 60.0
"""Seconds for which a version is leased, from the first page of its first snapshot."""

GROWTH: Final = 0.1
"""Share of a topic's bytes that may be retained for leases beyond the bounds of the topic."""


@dataclass(slots=True)
class _Lease:
    """Lease of one version.

    Attributes:
        end: time in seconds at which it ends.
        readers: snapshots that use it, by owner.
    """

    end: float
    readers: Counter[str]


@dataclass(slots=True)
class _Delay:
    """Retention of a topic that waits for leases.

    Attributes:
        end: time in seconds at which it waits no longer for those below ``floor``.
        floor: that it demanded at the beginning.
        size: bytes of the topic before the first delay of a row.
    """

    end: float
    floor: int
    size: int


class SnapshotLeases:
    """Leased versions by topic.

    Args:
        most: greatest number of leases of a topic at a time.
    """

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._leases: dict[int, dict[int, _Lease]] = {}
        """Leases by topic and version, those of a topic in the order of their beginnings."""
        self._delays: dict[int, _Delay] = {}
        """Topics whose retention waits."""

    def take(self, number: int, version: int, now: float, owner: str) -> bool:
        """Lease a version of a topic.

        Args:
            number: of the topic.
            version: id of the version. Snapshots of equal versions share a lease, which is not renewed.
            now: time in seconds.
            owner: text that names the owner of the snapshot. An owner with more leases than others gives up its newest
                one for theirs, and for another one of its own: its first snapshots are read to their ends.

        Returns:
            False if the topic has too many leases.
        """
        leases = self._current(number, now)
        lease = leases.get(version)
        if lease is None:
            if not self._make_room(leases, owner):
                return False
            lease = leases[version] = _Lease(now + LEASE_TIME, Counter())
            self._leases[number] = leases
        lease.readers[owner] += 1
        return True

    def _make_room(self, leases: dict[int, _Lease], owner: str) -> bool:
        """End leases of the owner with the most until there is room for one more; False if each has one at most."""
        while len(leases) >= self._most:
            counts = Counter(each for lease in leases.values() for each in lease.readers)
            [(greediest, most)] = counts.most_common(1)
            if most <= counts[owner] + 1:
                greediest = owner
            if not counts[greediest] or (greediest != owner and most < 2):
                return False
            newest = [version for version, lease in leases.items() if greediest in lease.readers][-1]
            del leases[newest].readers[greediest]
            if not leases[newest].readers:
                del leases[newest]
        return True

    def floor(self, number: int, now: float, wanted: int, floor: int, size: int) -> int:
        """Return the floor that the leases of a topic leave to its retention.

        Args:
            number: of the topic.
            now: time in seconds.
            wanted: floor that the retention demands.
            floor: of the topic. Leases of versions below it are too late, and end.
            size: bytes of the topic's events.
        """
        leases = self._current(number, now, floor)
        least = min(leases, default=wanted)
        if least >= wanted:
            self._delays.pop(number, None)
            return wanted
        delay = self._delays.setdefault(number, _Delay(now + LEASE_TIME, wanted, size))
        if size >= delay.size * (1 + GROWTH):
            return self._end_below(number, wanted, wanted)
        if now >= delay.end:
            self._delays[number] = _Delay(now + LEASE_TIME, wanted, delay.size)
            return self._end_below(number, delay.floor, wanted)
        return least

    def leased(self, number: int, now: float) -> bool:
        """Return whether a topic has leases.

        Args:
            number: of the topic.
            now: time in seconds.
        """
        return bool(self._current(number, now))

    def release(self, number: int, version: int, owner: str) -> None:
        """End one snapshot; the lease ends with the last one of its version.

        Args:
            number: of the topic.
            version: id of the version.
            owner: text that names the owner of the snapshot.
        """
        leases = self._leases.get(number, {})
        lease = leases.get(version)
        if lease is None or owner not in lease.readers:
            return
        lease.readers[owner] -= 1
        if not lease.readers[owner]:
            del lease.readers[owner]
        if not lease.readers:
            del leases[version]
            if not leases:
                del self._leases[number]

    def forget(self, number: int) -> None:
        """Forget the deleted topic with a ``number``."""
        self._leases.pop(number, None)
        self._delays.pop(number, None)

    def _current(self, number: int, now: float, floor: int = 0) -> dict[int, _Lease]:
        """Return the leases of a topic that have not ended; forget the others, and those below a floor."""
        known = self._leases.get(number, {})
        leases = {version: lease for version, lease in known.items() if lease.end > now and version >= floor}
        if leases:
            self._leases[number] = leases
        else:
            self._leases.pop(number, None)
        return leases

    def _end_below(self, number: int, floor: int, wanted: int) -> int:
        """End the leases of the versions below a floor; return the ``wanted`` one, as far as the others leave it."""
        leases = {version: lease for version, lease in self._leases[number].items() if version >= floor}
        if leases:
            self._leases[number] = leases
        else:
            del self._leases[number]
        return min([wanted, *leases])
