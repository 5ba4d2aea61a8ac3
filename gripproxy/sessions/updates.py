"""Who asks the backend again, and when: however many sessions have to, it is neither swamped nor hammered.

Sans-I/O. Sessions wait here for their turn (docs/grip.md §6.4), by *lane*: those whose requests go to one backend. In a
lane only so many requests are under way at a time, and while they fail, the next goes after a growing pause. Over all
lanes so many begin per second; sessions that one request serves go together and count as one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from random import random
from typing import Final, Protocol

__all__ = ["INTERVAL", "MOST", "PAUSE", "RATE", "SPREAD", "Asked", "Updatable", "Updates", "failing", "lane_of"]

INTERVAL: Final = 0.1
"""Seconds between two batches, and, with up to half of it added, before the first (docs/grip.md §6.4)."""

RATE: Final = 1000
"""Requests per second: a hundred in each batch, as Pushpin's one handler makes them (docs/grip.md §6.4)."""

MOST: Final = 32
"""Requests under way in one lane."""

PAUSE: Final = (0.1, 2.0)
"""Seconds between two requests of a lane after the first failure, and at most. A backend that is asked every other
second is not hammered, and one that is back is noticed soon."""

SPREAD: Final = 0.1
"""Fraction by which times are shortened at random, so that what began together does not end together."""

LANES_MAX: Final = 1024
"""Lanes whose failures are remembered although nobody waits there; more are forgotten."""

_ELSEWHERE: Final = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//([^/?#]*)")


def lane_of(route: object, link: bytes = b"") -> Hashable:
    """Return the lane of requests for ``link`` of a session that came by ``route``: a link to another host is not the
    route's backend."""
    elsewhere = _ELSEWHERE.match(link)
    return (route, elsewhere[1].lower() if elsewhere is not None else b"")


def failing(code: int) -> bool:
    """Return whether a backend's status says that it cannot answer just now."""
    return code >= 500 or code == 429


class Updatable(Protocol):
    """A held session that can ask the backend again."""

    @property
    def update_key(self) -> Hashable:
        """Equal for sessions that one backend request serves; None for one of its own."""

    @property
    def update_lane(self) -> Hashable:
        """Equal for sessions whose requests go to the same backend."""

    def update(self) -> None:
        """Ask the backend what the client should have now. Does nothing once the session is over."""


class _Group:
    """Sessions of one lane that one request serves."""

    __slots__ = ("key", "lane", "sessions", "urgent")

    def __init__(self, lane: _Lane, key: Hashable, urgent: bool) -> None:
        self.lane = lane
        self.key = key
        self.urgent = urgent
        self.sessions: dict[Updatable, None] = {}


class _Lane:
    """Requests to one backend."""

    __slots__ = ("asking", "due", "failed", "groups", "key", "pause", "queue", "resume", "urgent")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.groups: dict[Hashable, _Group] = {}
        self.urgent: dict[Hashable, _Group] = {}
        self.queue: dict[Asked, None] = {}
        """Requests that may not begin yet; they go first."""
        self.due = 0
        """How many groups wait although the time of their batch has come; they are the first."""
        self.asking = 0
        """Requests under way."""
        self.pause = 0.0
        """Seconds between two requests while they fail; 0: they do not."""
        self.failed = 0.0
        """When the pause was last made longer."""
        self.resume = 0.0
        """When the next request may go."""

    @property
    def waiting(self) -> bool:
        return bool(self.groups or self.urgent or self.queue)


class Asked:
    """A request that is under way, or waits for that; ``end`` when it is over."""

    __slots__ = ("_updates", "begun", "lane", "start")

    def __init__(self, updates: Updates, lane: _Lane, start: Callable[[Asked], None] | None) -> None:
        self._updates: Updates | None = updates
        self.lane = lane
        self.start = start
        """What begins it; None once it has begun, or is over."""
        self.begun = 0.0

    def end(self, failed: bool | None) -> None:
        """The request takes none of the backend's strength any more, or is not wanted. Further calls do nothing.

        ``failed``: the backend did not answer, or said that it cannot; None if that is not known.
        """
        updates, self._updates = self._updates, None
        if updates is not None:
            updates.ended(self, failed)


