"""Idle connections, kept for the next request to the same place. Sans-I/O: those to be closed are returned.

The one used last is taken first, so that the others reach the time after which they are closed.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Generic, NamedTuple, TypeVar

from griphub.callbacks.request_limits import RequestLimits

__all__ = ["IdleConnections", "Place"]

C = TypeVar("C")


class Place(NamedTuple):
    """Place that a connection leads to. Those of different hosts do not share one: the certificate is the host's.

    Attributes:
        host: name or address in the URL.
        address: the judged one, to which the connection is made.
        port: of the URL.
        secure: whether it has TLS.
    """

    host: str
    address: str
    port: int
    secure: bool


class IdleConnections(Generic[C]):
    """Connections without a request, bounded in all and by address.

    Args:
        limits: seconds for which they are kept, and their numbers.
    """

    __slots__ = ("_addresses", "_limits", "_places", "_since")

    def __init__(self, limits: RequestLimits) -> None:
        self._limits: Final = limits
        self._since: dict[C, tuple[Place, float]] = {}
        """Place of each, and the monotonic time since which it is idle; the oldest first."""
        self._places: dict[Place, dict[C, None]] = {}
        """Those of a place, the oldest first; at least one."""
        self._addresses: Counter[str] = Counter()
        """Number of those of an address, at least 1."""

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, connection: C) -> bool:
        return connection in self._since

    def put(self, place: Place, connection: C, now: float) -> C | None:
        """Keep a connection.

        Args:
            place: where it leads.
            connection: the connection.
            now: monotonic time in seconds.

        Returns:
            A connection to be closed in return: itself if its address has enough of them, or the oldest of all; else
            None.
        """
        if self._addresses[place.address] >= self._limits.idle_per_address:
            return connection
        self._since[connection] = (place, now)
        self._places.setdefault(place, {})[connection] = None
        self._addresses[place.address] += 1
        return self.oldest() if len(self._since) > self._limits.idle_max else None

    def take(self, place: Place) -> C | None:
        """Return a connection that leads to a place, and keep it no more.

        Args:
            place: where it leads.

        Returns:
            The one that was used last; None if there is none.
        """
        found = self._places.get(place)
        if found is None:
            return None
        connection = next(reversed(found))
        self.remove(connection)
        return connection

    def remove(self, connection: C) -> None:
        """Keep a connection no more.

        Args:
            connection: the connection; one that is not kept changes nothing.
        """
        entry = self._since.pop(connection, None)
        if entry is None:
            return
        place = entry[0]
        found = self._places[place]
        del found[connection]
        if not found:
            del self._places[place]
        self._addresses[place.address] -= 1
        if not self._addresses[place.address]:
            del self._addresses[place.address]

    def oldest(self) -> C | None:
        """Return the connection that has been idle longest, and keep it no more; None if there is none."""
        connection = next(iter(self._since), None)
        if connection is not None:
            self.remove(connection)
        return connection

    def over(self, now: float) -> list[C]:
        """Return the connections whose time is over, and keep them no more.

        Args:
            now: monotonic time in seconds.
        """
        over: list[C] = []
        for connection, (_, since) in self._since.items():
            if now - since < self._limits.idle:
                break
            over.append(connection)
        for connection in over:
            self.remove(connection)
        return over
