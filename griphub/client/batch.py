"""Batches of a publisher: the contents of the next request, and its fate after an answer. Sans-I/O.

Entries leave in the order in which they entered. One request is under way at a time, and is repeated unchanged, with
its ``Idempotency-Key``, until it is answered or its deadline has passed: so the order of the calls is the order in the
topic. A request is stored as a whole or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from griphub.client.errors import (
    BadAnswer,
    ConnectionLost,
    HubError,
    Problem,
    Unavailable,
    failure,
    problem_of,
)
from griphub.client.event import BATCH_TYPE, NewEvent, Receipt, receipts_of
from griphub.client.retry import CONTENT_FAULTS, REPEATED, UNCERTAIN, Backoff

__all__ = ["BATCH_BYTES", "BATCH_EVENTS", "Answer", "Entry", "Outbox", "Outcome", "PublishRequest", "Step", "entry_of"]

BATCH_EVENTS: Final = 1000
"""Greatest number of events of a request that joins several calls: the hub's bound for a request."""

BATCH_BYTES: Final = 1_000_000
"""Bytes of the events of a request that joins several calls. A larger event has a request of its own."""

Outcome = list[Receipt] | HubError


@dataclass(slots=True, eq=False)
class Entry:
    """Events of one call.

    Attributes:
        members: events as members of a batch, JSON.
        deadline: time after which no further attempt is begun, in seconds of the caller's clock.
        single: the event, if it is published by a request without batch, whose ``condition`` is about its key; else
            None.
        condition: value of ``If-Match`` without quotes; None for none.
        name: ``Idempotency-Key`` that the caller chose; None for one of the outbox.
        alone: whether the events are one transaction, with no other call's.
    """

    members: Sequence[bytes]
    deadline: float
    single: NewEvent | None = None
    condition: str | None = None
    name: str | None = None
    alone: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(map(len, self.members))