class Updates:
    """Sessions that should ask the backend again. Bounded by the number of sessions: each is in it at most once.

    ``arm(seconds)`` has ``run`` called after that time (0: in the loop's next turn); ``clock`` is in seconds; ``rate``
    is requests per second, over all lanes; ``most`` may be under way in one lane; ``chance`` is a random number
    from 0 to 1.
    """

    def __init__(
        self,
        arm: Callable[[float], None],
        clock: Callable[[], float],
        rate: float = RATE,
        most: int = MOST,
        chance: Callable[[], float] = random,
    ) -> None:
        self._arm = arm
        self._clock = clock
        self._rate = rate
        self._most = most
        self._chance = chance
        self._queued: dict[Updatable, _Group] = {}
        self._lanes: dict[Hashable, _Lane] = {}
        self._batch = max(1.0, rate * INTERVAL)
        self._left = self._batch
        self._filled = clock()
        self._armed = False
        self._freed: set[_Lane] = set()

    def __len__(self) -> int:
        return len(self._queued)

    @property
    def asking(self) -> int:
        """Requests under way."""
        return sum(lane.asking for lane in self._lanes.values())

    def add(self, session: Updatable) -> None:
        """Have the session ask when its turn comes; once is enough."""
        if session in self._queued:
            return
        lane = self._lane(session.update_lane)
        self._put(session, lane, lane.groups, False)
        if not self._armed:
            self._armed = True
            self._arm(INTERVAL * (1 + self._chance() / 2))

    def at_once(self, session: Updatable) -> None:
        """Have the session ask now; while its backend fails or has enough to do, before all others that wait."""
        lane = self._lane(session.update_lane)
        now = self._clock()
        self.discard(session)
        if self._free(lane, now):
            session.update()
            self._forget(lane)
            return
        self._put(session, lane, lane.urgent, True)
        self._wait()

    def discard(self, session: Updatable) -> None:
        """Forget a session that is over or was updated for another reason."""
        group = self._queued.pop(session, None)
        if group is None:
            return
        del group.sessions[session]
        if not group.sessions:
            lane = group.lane
            del (lane.urgent if group.urgent else lane.groups)[group.key]
            self._forget(lane)

    def begin(self, lane: Hashable) -> Asked:
        """A request goes to a backend, whoever wanted it."""
        asked = Asked(self, self._lane(lane), None)
        self._begin(asked, self._clock())
        return asked

    def enter(self, lane: Hashable, start: Callable[[Asked], None]) -> Asked:
        """Have ``start`` called when a request may go: now, or when the backend has time for it."""
        asked = Asked(self, self._lane(lane), start)
        now = self._clock()
        if not asked.lane.queue and self._free(asked.lane, now):
            self._start(asked, now)
            return asked
        asked.lane.queue[asked] = None
        self._wait()
        return asked

    def _start(self, asked: Asked, now: float) -> None:
        start, asked.start = asked.start, None
        if start is not None:
            self._begin(asked, now)
            start(asked)

    def _begin(self, asked: Asked, now: float) -> None:
        lane = asked.lane
        lane.asking += 1
        asked.begun = now
        if lane.pause:
            # While they fail, the next one has to wait.
            lane.resume = now + lane.pause * (1 + self._chance() / 2)

    def ended(self, asked: Asked, failed: bool | None) -> None:
        """A request is over (see Asked.end)."""
        lane = asked.lane
        if asked.start is not None:
            asked.start = None
            lane.queue.pop(asked, None)
            self._forget(lane)
            return
        lane.asking -= 1
        now = self._clock()
        if failed is False:
            lane.pause = lane.resume = 0.0
        elif failed and asked.begun >= lane.failed:
            # Those that were under way together fail together, which says no more than one of them.
            first, longest = PAUSE
            lane.pause = min(max(first, lane.pause * 2), longest)
            lane.failed = now
            lane.resume = now + lane.pause * (1 + self._chance() / 2)
        if lane.queue or lane.urgent or lane.due:
            if not self._freed:
                self._arm(0)
            self._freed.add(lane)
        self._forget(lane)

    def run(self) -> None:
        """The time that was armed has come: those whose turn it is ask."""
        now = self._clock()
        if self._freed:
            lanes: Iterable[_Lane] = self._freed
            self._freed = set()
        else:
            self._armed = False
            self._left = min(self._batch, self._left + (now - self._filled) * self._rate)
            self._filled = now
            lanes = list(self._lanes.values())
            for lane in lanes:
                lane.due = len(lane.groups)
        taken = self._take(lanes, now)
        try:
            for one in taken:
                if isinstance(one, Asked):
                    self._start(one, now)
                    continue
                for session in one.sessions:
                    session.update()
                self._forget(one.lane)
        finally:
            self._wait()

    def _take(self, lanes: Iterable[_Lane], now: float) -> list[_Group | Asked]:
        """Take out what may go now, a lane at a time."""
        taken: list[_Group | Asked] = []
        turns = deque((lane, self._most - lane.asking) for lane in lanes if lane.waiting and self._free(lane, now))
        while turns:
            lane, room = turns.popleft()
            if lane.queue:
                asked = next(iter(lane.queue))
                del lane.queue[asked]
                taken.append(asked)
            elif lane.urgent or (lane.due and self._left >= 1):
                groups = lane.urgent or lane.groups
                if groups is lane.groups:
                    self._left -= 1
                    lane.due -= 1
                group = groups.pop(next(iter(groups)))
                for session in group.sessions:
                    del self._queued[session]
                taken.append(group)
            else:
                continue
            if lane.waiting and room > 1 and not lane.pause:
                turns.append((lane, room - 1))
        return taken

    def _wait(self) -> None:
        """Have those that are left looked at again."""
        if not self._armed and any(lane.waiting for lane in self._lanes.values()):
            self._armed = True
            self._arm(INTERVAL)

    def _free(self, lane: _Lane, now: float) -> bool:
        return lane.asking < self._most and lane.resume <= now

    def _put(self, session: Updatable, lane: _Lane, groups: dict[Hashable, _Group], urgent: bool) -> None:
        key: Hashable = session.update_key
        if key is None:
            key = id(session)
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(lane, key, urgent)
        group.sessions[session] = None
        self._queued[session] = group

    def _lane(self, key: Hashable) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= LANES_MAX:
                self._lanes = {k: lane for k, lane in self._lanes.items() if lane.waiting or lane.asking}
            lane = self._lanes[key] = _Lane(key)
        return lane

    def _forget(self, lane: _Lane) -> None:
        if lane.due > len(lane.groups):
            lane.due = len(lane.groups)
        if not lane.waiting and not lane.asking and not lane.pause and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]
