"""Queue of requests that wait for a connection to a backend on this machine.

A backend on a Unix socket takes connections as fast as they are opened, and more of them than it can serve: a burst of
requests would open one each, and fill its queues. Here the first requests of a burst open connections, and further ones
wait, each for a connection that is released, or for its turn to open one. While the backend is fast, few are added,
since more of them make its turns longer and nothing faster; while it keeps them, many. Requests that change something
take turns with those that read, so that a publisher does not wait behind a thousand readers.
"""

from __future__ import annotations

from typing import Final

from gripproxy.backend.connection import Sink

__all__ = ["BURST", "FAST_RATE", "RATE", "WINDOW", "ConnectQueue"]

BURST: Final = 32
"""Connections opened without a pause."""

RATE: Final = 1000.0
"""Connections opened a second after these."""

FAST_RATE: Final = 50.0
"""Connections opened a second while the backend is fast."""

HOLD: Final = 0.05
"""Seconds for which a fast backend has a connection, on average."""

WINDOW: Final = 0.025
"""Seconds over which that is measured."""

_CHANGING, _READING, _FRESH = range(3)


class ConnectQueue:
    """Requests that wait for a connection to one target.

    Args:
        most: greatest number of connections; 0 for no bound.
        timeout: seconds that a request may wait.
    """

    __slots__ = (
        "_allowed",
        "_at",
        "_begun",
        "_lines",
        "_most",
        "_rate",
        "_released",
        "_timeout",
        "_turn",
        "connections",
    )

    def __init__(self, most: int, timeout: float) -> None:
        self._most = most
        self._timeout = timeout
        self._allowed = float(BURST)
        """Connections that may be opened now."""
        self._at = float("-inf")
        """Time of that number, in seconds."""
        self._rate = FAST_RATE
        self._begun = 0.0
        """Begin of the window, in seconds."""
        self._released = 0
        """Connections released in the window."""
        self._lines: tuple[dict[Sink, float], ...] = ({}, {}, {})
        """Requests that change something, that read, and that need a new connection, each in the order of arrival: the
        time at which each gives up, in seconds. A released connection passes over the last line, however long it is."""
        self._turn = 0
        self.connections = 0
        """Connections that exist or are being opened."""

    def __len__(self) -> int:
        return sum(map(len, self._lines))

    def open(self, now: float) -> bool:
        """Count one more connection, if one may be opened.

        Args:
            now: time, in seconds.
        """
        if now - self._begun >= WINDOW:
            # Little's law: the mean time is the number of connections by those released a second.
            if len(self):
                fast = self._released * HOLD >= self.connections * (now - self._begun)
                self._rate = FAST_RATE if fast else RATE
            self._begun, self._released = now, 0
        if self._most and self.connections >= self._most:
            return False
        allowed = min(BURST, self._allowed + (now - self._at) * self._rate)
        self._at = now
        if allowed < 1:
            self._allowed = allowed
            return False
        self._allowed = allowed - 1
        self.connections += 1
        return True

    def closed(self) -> None:
        """Count a connection no more."""
        self.connections -= 1

    def released(self) -> None:
        """Count a connection whose request is over."""
        self._released += 1

    def add(self, sink: Sink, now: float, *, fresh: bool, changing: bool) -> None:
        """Put a request at the end.

        Args:
            sink: the request.
            now: time, in seconds.
            fresh: whether only a new connection will do.
            changing: whether it may change something at the backend.
        """
        if not len(self):
            self._begun, self._released, self._rate = now, 0, FAST_RATE
        self._lines[_FRESH if fresh else _CHANGING if changing else _READING][sink] = now + self._timeout

    def forget(self, sink: Sink) -> bool:
        """Remove a request; return whether it waited."""
        return any(line.pop(sink, None) is not None for line in self._lines)

    def take(self, *, reused: bool) -> tuple[Sink, bool] | None:
        """Remove the request whose turn it is.

        Args:
            reused: whether it is to get a connection that was used before.

        Returns:
            The request, and whether it needs a new connection; None if no request waits for such a connection.
        """
        for step in range(len(self._lines)):
            number = (self._turn + step) % len(self._lines)
            line = self._lines[number]
            if line and not (reused and number == _FRESH):
                sink = next(iter(line))
                del line[sink]
                self._turn = number + 1
                return sink, number == _FRESH
        return None

    def expired(self, now: float) -> Sink | None:
        """Return a request that has waited too long, which waits no more; None for none. ``now`` in seconds."""
        for line in self._lines:
            if line and line[sink := next(iter(line))] <= now:
                del line[sink]
                return sink
        return None
