"""Flow of a push subscription: which messages are sent now, by its backlog, its window, its backoff and its gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from griphub.backlog.backlog import Backlog, Entry
from griphub.backlog.push_backoff import PushBackoff
from griphub.backlog.push_window import PushWindow

__all__ = ["Gate", "PushFlow", "Sent"]


class Gate(Protocol):
    """Consent of the receiver, see ``griphub.sender.consent``."""

    def room(self, now: float, most: int) -> int:
        """Return how many requests may begin.

        Args:
            now: time, in seconds.
            most: greatest number.
        """

    def spend(self) -> None:
        """Note that a request has begun."""

    def next_time(self, now: float) -> float:
        """Return the time from which on it may allow more, in seconds; infinite for none.

        Args:
            now: time, in seconds.
        """


@dataclass(slots=True)
class Sent:
    """Request under way.

    Attributes:
        id: of the message.
        lease: number of its lease.
        at: time at which it began, in seconds.
        attempt: number of the delivery, from 1 on.
    """

    id: int
    lease: int
    at: float
    attempt: int


class PushFlow:
    """Decisions about the requests of one subscription.

    Args:
        backlog: its messages.
        window_max: greatest number of requests under way.

    Attributes:
        backlog: that of the arguments.
        gate: consent of the receiver; None if it needs none.
        window: requests that may be under way.
        backoff: pauses while they fail.
        sent: requests under way, by the id of the message and the number of the lease.
    """

    __slots__ = ("_elsewhere", "_full", "backlog", "backoff", "gate", "sent", "window")

    def __init__(self, backlog: Backlog, window_max: int) -> None:
        self.backlog = backlog
        self.window = PushWindow(window_max)
        self.backoff = PushBackoff()
        self.gate: Gate | None = None
        self.sent: dict[tuple[int, int], Sent] = {}
        self._elsewhere: set[tuple[int, int]] = set()
        """Those of them that went to the receiver of before."""
        self._full = False
        """True if only the window kept further requests from beginning, when some began last."""

    def allowed(self, now: float) -> int:
        """Return how many requests may begin now.

        Args:
            now: time, in seconds.
        """
        if not self.backlog.ready:
            return 0
        room = int(self.window.size) - self._here
        if room <= 0 or now < self.backoff.until:
            return 0
        if self.backoff.pause:
            room = 1
        return room if self.gate is None else self.gate.room(now, room)

    @property
    def _here(self) -> int:
        return len(self.sent) - len(self._elsewhere)

    def next_time(self, now: float) -> float:
        """Return the time at which something may be different without an answer, in seconds; infinite for none.

        Args:
            now: time, in seconds.
        """
        due, until = self.backlog.next_time, self.backoff.until
        if not self.backlog.ready:
            return due
        if self.gate is not None:
            due = min(due, self.gate.next_time(now))
        return min(due, until) if until > now else due

    def begin(self, now: float, most: int) -> list[Entry]:
        """Begin requests.

        Args:
            now: time, in seconds.
            most: greatest number.

        Returns:
            Their messages, each with its lease.
        """
        entries = self.backlog.lease(now, min(most, self.allowed(now)))
        for entry in entries:
            self.sent[entry.id, entry.lease] = Sent(entry.id, entry.lease, now, entry.attempts)
            self.backoff.started(now)
            if self.gate is not None:
                self.gate.spend()
        if entries:
            self._full = self._here >= int(self.window.size)
        return entries

    def answered(self, id: int, lease: int, now: float, *, acked: bool, asked: float = 0.0) -> bool:
        """Take the end of a request.

        Args:
            id: of the message.
            lease: number of its lease.
            now: time, in seconds.
            acked: whether the message was acknowledged.
            asked: seconds that the receiver asks for before the next request.

        Returns:
            Whether the message is acknowledged now; an answer that is too late changes nothing.
        """
        sent = self.sent.pop((id, lease), None)
        if sent is None:
            return False
        counts = self.backlog.ack(id, lease) if acked else self.backlog.nack(id, lease, now)
        if counts:
            self._learn(sent, now, acked=acked, asked=asked)
        self._elsewhere.discard((id, lease))
        return acked and counts

    def given_back(self, id: int, lease: int) -> None:
        """Take back a request that has not begun.

        Args:
            id: of the message.
            lease: number of its lease.
        """
        if self.sent.pop((id, lease), None) is not None:
            self._elsewhere.discard((id, lease))
            self.backlog.give_back(id, lease)

    def pass_time(self, now: float) -> list[Sent]:
        """End the requests whose deadline is over, and the delays of messages.

        Args:
            now: time, in seconds.

        Returns:
            The requests, which are to be aborted.
        """
        ended = []
        for entry in self.backlog.pass_time(now):
            sent = self.sent.pop((entry.id, entry.lease), None)
            if sent is not None:
                self._learn(sent, now, acked=False, asked=0.0)
                self._elsewhere.discard((sent.id, sent.lease))
                ended.append(sent)
        return ended

    def aborted(self) -> list[Sent]:
        """Return the requests under way, which end without an answer: messages and pace begin anew."""
        ended = [*self.sent.values()]
        self.sent.clear()
        self.begin_anew()
        return ended

    def begin_anew(self) -> None:
        """Forget the pace: further requests go to another receiver. Answers to those under way still count."""
        self._elsewhere = set(self.sent)
        self.window.clear()
        self.backoff.clear()

    def _learn(self, sent: Sent, now: float, *, acked: bool, asked: float) -> None:
        if (sent.id, sent.lease) in self._elsewhere:
            return
        self.window.answered(now, now - sent.at, acked=acked, full=self._full)
        self.backoff.answered(now, acked=acked, asked=asked)
