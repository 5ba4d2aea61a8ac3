"""Leases of snapshots: versions below the next floor that are being read."""

from __future__ import annotations

from typing import Final

__all__ = ["LEASE_TIME", "SnapshotLeases"]

LEASE_TIME: Final = 60.0
"""Seconds for which a version is leased, from the first page of its snapshot."""


class SnapshotLeases:
    """Leased versions by topic.

    Args:
        most: greatest number of leases of a topic at a time.
    """

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._leases: dict[int, dict[int, tuple[float, int]]] = {}
        """End of each lease in seconds and number of its snapshots, by topic and version."""

    def take(self, number: int, version: int, now: float) -> bool:
        """Lease a version of a topic.

        Args:
            number: of the topic.
            version: id of the version. Snapshots of equal versions share a lease.
            now: time in seconds.

        Returns:
            False if the topic has too many leases.
        """
        leases = self._current(number, now)
        _, readers = leases.get(version, (0.0, 0))
        if not readers and len(leases) >= self._most:
            return False
        leases[version] = (now + LEASE_TIME, readers + 1)
        self._leases[number] = leases
        return True

    def keep(self, number: int, now: float) -> int | None:
        """Return the least version of a topic that is leased; None for none.

        Args:
            number: of the topic.
            now: time in seconds.
        """
        leases = self._current(number, now)
        return min(leases) if leases else None

    def release(self, number: int, version: int) -> None:
        """End one snapshot; the lease ends with the last one of its version.

        Args:
            number: of the topic.
            version: id of the version.
        """
        leases = self._leases.get(number, {})
        if version not in leases:
            return
        end, readers = leases[version]
        if readers > 1:
            leases[version] = (end, readers - 1)
            return
        del leases[version]
        if not leases:
            del self._leases[number]

    def _current(self, number: int, now: float) -> dict[int, tuple[float, int]]:
        """Return the leases of a topic that have not ended; forget the others."""
        leases = {version: lease for version, lease in self._leases.get(number, {}).items() if lease[0] > now}
        if leases:
            self._leases[number] = leases
        else:
            self._leases.pop(number, None)
        return leases
