"""Recovery scheduler: rate limit, per-backend concurrency limit and back-off for requests made by held sessions.

Sans-I/O. Sessions wait here for their turn (docs/grip.md §6.4), by backend. Each backend has a limited number of
requests under way, and while they fail, the next is sent after a growing pause. A rate limits the requests to all
backends; sessions that one request serves have their turn together and count as one. Where these are many, the loop
serves other work in between; ``since`` shows which request is recent enough for all of them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from random import random
from typing import Final, Protocol

from gripproxy.delivery.turns import Turns

__all__ = [
    "INTERVAL",
    "MOST",
    "PAUSE",
    "RATE",
    "SPREAD",
    "STEP",
    "Asked",
    "Queryable",
    "RecoveryScheduler",
    "backend_of",
    "failing",
]

INTERVAL: Final = 0.1
"""Seconds between two batches, and, with up to half of it added, before the first (docs/grip.md §6.4)."""

RATE: Final = 1000
"""Requests per second: a hundred in each batch, as Pushpin's one handler makes them (docs/grip.md §6.4)."""

MOST: Final = 32
"""Most requests under way to one backend."""

PAUSE: Final = (0.1, 2.0)
"""Seconds between two requests to a backend after the first failure, and at most. A request every other second is no
load, and notices soon that the backend is back."""

SPREAD: Final = 0.1
"""Fraction by which times are shortened at random, so that sessions that begin together do not query together."""

STEP: Final = 50
"""Sessions that one request serves that query between two checks of the clock: 2 ms."""

BACKENDS_MAX: Final = 1024
"""Backends whose failures are remembered although no session waits for them."""

_ELSEWHERE: Final = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//([^/?#]*)")


def backend_of(route: object, link: bytes = b"") -> Hashable:
    """Return the key of the backend that serves a link; a link to another host leads to another backend.

    Args:
        route: of the session.
        link: absolute or relative; empty for the route's own backend.
    """
    elsewhere = _ELSEWHERE.match(link)
    return (route, elsewhere[1].lower() if elsewhere is not None else b"")


def failing(code: int) -> bool:
    """Return whether a backend's status shows that it cannot answer just now.

    Args:
        code: the status.
    """
    return code >= 500 or code == 429


class Queryable(Protocol):
    """Held session that can query its backend."""

    @property
    def request_key(self) -> Hashable:
        """Key that is equal for sessions that one request serves; None for a request of its own."""

    @property
    def backend_key(self) -> Hashable:
        """Key that is equal for sessions whose requests go to one backend."""

    def update(self) -> None:
        """Query the backend: the session has its turn. Does nothing once the session is over."""


class _Group:
    """Sessions of one backend that one request serves."""

    __slots__ = ("backend", "key", "sessions", "urgent")

    def __init__(self, backend: _Backend, key: Hashable, urgent: bool) -> None:
        self.backend = backend
        self.key = key
        self.urgent = urgent
        self.sessions: dict[Queryable, None] = {}


class _Served:
    """Group that has its turn: its sessions, and the number of those that have queried."""

    __slots__ = ("after", "group", "place", "sessions", "since")

    def __init__(self, group: _Group, since: float) -> None:
        self.group = group
        self.since = since
        self.after: list[Callable[[], None]] = []
        """Called when all sessions have queried."""
        self.sessions = tuple(group.sessions)
        self.place = 0


class _Backend:
    """Sessions that wait for one backend, and the requests to it."""

    __slots__ = ("asking", "due", "failed", "groups", "key", "pause", "resume", "urgent")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.groups: dict[Hashable, _Group] = {}
        self.urgent: dict[Hashable, _Group] = {}
        self.due = 0
        """Groups that wait although the time of their batch is over; they are the first of ``groups``."""
        self.asking = 0
        """Number of requests under way."""
        self.pause = 0.0
        """Seconds between two requests while they fail; 0 while they do not."""
        self.failed = 0.0
        """Time, in seconds, when the pause was last made longer."""
        self.resume = 0.0
        """Time, in seconds, before which no request is sent."""

    @property
    def waiting(self) -> bool:
        return bool(self.groups or self.urgent)


