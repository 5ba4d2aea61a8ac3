"""Connection events: reports to the handler of each connection, while statistics want them (docs/grip.md §9).

A connection in the sense of the statistics is a request from its route to its end, or a WebSocket. Its event is sent
when it begins, again before the event's time to live is over, and when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import chain, islice
from typing import Any, Final, Protocol

from gripproxy.grip.stats_format import Rounds

__all__ = ["SLICE", "ConnectionReporter", "Key", "Present", "PresentConnections", "Reported", "connection_id"]

SLICE: Final = 500
"""Connections reported per flush while all of them are: about a millisecond."""

Present = tuple[bytes, bytes, bool, bytes, bool]
"""A connection: id, route id or empty, whether it is a WebSocket, logical peer address or empty, whether TLS."""

Key = int | bytes
"""Serial of a request, or id of a WebSocket."""

PresentConnections = Callable[[Container[Key]], Iterator[tuple[Key, Present]]]
"""Yields each open connection but those whose keys are in the container."""


def connection_id(number: int, epoch: int, serial: int) -> bytes:
    """Return the id under which a request is known outside the process (docs/grip.md §5.8).

    Args:
        number: Number of the worker.
        epoch: Start of the process in nanoseconds since 1970.
        serial: Serial of the request.
    """
    return b"gripproxy:%d-%x-%x" % (number, epoch // 1_000_000, serial)


class Reported(Protocol):
    """A request or a handshake, as connection events describe it."""

    @property
    def key(self) -> Key:
        """The serial of a request, or the id of a WebSocket."""

    def present(self, route: bytes) -> Present:
        """Return its event; ``route`` is the route's id, or empty."""


class ConnectionReporter:
    """Events of one worker's connections, while the handler wants them.

    Args:
        clock: Time in seconds.
        ttl: Seconds an event is valid; 0: events are not repeated.
        enabled: Whether events are sent at all (``stats_connection_send``).
    """

    __slots__ = ("_all", "_clock", "_enabled", "_events", "_live", "_rounds", "watching")

    def __init__(self, clock: Callable[[], float], ttl: float, enabled: bool) -> None:
        self.watching = False
        """True while each connection is reported."""
        self._clock = clock
        self._enabled = enabled
        self._rounds: Rounds[Key] = Rounds(ttl)
        self._live: dict[Key, Present] = {}
        self._events: list[tuple[Any, ...]] = []
        self._all: Iterator[Present | None] | None = None

    def began(self, key: Key, event: Present) -> None:
        """Report a connection that begins.

        Args:
            key: Its key.
            event: Its event.
        """
        self._note(key, event)
        self._events.append(event)

    def again(self, key: Key) -> None:
        """Report the connection ``key`` once more, if it was reported: its request is held now, or repeated."""
        event = self._live.get(key)
        if event is not None:
            self.began(key, event)

    def ended(self, key: Key) -> None:
        """Report the end of the connection ``key``, if its beginning was reported."""
        event = self._live.pop(key, None)
        if event is not None:
            self._rounds.gone(key)
            self._events.append(event[:2])

    def watch(self, on: bool, present: PresentConnections) -> None:
        """Enable or disable connection events; enabled again, all open connections are reported again.

        Args:
            on: Whether the handler wants events.
            present: The open connections.
        """
        on = on and self._enabled
        if not on:
            self._live, self._events, self._all = {}, [], None
            self._rounds.clear()
        else:
            # Reported ones first, then older ones: some of these were perhaps not reached when the next request for
            # events comes, as from a subscriber of several kinds.
            known = (self._live.get(key) for key in list(self._live))
            self._all = chain(known, self._found(present))
        self.watching = on

    def _found(self, present: PresentConnections) -> Iterator[Present]:
        """Yield the events of open connections; those opened during the iteration report themselves."""
        for key, event in present(self._live):
            self._note(key, event)
            yield event

    def _note(self, key: Key, event: Present) -> None:
        self._live[key] = event
        self._rounds.said(key, self._clock())

    def take(self, now: float, step: float) -> list[tuple[Any, ...]]:
        """Return the events to send now, and forget them.

        Args:
            now: Time in seconds.
            step: Seconds between two calls.
        """
        events = self._events
        if self._all is not None:
            some = list(islice(self._all, SLICE))
            events += [event for event in some if event is not None]
            if len(some) < SLICE:
                self._all = None
        events += [self._live[key] for key in self._rounds.due(now, step)]
        if events:
            self._events = []
        return events
