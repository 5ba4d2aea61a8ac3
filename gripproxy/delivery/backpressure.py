"""Back-pressure: the intake of items waits while most clients of a worker read more slowly than items arrive.

One client that does not read has a buffer, and is disconnected when it is full. When most clients fall behind, more is
published than can be sent, and disconnecting all of them would not help. So items wait for a while, first here and then
in the handler, which delays the publishers that can wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from gripproxy.pipe import Message, PipeConnection

__all__ = ["AGAIN", "BEHIND", "FEW", "LOOK", "PART", "PATIENCE", "REST", "WARY", "Backpressure", "Loop"]

LOOK: Final = 0.05
"""Seconds between two checks while items arrive."""

AGAIN: Final = 0.005
"""Seconds between two checks while items wait."""

PATIENCE: Final = 0.4
"""Seconds that items wait at most. Then some are delivered, twice as many after each wait that did not help: the
buffers of clients that do not read are full in a few seconds, and these clients are disconnected."""

REST: Final = 10.0
"""Most seconds without checks after a wait that did not help; twice as long each time. A client with many connections
that reads none of them delays the others only now and then."""

VAIN_MAX: Final = 1 << 16
"""Largest factor for the items delivered after a wait."""

SAMPLE: Final = 64
"""Sessions that a check looks at, chosen at random."""

FEW: Final = 8
"""Fewer sessions than this that are behind are never waited for."""

BEHIND: Final = 16 * 1024
"""Bytes waiting in this process for a client that is behind: less than a transport has when it asks for a pause."""

PART: Final = 100_000
"""Deliveries, if each item were for all sessions, between two checks: a client that is behind costs one of its own."""

WARY: Final = 5.0
"""Seconds of frequent checks after clients were waited for. At other times a batch is delivered as one: in parts, fewer
of its items would be joined."""


class Loop(Protocol):
    """Part of the event loop that is needed."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> object:
        """Call a function later.

        Args:
            delay: seconds.
            callback: the function.

        Returns:
            Its timer.
        """

    def time(self) -> float:
        """Return the time of the loop, in seconds."""


class Backpressure:
    """Intake of messages of the handler: passes them on, and delays them while most clients are behind.

    Args:
        deliver: takes a connection and its messages, in order.
        sessions: all sessions; those that items are written to have a ``transport``.
        pause: stops (True) and resumes (False) reading from the handler.
        loop: for time and timers.
    """

    def __init__(
        self,
        deliver: Callable[[PipeConnection, list[Message]], None],
        sessions: Sequence[Mapping[Any, object]],
        pause: Callable[[bool], None],
        loop: Loop,
    ) -> None:
        self._deliver = deliver
        self._sessions = sessions
        self._pause = pause
        self._later = loop.call_later
        self._clock = loop.time
        self._link: PipeConnection | None = None
        self._kept: list[Message] = []
        """Messages that wait; at most those read when the intake was stopped."""
        self._waiting = False
        self._next = self._until = self._wary = 0.0
        self._vain = 1

    def take(self, link: PipeConnection, messages: list[Message]) -> None:
        """Pass messages on, or keep them while clients are behind.

        Args:
            link: the connection that they arrived by.
            messages: in order.
        """
        self._link = link
        if self._waiting:
            self._kept += messages
            self._pause(True)  # the connection may be a new one
            return
        self._kept = messages
        self._work()

    def flush(self) -> None:
        """Pass on all kept messages: the connection is lost, and the next announces the last ids."""
        kept, self._kept = self._kept, []
        if kept:
            assert self._link is not None
            self._deliver(self._link, kept)
        self._link = None

    def _work(self, part: int = 0) -> None:
        """Deliver kept messages until most clients are behind; at least ``part`` messages."""
        while self._kept:
            link = self._link
            assert link is not None
            kept = self._kept
            size = max(part, self._part()) if self._clock() < self._wary else len(kept)
            self._kept, part = kept[size:], 0
            self._deliver(link, kept if size >= len(kept) else kept[:size])
            if self._look():
                return

    def _part(self) -> int:
        return max(20, PART // (1 + sum(map(len, self._sessions))))

    def _look(self) -> bool:
        """Return whether arriving messages have to wait."""
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + LOOK
        if not self._behind():
            self._vain = 1
            return False
        self._waiting = True
        self._until, self._wary = now + PATIENCE, now + WARY
        self._pause(True)
        self._later(AGAIN, self._again)
        return True

    def _again(self) -> None:
        in_vain = self._behind()
        if in_vain and self._clock() < self._until:
            self._later(AGAIN, self._again)
            return
        self._vain = min(2 * self._vain, VAIN_MAX) if in_vain else 1
        self._waiting = False
        part = self._vain * self._part() if in_vain else 0
        rests = in_vain and len(self._kept) <= part
        self._next = self._clock() + min(LOOK * self._vain, REST) if rests else 0.0
        self._work(part)
        if not self._waiting:
            self._pause(False)

    def _behind(self) -> bool:
        sessions = [session for mapping in self._sessions for session in mapping.values()]
        if len(sessions) < FEW:
            return False
        if len(sessions) > SAMPLE:
            sessions = random.sample(sessions, SAMPLE)
        transports = [session.transport for session in sessions if hasattr(session, "transport")]
        behind: int = sum(transport.get_write_buffer_size() > BEHIND for transport in transports)
        return behind >= FEW and 2 * behind > len(transports)
