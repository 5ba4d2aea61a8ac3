"""Backlog of one subscription: which messages are delivered next, which are under way, and which are done with.

    READY     may be delivered
    BLOCKED   waits for an earlier message of its ordering key
    LEASED    is under way until its deadline
    DELAYED   was refused, and waits for its next attempt
    DEAD      had its last attempt, and waits for the dead letter topic

Messages are read from the topic in order, some of them ahead; the others take no memory.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from griphub.backlog.intervals import Intervals

__all__ = ["AHEAD", "AHEAD_ORDERED", "Backlog", "Entry", "Policy", "State"]

AHEAD: Final = 4000
"""Messages that are known ahead of those that are acknowledged, where order makes no difference."""

AHEAD_ORDERED: Final = 20_000
"""Messages that are known ahead with ordering keys: those of a key that waits are among them."""

NOTES: Final = 1000
"""Notes of times, beyond two for each message, from which on those that hold no more are removed."""


class State(Enum):
    """States of a message that is not acknowledged."""

    READY = auto()
    BLOCKED = auto()
    LEASED = auto()
    DELAYED = auto()
    DEAD = auto()


_TIMED: Final = (State.LEASED, State.DELAYED)
"""States that end at a time."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules of a subscription.

    Attributes:
        ack_deadline: seconds from a delivery to its end, unless it is acknowledged.
        ordered: whether messages of an ordering key are delivered one after the other.
        backoff: shortest and longest seconds before a repetition; None to repeat immediately.
        attempts_max: deliveries after which a message goes to the dead letter topic; 0 without one.
    """

    ack_deadline: float = 10.0
    ordered: bool = False
    backoff: tuple[float, float] | None = None
    attempts_max: int = 0

    def pause(self, attempts: int) -> float:
        """Return the seconds before the next delivery of a message.

        Args:
            attempts: its deliveries so far, at least 1.
        """
        if self.backoff is None:
            return 0.0
        shortest, longest = self.backoff
        # The exponent is bounded: 2.0 ** 1100 is an OverflowError.
        pause: float = shortest * 2.0 ** min(attempts - 1, 60)
        return min(longest, pause)


@dataclass(slots=True)
class Entry:
    """Message that is not acknowledged.

    Attributes:
        id: of its event.
        prev: id of the message before it in the topic; 0 for none.
        time: of its publication, in microseconds since 1970.
        key: ordering key; empty for none, or if order makes no difference.
        attempts: deliveries so far.
        state: its state.
        due: end of the lease or of the delay, in seconds.
        lease: number of the latest lease; 0 for none.
    """

    id: int
    prev: int
    time: int
    key: str = ""
    attempts: int = 0
    state: State = State.READY
    due: float = 0.0
    lease: int = 0


@dataclass(slots=True)
class _Counts:
    """Figures since the beginning.

    Attributes:
        acked: messages acknowledged.
        nacked: deliveries refused.
        expired: deliveries that ended by their deadline.
        dead: messages that went to the dead letter topic.
        dropped: messages that were too old.
    """

    acked: int = 0
    nacked: int = 0
    expired: int = 0
    dead: int = 0
    dropped: int = 0


@dataclass(slots=True)
class Backlog:
    """Messages of one subscription.

    Args:
        policy: rules.
        acked: ids that are done with.
        attempts: deliveries so far of messages that are not, by id.

    Attributes:
        read: id up to which the topic was read.
        counts: figures.
    """

    policy: Policy
    acked: Intervals
    attempts: Mapping[int, int] = field(default_factory=dict)
    read: int = 0
    counts: _Counts = field(default_factory=_Counts)
    _entries: dict[int, Entry] = field(default_factory=dict)
    _ready: list[int] = field(default_factory=list)
    _due: list[tuple[float, int, int]] = field(default_factory=list)
    """Ends of leases and delays: time, id, number of the lease."""
    _keys: dict[str, deque[int]] = field(default_factory=dict)
    """Messages of each ordering key in order; only the first one may be delivered."""
    _dead: dict[int, Entry] = field(default_factory=dict)
    _leased: int = 0
    _leases: int = 0

    def __post_init__(self) -> None:
        self.read = self.acked.position

    # --- known messages

    def __len__(self) -> int:
        """Number of known messages that are not acknowledged."""
        return len(self._entries)

    @property
    def leased(self) -> int:
        """Number of messages that are under way."""
        return self._leased

    @property
    def oldest(self) -> Entry | None:
        """Known message that is not acknowledged and was published first; None if there is none."""
        return next(iter(self._entries.values()), None)

    @property
    def wanted(self) -> int:
        """Number of messages to be read ahead."""
        return max(0, (AHEAD_ORDERED if self.policy.ordered else AHEAD) - len(self._entries))

    def attempted(self) -> dict[int, int]:
        """Return the deliveries so far of messages that had some, by id."""
        return {entry.id: entry.attempts for entry in self._entries.values() if entry.attempts}

    def take_read(self, messages: Iterable[tuple[int, int, int, str, bool]], last: int) -> None:
        """Take messages that were read from the topic behind ``read``.

        Args:
            messages: id, id of the message before it, time, ordering key, and whether it passes the filter, in order.
            last: id up to which the topic was read with them.
        """
        for id, prev, time, key, passes in messages:
            if not passes:
                self.acked.add(prev, id)
            elif id not in self.acked:
                # Ids between the two are those of other topics.
                entry = Entry(id, prev, time, key if self.policy.ordered else "", self.attempts.get(id, 0))
                self._entries[id] = entry
                if not entry.key:
                    heapq.heappush(self._ready, id)
                    continue
                waiting = self._keys.setdefault(entry.key, deque())
                waiting.append(id)
                if len(waiting) == 1:
                    heapq.heappush(self._ready, id)
                else:
                    entry.state = State.BLOCKED
        self.read = max(self.read, last)
        if not self._entries:
            self.acked.add(self.acked.position, last)

    # --- deliveries

    def lease(self, now: float, most: int) -> list[Entry]:
        """Begin deliveries of the messages that come next.

        Args:
            now: time, in seconds.
            most: greatest number.

        Returns:
            The messages, each with its lease.
        """
        found: list[Entry] = []
        while self._ready and len(found) < most:
            entry = self._entries.get(heapq.heappop(self._ready))
            if entry is None or entry.state is not State.READY:
                continue
            self._leases += 1
            self._leased += 1
            entry.state, entry.lease, entry.due = State.LEASED, self._leases, now + self.policy.ack_deadline
            entry.attempts += 1
            self._expect(entry)
            found.append(entry)
        return found

    @property
    def ready(self) -> bool:
        """True if a message may be delivered now."""
        while self._ready:
            entry = self._entries.get(self._ready[0])
            if entry is not None and entry.state is State.READY:
                return True
            heapq.heappop(self._ready)
        return False

    def ack(self, id: int, lease: int) -> bool:
        """Acknowledge a message.

        Args:
            id: of the message.
            lease: number of its lease, of which it must be the latest one.

        Returns:
            Whether it was under way with that lease.
        """
        entry = self._entries.get(id)
        if entry is None or entry.state is not State.LEASED or entry.lease != lease:
            return False
        self._leased -= 1
        self.counts.acked += 1
        self._done(entry)
        return True

    def nack(self, id: int, lease: int, now: float) -> bool:
        """End a delivery without acknowledgement.

        Args:
            id: of the message.
            lease: number of its lease.
            now: time, in seconds.

        Returns:
            Whether it was under way with that lease.
        """
        entry = self._entries.get(id)
        if entry is None or entry.state is not State.LEASED or entry.lease != lease:
            return False
        self.counts.nacked += 1
        self._again(entry, now)
        return True

    def give_back(self, id: int, lease: int) -> bool:
        """End a delivery that has not begun: it does not count.

        Args:
            id: of the message.
            lease: number of its lease.

        Returns:
            Whether it was under way with that lease.
        """
        entry = self._entries.get(id)
        if entry is None or entry.state is not State.LEASED or entry.lease != lease:
            return False
        self._leased -= 1
        entry.attempts -= 1
        entry.state = State.READY
        heapq.heappush(self._ready, id)
        return True

    def extend(self, id: int, lease: int, now: float, seconds: float) -> bool:
        """Move the end of a delivery.

        Args:
            id: of the message.
            lease: number of its lease.
            now: time, in seconds.
            seconds: number of seconds from now to the new end.

        Returns:
            Whether it was under way with that lease.
        """
        entry = self._entries.get(id)
        if entry is None or entry.state is not State.LEASED or entry.lease != lease:
            return False
        entry.due = now + seconds
        self._expect(entry)
        return True

    def pass_time(self, now: float) -> list[Entry]:
        """End the leases and delays whose time is over.

        Args:
            now: time, in seconds.

        Returns:
            The messages whose lease has ended.
        """
        expired = []
        while self._due and self._due[0][0] <= now:
            due, id, lease = heapq.heappop(self._due)
            entry = self._entries.get(id)
            if entry is None or entry.lease != lease or entry.due != due:
                continue
            if entry.state is State.LEASED:
                self.counts.expired += 1
                expired.append(entry)
                self._again(entry, now)
            elif entry.state is State.DELAYED:
                entry.state = State.READY
                heapq.heappush(self._ready, id)
        return expired

    @property
    def next_time(self) -> float:
        """Time at which a lease or a delay ends, in seconds; infinite if there is none."""
        while self._due:
            due, id, lease = self._due[0]
            entry = self._entries.get(id)
            if entry is not None and (entry.lease, entry.due) == (lease, due) and entry.state in _TIMED:
                return due
            heapq.heappop(self._due)
        return float("inf")

    def _again(self, entry: Entry, now: float) -> None:
        """Let a message whose delivery has failed wait for its next attempt, or for the dead letter topic."""
        self._leased -= 1
        if self.policy.attempts_max and entry.attempts >= self.policy.attempts_max:
            entry.state = State.DEAD
            self._dead[entry.id] = entry
            return
        self._delay(entry, now)

    def _delay(self, entry: Entry, now: float) -> None:
        pause = self.policy.pause(entry.attempts)
        if pause <= 0:
            entry.state = State.READY
            heapq.heappush(self._ready, entry.id)
            return
        entry.state, entry.due = State.DELAYED, now + pause
        self._expect(entry)

    def _expect(self, entry: Entry) -> None:
        """Note the time at which a lease or a delay ends; earlier notes of it are passed over."""
        if len(self._due) > 2 * len(self._entries) + NOTES:
            self._due = [(each.due, each.id, each.lease) for each in self._entries.values() if each.state in _TIMED]
            heapq.heapify(self._due)
            return
        heapq.heappush(self._due, (entry.due, entry.id, entry.lease))

    def _done(self, entry: Entry) -> None:
        """Acknowledge a message, and let the next one of its key be delivered."""
        del self._entries[entry.id]
        self.acked.add(entry.prev, entry.id)
        if not self._entries:
            self.acked.add(self.acked.position, self.read)
        waiting = self._keys.get(entry.key) if entry.key else None
        if waiting is None:
            return
        if waiting[0] != entry.id:
            waiting.remove(entry.id)
            return
        waiting.popleft()
        if not waiting:
            del self._keys[entry.key]
            return
        following = self._entries[waiting[0]]
        following.state = State.READY
        heapq.heappush(self._ready, following.id)

    # --- ends of messages

    @property
    def dead(self) -> list[Entry]:
        """Messages that wait for the dead letter topic, the oldest first."""
        return [*self._dead.values()]

    def buried(self, id: int) -> None:
        """Note that a message is in the dead letter topic; ``id``: of the message."""
        entry = self._dead.pop(id, None)
        if entry is not None:
            self.counts.dead += 1
            self._done(entry)

    def not_buried(self, id: int, now: float) -> None:
        """Note that a message cannot go to the dead letter topic: its attempts go on.

        Args:
            id: of the message.
            now: time, in seconds.
        """
        entry = self._dead.pop(id, None)
        if entry is not None:
            self._delay(entry, now)

    def drop(self, floor: int, before: int) -> int:
        """Forget messages that are too old, other than those under way.

        Args:
            floor: id up to which the topic has no messages any more.
            before: time before which messages are too old, in microseconds since 1970.

        Returns:
            Their number.
        """
        number = 0
        for entry in [*self._entries.values()]:
            if entry.id > floor and entry.time >= before:
                break
            if entry.state is not State.LEASED:
                self._dead.pop(entry.id, None)
                self._done(entry)
                number += 1
        self.counts.dropped += number
        return number
