"""Progress of a connection: when its client last took bytes of an answer, or had a request answered. Sans-I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

__all__ = ["Progress", "stalled"]

Connection = TypeVar("Connection")


class Progress:
    """Looks at a connection, from time to time: per request nothing is spent but setting ``used``."""

    __slots__ = ("_since", "used", "waiting")

    def __init__(self) -> None:
        self.used = True
        """True if an answer was written since the last look."""
        self.waiting = 0
        """Bytes of answers that the client had not taken at the last look."""
        self._since = 0.0

    def quiet(self, waiting: int, now: float) -> float:
        """Look at the connection.

        Args:
            waiting: bytes of answers that the client has not taken.
            now: seconds of any clock.

        Returns:
            Seconds since the first look from which on nothing was taken and nothing answered.
        """
        if self.used or waiting != self.waiting:
            self.used, self.waiting, self._since = False, waiting, now
        return now - self._since


def stalled(looks: Iterable[tuple[float, int, Connection]], limit: float, most: int) -> list[Connection]:
    """Choose the connections to be ended.

    Args:
        looks: seconds without progress, bytes that the client has not taken, and connection.
        limit: seconds without progress that end a connection.
        most: bytes that may wait for all others; above it those without progress for longest end, of equal ones the
            one for which most waits.

    Returns:
        The connections.
    """
    ended = []
    left = 0
    for quiet, waiting, connection in sorted(looks, key=lambda look: look[:2]):
        left += waiting
        if quiet >= limit or left > most:
            left -= waiting
            ended.append(connection)
    return ended
