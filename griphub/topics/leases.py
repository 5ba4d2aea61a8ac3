"""Leases of snapshots: versions below the next floor that are being read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["LEASE_TIME", "SnapshotLeases"]

LEASE_TIME: Final = 60.0
"""Seconds for which a version is leased, from the first page of its first snapshot."""

GROWTH: Final = 0.1
"""Share of a topic's bytes that may be retained for a lease beyond the bounds of the topic."""


@dataclass(slots=True)
class _Lease:
    """Lease of one version.

    Attributes:
        end: time in seconds at which it ends.
        readers: snapshots that use it.
        size: bytes of the topic at its beginning.
    """

    end: float
    readers: int
    size: int


class SnapshotLeases:
    """Leased versions by topic.

    Args:
        most: greatest number of leases of a topic at a time.
    """

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._leases: dict[int, dict[int, _Lease]] = {}
        """Leases by topic and version."""

    def take(self, number: int, version: int, now: float, size: int = 0) -> bool:
        """Lease a version of a topic.

        Args:
            number: of the topic.
            version: id of the version. Snapshots of equal versions share a lease, which is not renewed.
            now: time in seconds.
            size: bytes of the topic's events.

        Returns:
            False if the topic has too many leases.
        """
        leases = self._current(number, now)
        lease = leases.get(version)
        if lease is not None:
            lease.readers += 1
        elif len(leases) >= self._most:
            return False
        else:
            leases[version] = _Lease(now + LEASE_TIME, 1, size)
            self._leases[number] = leases
        return True

    def leased(self, number: int, now: float) -> bool:
        """Return whether a topic has leases.

        Args:
            number: of the topic.
            now: time in seconds.
        """
        return bool(self._current(number, now))

    def keep(self, number: int, now: float, size: int = 0) -> int | None:
        """Return the least version of a topic that must be kept; None for none.

        Args:
            number: of the topic.
            now: time in seconds.
            size: bytes of the topic's events. Leases in whose time it has grown by more than ``GROWTH`` end.
        """
        leases = self._current(number, now)
        for version in [version for version, lease in leases.items() if size > lease.size * (1 + GROWTH) and size]:
            del leases[version]
        return min(leases) if leases else None

    def release(self, number: int, version: int) -> None:
        """End one snapshot; the lease ends with the last one of its version.

        Args:
            number: of the topic.
            version: id of the version.
        """
        leases = self._leases.get(number, {})
        lease = leases.get(version)
        if lease is None:
            return
        lease.readers -= 1
        if not lease.readers:
            del leases[version]
            if not leases:
                del self._leases[number]

    def _current(self, number: int, now: float) -> dict[int, _Lease]:
        """Return the leases of a topic that have not ended; forget the others."""
        leases = {version: lease for version, lease in self._leases.get(number, {}).items() if lease.end > now}
        if leases:
            self._leases[number] = leases
        else:
            self._leases.pop(number, None)
        return leases