def entry_of(
    events: Sequence[NewEvent],
    deadline: float,
    *,
    condition: str | None = None,
    name: str | None = None,
    atomic: bool = False,
) -> Entry:
    """Return the entry of a call.

    Args:
        events: at least one.
        deadline: time after which no further attempt is begun, in seconds of the caller's clock.
        condition: cursor of the event that must be the last one, or ``0``; None for none.
        name: ``Idempotency-Key`` that the caller chose, 1 to 255 visible ASCII characters; None for one of the outbox.
        atomic: whether the events have a request of their own.

    Raises:
        ValueError: there is no event, one cannot be written, or the name has other characters.
    """
    if not events:
        raise ValueError("no events to publish: give at least one")
    if name is not None and not (0 < len(name) <= 255 and all("!" <= sign <= "~" and sign != '"' for sign in name)):
        raise ValueError(f"idempotency_key must be 1 to 255 visible ASCII characters without quotes, not {name!r}")
    if condition is not None and not all("!" <= sign <= "~" and sign != '"' for sign in condition):
        raise ValueError(f"if_match must be a cursor, or '0' for no event yet, not {condition!r}")
    single = events[0] if condition is not None and len(events) == 1 else None
    members = [event.member() for event in events]
    alone = atomic or condition is not None or name is not None
    return Entry(members, deadline, single, condition, name, alone)


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """Request to ``POST /topics/T/events``.

    Attributes:
        query: parameters.
        headers: names and values, the content type among them.
        body: content.
        deadline: time after which it is given up, in seconds of the caller's clock.
    """

    query: Sequence[tuple[str, str]]
    headers: Sequence[tuple[str, str]]
    body: bytes
    deadline: float


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of the hub, or of a proxy in front of it.

    Attributes:
        status: HTTP status code.
        content_type: value of ``Content-Type``; empty for none.
        body: content, bounded by the connection.
        retry_after: seconds that the server asks to wait; None if it names none.
        repeated: whether the hub gives the answer to an earlier attempt again.
    """

    status: int
    content_type: str = ""
    body: bytes = b""
    retry_after: float | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """Consequence of an attempt.

    Attributes:
        settled: entries that are done, each with its outcome.
        pause: seconds before the next attempt; 0 for none.
    """

    settled: Sequence[tuple[Entry, Outcome]] = ()
    pause: float = 0.0


class Outbox:
    """Entries that wait, and the request under way.

    Args:
        new_name: makes an ``Idempotency-Key``, another one for each request.
        chance: makes random numbers from 0 up to 1, for pauses.
        events_max: greatest number of events of a request that joins several calls.
        bytes_max: bytes of the events of such a request.
    """

    def __init__(
        self,
        new_name: Callable[[], str],
        chance: Callable[[], float],
        events_max: int = BATCH_EVENTS,
        bytes_max: int = BATCH_BYTES,
    ) -> None:
        self._new_name = new_name
        self._chance = chance
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._waiting: deque[Entry] = deque()
        self._halves: deque[list[Entry]] = deque()
        self._current: list[Entry] = []
        self._request: PublishRequest | None = None
        self._backoff = Backoff()
        self._uncertain = False
        self._events_waiting = 0
        self.size = 0
        """Bytes of the events of all entries, those under way too."""

    def __bool__(self) -> bool:
        """Return whether there is an entry that is not done."""
        return bool(self._current or self._halves or self._waiting)

    @property
    def full(self) -> bool:
        """True if the entries that wait fill a request."""
        return self._events_waiting >= self._events_max or self.size >= self._bytes_max

    def add(self, entry: Entry) -> None:
        """Add an entry behind all others.

        Args:
            entry: the events of a call.
        """
        self._waiting.append(entry)
        self._events_waiting += len(entry.members)
        self.size += entry.size

    def withdraw(self, entry: Entry) -> bool:
        """Remove an entry that is not under way.

        Args:
            entry: the events of a call.

        Returns:
            Whether it was removed; False if a request with it has begun.
        """
        try:
            self._waiting.remove(entry)
        except ValueError:
            return False
        self._leave_queue(entry)
        self.size -= entry.size
        return True

    def drop(self) -> list[Entry]:
        """Remove all entries.

        Returns:
            Those that were not done, in order.
        """
        entries = [*self._current, *(entry for half in self._halves for entry in half), *self._waiting]
        self._waiting.clear()
        self._halves.clear()
        self._current, self._request = [], None
        self._events_waiting = self.size = 0
        return entries

    def _leave_queue(self, entry: Entry) -> None:
        self._events_waiting -= len(entry.members)

    # --- the next request

    def next_request(self) -> PublishRequest | None:
        """Return the request to be sent: the one under way if it is to be repeated, else the next one.

        Returns:
            The request; None if no entry waits.
        """
        if self._request is None and self:
            self._current = self._halves.popleft() if self._halves else self._gather()
            self._request = self._made_of(self._current)
            self._uncertain = False
        return self._request

    def _gather(self) -> list[Entry]:
        entries: list[Entry] = []
        number = size = 0
        while self._waiting:
            entry = self._waiting[0]
            if entries and (
                entry.alone or number + len(entry.members) > self._events_max or size + entry.size + 1 > self._bytes_max
            ):
                break
            self._leave_queue(self._waiting.popleft())
            entries.append(entry)
            number += len(entry.members)
            size += entry.size + 1
            if entry.alone:
                break
        return entries

    def _made_of(self, entries: Sequence[Entry]) -> PublishRequest:
        first = entries[0]
        headers = [("Idempotency-Key", f'"{first.name or self._new_name()}"')]
        if first.condition is not None:
            headers.append(("If-Match", f'"{first.condition}"'))
        deadline = max(entry.deadline for entry in entries)
        if first.single is not None:
            # The object of an event may look like a batch.
            return PublishRequest(
                [("batch", "false")], [*headers, *first.single.headers()], first.single.content(), deadline
            )
        body = b'{"events":[' + b",".join([member for entry in entries for member in entry.members]) + b"]}"
        return PublishRequest([], [*headers, ("Content-Type", BATCH_TYPE)], body, deadline)

    # --- its answer

    def settle(self, answer: Answer | HubError, now: float) -> Step:
        """Decide about the request under way after an attempt.

        Args:
            answer: of the hub, or the reason why there is none: a lost connection is a reason to repeat the request.
            now: seconds of the clock of the deadlines.

        Returns:
            The entries that are done, and the pause before the next attempt.
        """
        assert self._request is not None
        if isinstance(answer, ConnectionLost):
            self._uncertain |= answer.maybe_stored
            return self._again(str(answer), None, None, now)
        if isinstance(answer, HubError):
            return self._ended([answer for _ in self._current])
        if 200 <= answer.status < 300:
            return self._stored(answer)
        problem = problem_of(answer.status, answer.content_type, answer.body)
        if answer.status in REPEATED:
            self._uncertain |= answer.status in UNCERTAIN
            return self._again(str(problem), problem, answer.retry_after, now)
        if answer.status in CONTENT_FAULTS and len(self._current) > 1:
            # Nothing of it was stored. The halves find the event at fault, and publish the others.
            middle = len(self._current) // 2
            self._halves.extendleft([self._current[middle:], self._current[:middle]])
            self._current, self._request = [], None
            return Step()
        return self._ended([failure(problem) for _ in self._current])

    def _again(self, reason: str, problem: Problem | None, asked: float | None, now: float) -> Step:
        assert self._request is not None
        left = self._request.deadline - now
        if left <= 0:
            error = [Unavailable(reason, problem, maybe_stored=self._uncertain) for _ in self._current]
            return self._ended(error)
        return Step(pause=min(self._backoff.pause(self._chance(), asked), left))

    def _stored(self, answer: Answer) -> Step:
        number = sum(len(entry.members) for entry in self._current)
        try:
            receipts = receipts_of(answer.body, number, repeated=answer.repeated)
        except BadAnswer as error:
            return self._ended([error, *(BadAnswer(error.reason) for _ in self._current[1:])])
        outcomes: list[Outcome] = []
        begin = 0
        for entry in self._current:
            outcomes.append(receipts[begin : begin + len(entry.members)])
            begin += len(entry.members)
        return self._ended(outcomes)

    def _ended(self, outcomes: Sequence[Outcome]) -> Step:
        entries, self._current, self._request = self._current, [], None
        self._backoff.reset()
        self.size -= sum(entry.size for entry in entries)
        return Step(list(zip(entries, outcomes, strict=True)))
