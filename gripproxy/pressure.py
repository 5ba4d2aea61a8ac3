"""Whether a worker's clients, on the whole, read more slowly than items come: the intake then waits for them.

One client that does not read has a buffer, and is cut off when it is full. When most of them do not keep up, it is
not their fault: more is published than goes out, and to cut off everybody would help nobody. So items wait for a
while, first here and then with the handler, which makes publishers wait that can.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from gripproxy.pipe import Link, Message

__all__ = ["AGAIN", "BEHIND", "FEW", "LOOK", "PART", "PATIENCE", "REST", "WARY", "Loop", "Pressure"]

LOOK: Final = 0.05
"""Seconds between two looks while items come."""

AGAIN: Final = 0.005
"""Seconds between two looks while they wait."""

PATIENCE: Final = 0.4
"""Seconds that items wait at most. Then some of them go on, twice as many each time that it was in vain: the buffers of
clients that do not read at all are full in a few seconds, and these are cut off."""

REST: Final = 10.0
"""Seconds at most in which they are not looked at after they were waited for in vain: twice as long each time. Whoever
opens many connections and reads nothing delays the others only now and then."""

VAIN_MAX: Final = 1 << 16
"""How much larger what goes on can become."""

SAMPLE: Final = 64
"""Sessions that are looked at, chosen at random."""

FEW: Final = 8
"""Fewer than this that are behind are never waited for."""

BEHIND: Final = 16 * 1024
"""Bytes waiting in this process for a client from which on it is behind: where a transport that asked for a pause
would still not have more."""

PART: Final = 100_000
"""Deliveries, if each item were for everybody, between two looks: for clients that are behind each has its own cost."""

WARY: Final = 5.0
"""Seconds for which it is looked at that often, after clients were waited for. Otherwise a batch goes on as it came: in
parts, fewer of its items would be joined."""


class Loop(Protocol):
    """What is needed of the event loop."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> object:
        """Call back in ``delay`` seconds."""

    def time(self) -> float:
        """Its time, in seconds."""


class Pressure:
    """What comes from the handler passes through here, at once unless most clients are behind.

    Arguments: ``deliver(link, messages)`` gets all messages in order; ``sessions`` are all there are, and those that
    items are written to have a ``transport``; ``pause(bool)`` stops and resumes the intake.
    """

    def __init__(
        self,
        deliver: Callable[[Link, list[Message]], None],
        sessions: Sequence[Mapping[Any, object]],
        pause: Callable[[bool], None],
        loop: Loop,
    ) -> None:
        self._deliver = deliver
        self._sessions = sessions
        self._pause = pause
        self._later = loop.call_later
        self._clock = loop.time
        self._link: Link | None = None
        self._kept: list[Message] = []
        """What waits; as much as had been read when the intake was stopped."""
        self._busy = self._waiting = False
        self._next = self._until = self._wary = 0.0
        self._vain = 1

    def busy(self, busy: bool) -> None:
        """The fan-out wants no items for now, or does again."""
        self._busy = busy
        if not self._waiting:
            self._pause(busy)

    def take(self, link: Link, messages: list[Message]) -> None:
        """Pass on what has come, or keep it for a while."""
        self._link = link
        if self._waiting:
            self._kept += messages
            self._pause(True)  # the link may be a new one
            return
        self._kept = messages
        self._work()

    def flush(self) -> None:
        """The handler is gone: pass on what it has said, before another one is told how far everything has come."""
        kept, self._kept = self._kept, []
        if kept:
            assert self._link is not None
            self._deliver(self._link, kept)
        self._link = None

    def _work(self, part: int = 0) -> None:
        """Deliver what is kept until most clients are behind; at least ``part`` messages."""
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
        """Whether what comes now has to wait."""
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
        if not self._waiting and not self._busy:
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