class Asked:
    """Permit of a request under way; ``end`` returns it.

    Args:
        scheduler: the scheduler.
        backend: of the backend.
        begun: time in seconds.
    """

    __slots__ = ("_scheduler", "backend", "begun")

    def __init__(self, scheduler: RecoveryScheduler, backend: _Backend, begun: float) -> None:
        self._scheduler: RecoveryScheduler | None = scheduler
        self.backend = backend
        self.begun = begun

    def end(self, failed: bool | None) -> None:
        """Return the permit: the request is over, or waits for its clients. Further calls do nothing.

        Args:
            failed: the backend did not answer, or answered that it cannot; None if that is not known.
        """
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            scheduler.ended(self, failed)


class RecoveryScheduler:
    """Sessions that wait for their turn to query. Bounded by the number of sessions: each is in it once at most.

    Args:
        arm: has ``run`` called after so many seconds; 0 for the next turn of the loop.
        clock: returns the time in seconds.
        turns: bound the time of a turn of the loop.
        rate: requests per second to all backends.
        most: requests under way to one backend.
        chance: returns a random number in [0, 1).
    """

    def __init__(
        self,
        arm: Callable[[float], None],
        clock: Callable[[], float],
        turns: Turns,
        rate: float = RATE,
        most: int = MOST,
        chance: Callable[[], float] = random,
    ) -> None:
        self._arm = arm
        self._clock = clock
        self._turns = turns
        self._serving: _Served | None = None
        self._urgent_since: float | None = None
        """Time of the first urgent query in this turn of the loop, in seconds; None if there was none."""
        self._rate = rate
        self._most = most
        self._chance = chance
        self._queued: dict[Queryable, _Group] = {}
        self._backends: dict[Hashable, _Backend] = {}
        self._batch = max(1.0, rate * INTERVAL)
        self._left = self._batch
        self._filled = clock()
        self._armed = False
        self._freed: set[_Backend] = set()

    def __len__(self) -> int:
        return len(self._queued)

    def __contains__(self, session: object) -> bool:
        return session in self._queued

    @property
    def since(self) -> float:
        """Time, in seconds, from which on a request is recent enough for the session that has its turn.

        All sessions of a group were queued before the first of them has its turn, also if the last has it later. For
        urgent ones it is the first of this turn of the loop.
        """
        since = self._urgent_since if self._serving is None else self._serving.since
        return self._clock() if since is None else since

    def when_served(self, call: Callable[[], None]) -> None:
        """Call a function when all sessions of the group that has its turn have queried; now if none has.

        A request that was sent before could be answered before, and the sessions behind it would need another one.

        Args:
            call: the function.
        """
        if self._serving is None:
            call()
        else:
            self._serving.after.append(call)

    @property
    def asking(self) -> int:
        """Number of requests under way."""
        return sum(backend.asking for backend in self._backends.values())

    def add(self, session: Queryable) -> None:
        """Queue a session, unless it is queued already.

        Args:
            session: its ``update`` is called when it has its turn.
        """
        if session in self._queued:
            return
        backend = self._backend(session.backend_key)
        self._put(session, backend, backend.groups, False)
        if not self._armed:
            self._armed = True
            self._arm(INTERVAL * (1 + self._chance() / 2))

    def add_urgent(self, session: Queryable) -> None:
        """Give a session its turn now; while its backend fails or has enough to do, before all others that wait.

        Args:
            session: the session.
        """
        backend = self._backend(session.backend_key)
        now = self._clock()
        self.discard(session)
        if self._free(backend, now):
            if self._urgent_since is None:
                self._urgent_since = now
                self._turns.later(self._urgent_over)
            session.update()
            self._forget(backend)
            return
        self._put(session, backend, backend.urgent, True)
        self._wait()

    def _urgent_over(self) -> None:
        self._urgent_since = None

    def discard(self, session: Queryable) -> None:
        """Remove a session that is over or needs no query any more.

        Args:
            session: queued or not.
        """
        group = self._queued.pop(session, None)
        if group is None:
            return
        del group.sessions[session]
        if not group.sessions:
            backend = group.backend
            groups = backend.urgent if group.urgent else backend.groups
            # A group that has its turn waits no longer.
            if groups.get(group.key) is group:
                del groups[group.key]
                self._forget(backend)

    def begin(self, backend: Hashable) -> Asked:
        """Count a request as under way, whether or not it had to wait for a turn.

        Args:
            backend: key of its backend.

        Returns:
            The permit; its ``end`` has to be called.
        """
        found = self._backend(backend)
        now = self._clock()
        found.asking += 1
        if found.pause:
            # While requests fail, they begin one at a time.
            found.resume = now + found.pause * (1 + self._chance() / 2)
        return Asked(self, found, now)

    def ended(self, asked: Asked, failed: bool | None) -> None:
        """Count a request as under way no longer (see ``end`` of the permit).

        Args:
            asked: the permit.
            failed: the backend did not answer, or answered that it cannot; None if that is not known.
        """
        backend = asked.backend
        backend.asking -= 1
        now = self._clock()
        if failed is False:
            backend.pause = backend.resume = 0.0
        elif failed and asked.begun >= backend.failed:
            # Requests that were under way together fail together, which shows no more than one of them does.
            first, longest = PAUSE
            backend.pause = min(max(first, backend.pause * 2), longest)
            backend.failed = now
            backend.resume = now + backend.pause * (1 + self._chance() / 2)
        if backend.urgent or backend.due:
            if not self._freed:
                self._arm(0)
            self._freed.add(backend)
        self._forget(backend)

    def run(self) -> None:
        """Give sessions their turns; called when the armed time is over."""
        now = self._clock()
        if self._freed:
            backends: Iterable[_Backend] = self._freed
            self._freed = set()
        else:
            self._armed = False
            self._left = min(self._batch, self._left + (now - self._filled) * self._rate)
            self._filled = now
            backends = list(self._backends.values())
            for backend in backends:
                backend.due = len(backend.groups)
        taken = deque(_Served(group, now) for group in self._take(backends, now))
        try:
            while taken:
                served = taken.popleft()
                if self._turns.late() or not self._serve(served):
                    self._turns.again(partial(self._serve, served))
        finally:
            # After the failure of a session: the other groups have their turn.
            for served in taken:
                self._turns.again(partial(self._serve, served))
            self._wait()

    def _serve(self, served: _Served) -> bool:
        """Give sessions of a group their turn until the loop's turn is over. Returns whether all have had it."""
        group = served.group
        self._serving = served
        try:
            while True:
                step = served.sessions[served.place : served.place + STEP]
                for session in step:
                    served.place += 1
                    # A session may have ended meanwhile, or queried for an urgent reason.
                    if self._queued.get(session) is group:
                        del self._queued[session], group.sessions[session]
                        session.update()
                if served.place >= len(served.sessions):
                    break
                if self._turns.late():
                    return False
        except BaseException:
            # Of one session; those behind it have their turn.
            self._turns.again(partial(self._serve, served))
            raise
        finally:
            self._serving = None
        for call in served.after:
            call()
        self._forget(group.backend)
        return True

    def _take(self, backends: Iterable[_Backend], now: float) -> list[_Group]:
        """Remove and return the groups that have their turn, one of each backend in rotation."""
        taken: list[_Group] = []
        turns = deque((one, self._most - one.asking) for one in backends if one.waiting and self._free(one, now))
        while turns:
            backend, room = turns.popleft()
            if not backend.urgent and (not backend.due or self._left < 1):
                continue
            groups = backend.urgent or backend.groups
            if groups is backend.groups:
                self._left -= 1
                backend.due -= 1
            taken.append(groups.pop(next(iter(groups))))
            if backend.waiting and room > 1 and not backend.pause:
                turns.append((backend, room - 1))
        return taken

    def _wait(self) -> None:
        """Arm the next run, if a session waits."""
        if not self._armed and any(backend.waiting for backend in self._backends.values()):
            self._armed = True
            self._arm(INTERVAL)

    def _free(self, backend: _Backend, now: float) -> bool:
        return backend.asking < self._most and backend.resume <= now

    def _put(self, session: Queryable, backend: _Backend, groups: dict[Hashable, _Group], urgent: bool) -> None:
        key: Hashable = session.request_key
        if key is None:
            key = id(session)
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(backend, key, urgent)
        group.sessions[session] = None
        self._queued[session] = group

    def _backend(self, key: Hashable) -> _Backend:
        backend = self._backends.get(key)
        if backend is None:
            if len(self._backends) >= BACKENDS_MAX:
                self._backends = {k: one for k, one in self._backends.items() if one.waiting or one.asking}
            backend = self._backends[key] = _Backend(key)
        return backend

    def _forget(self, backend: _Backend) -> None:
        if backend.due > len(backend.groups):
            backend.due = len(backend.groups)
        idle = not (backend.waiting or backend.asking or backend.pause)
        if idle and self._backends.get(backend.key) is backend:
            del self._backends[backend.key]
