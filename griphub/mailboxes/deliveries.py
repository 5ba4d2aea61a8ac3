"""Deliveries of messages to mailboxes: few of them immediately, many in turns that owners take one after the other.

The messages of an owner stay in their order. Those that wait are bounded for each owner; beyond, they are one gap,
which its mailboxes report as lost: an owner with very many deliveries delays itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from griphub.mailboxes.bounds import Bounds
from griphub.mailboxes.mailbox import Mailbox, MailboxOwner
from griphub.mailboxes.messages import MESSAGE_COST, Message
from griphub.mailboxes.subscriptions import TopicFollowers

__all__ = ["Deliveries"]

AT_ONCE: Final = 100
"""Mailboxes of an owner that a message reaches immediately; with more, all of them wait for their turn."""

OWNERS: Final = 500
"""Owners among which a message is divided immediately."""

SLICE: Final = 700
"""Deliveries of a turn, of all owners together."""

SHARE: Final = 200
"""Deliveries of an owner in a turn, if others wait."""

WAKE_COST: Final = 8
"""Deliveries for which one counts that wakes a held poll."""

UNDIVIDED_MAX: Final = 64_000_000
"""Bytes of messages that wait to be divided among owners. More are divided immediately, which is cheap."""

Topic = TopicFollowers[Mailbox]
Gap = dict[Topic, int]
"""Id of the last lost message by topic."""


class _Lane:
    """Messages that wait for the mailboxes of one owner.

    Args:
        owner: the owner.
    """

    def __init__(self, owner: MailboxOwner) -> None:
        self.owner = owner
        self._waiting: deque[tuple[Message, Topic]] = deque()
        self._size = 0
        self._gap: Gap = {}
        """Lost before those that wait."""
        self.present: tuple[Message, Topic] | Gap | None = None
        """Under delivery; None for none."""
        self._left: list[Mailbox] = []
        """Mailboxes that it has not reached, the next one last."""

    @property
    def empty(self) -> bool:
        """True if nothing waits."""
        return not self._waiting and not self._gap and not self._left

    def add(self, message: Message, topic: Topic, bounds: Bounds) -> None:
        """Add a message.

        Args:
            message: the message.
            topic: followers of its topic.
            bounds: bounds of a mailbox, beyond which all that waits is lost.
        """
        self._waiting.append((message, topic))
        self._size += message.size + MESSAGE_COST
        if len(self._waiting) > bounds.messages or self._size > bounds.bytes_each:
            for lost, of in self._waiting:
                # The last one in the order of the losses.
                self._gap.pop(of, None)
                self._gap[of] = lost.id
            self._waiting.clear()
            self._size = 0

    def next_mailbox(self, mailboxes: Callable[[MailboxOwner], Iterable[Mailbox]]) -> Mailbox | None:
        """Return the mailbox that ``present`` has to reach next; None if nothing is left.

        Args:
            mailboxes: returns those of an owner.
        """
        while not self._left:
            if self._gap:
                self.present, self._gap = self._gap, {}
                self._left = list(mailboxes(self.owner))
            elif self._waiting:
                message, topic = self.present = self._waiting.popleft()
                self._size -= message.size + MESSAGE_COST
                self._left = list(topic.of(self.owner, message.key))
            else:
                return None
            self._left.reverse()
        return self._left.pop()


class Deliveries:
    """Messages on their way to mailboxes.

    Args:
        bounds: bounds of mailboxes.
        deliver: puts a message into a mailbox.
        lose: has a mailbox report its part of a gap.
        mailboxes: returns those of an owner.
    """

    def __init__(
        self,
        bounds: Bounds,
        deliver: Callable[[Mailbox, Message], None],
        lose: Callable[[Mailbox, Mapping[Topic, int]], None],
        mailboxes: Callable[[MailboxOwner], Iterable[Mailbox]],
    ) -> None:
        self._bounds = bounds
        self._deliver = deliver
        self._lose = lose
        self._mailboxes = mailboxes
        self._undivided: deque[tuple[Message, Topic]] = deque()
        self._size = 0
        """Bytes of the messages that wait to be divided."""
        self._owners: list[MailboxOwner] = []
        """Owners that the first of these has not reached, the next one last."""
        self._lanes: dict[MailboxOwner, _Lane] = {}
        """Those that are not empty, in the order of their turns."""

    @property
    def waiting(self) -> bool:
        """True if ``work`` has to be called in a later turn."""
        return bool(self._undivided or self._lanes)

    def add(self, message: Message, topic: Topic, now: float) -> list[Mailbox]:
        """Take a message, and deliver it if it is for few mailboxes.

        Args:
            message: the message.
            topic: followers of its topic.
            now: monotonic time in seconds.

        Returns:
            Mailboxes that it has reached.
        """
        if not self._undivided:
            owners = topic.owners(message.key)
            if len(owners) <= OWNERS:
                reached: list[Mailbox] = []
                for owner in owners:
                    self._hand(owner, message, topic, now, reached)
                return reached
        self._undivided.append((message, topic))
        self._size += message.size + MESSAGE_COST
        return self._divide(now, 0) if self._size > UNDIVIDED_MAX else []

    def work(self, now: float) -> list[Mailbox]:
        """Deliver some of the messages that wait.

        Args:
            now: monotonic time in seconds.

        Returns:
            Mailboxes that were reached.
        """
        reached = self._divide(now, OWNERS)
        left = SLICE - sum([_cost(mailbox) for mailbox in reached])
        while self._lanes and left > 0:
            owner = next(iter(self._lanes))
            lane = self._lanes.pop(owner)
            left -= self._work(lane, left if not self._lanes else min(left, SHARE), reached)
            if not lane.empty:
                self._lanes[owner] = lane
        return reached

    def _divide(self, now: float, most: int) -> list[Mailbox]:
        """Divide messages among owners: ``most`` of these, or all if it is 0."""
        reached: list[Mailbox] = []
        left = most
        while self._undivided:
            message, topic = self._undivided[0]
            if not self._owners:
                self._owners = [*topic.owners(message.key)]
                self._owners.reverse()
            while self._owners:
                if most and left <= 0:
                    return reached
                self._hand(self._owners.pop(), message, topic, now, reached)
                left -= 1
            self._undivided.popleft()
            self._size -= message.size + MESSAGE_COST
            left -= 1
        return reached

    def _hand(self, owner: MailboxOwner, message: Message, topic: Topic, now: float, reached: list[Mailbox]) -> None:
        """Give a message to an owner: to its mailboxes if these are few, else to its lane."""
        lane = self._lanes.get(owner)
        if lane is None:
            followers: Sequence[Mailbox] = topic.of(owner, message.key)
            if len(followers) <= AT_ONCE and owner.spend(sum([_cost(each) for each in followers]), now):
                for mailbox in followers:
                    if mailbox.wants(topic, message):
                        self._deliver(mailbox, message)
                        reached.append(mailbox)
                return
            lane = self._lanes[owner] = _Lane(owner)
        lane.add(message, topic, self._bounds)

    def _work(self, lane: _Lane, most: int, reached: list[Mailbox]) -> int:
        """Deliver some of a lane; return the cost."""
        cost = 0
        while cost < most and (mailbox := lane.next_mailbox(self._mailboxes)) is not None:
            cost += 1
            present = lane.present
            if isinstance(present, dict):
                cost += len(mailbox) + len(mailbox.topics)
                self._lose(mailbox, present)
            elif present is not None and mailbox.wants(present[1], present[0]):
                self._deliver(mailbox, present[0])
            else:
                continue
            cost += _cost(mailbox) - 1
            reached.append(mailbox)
        return cost


def _cost(mailbox: Mailbox) -> int:
    return 1 if mailbox.held is None else WAKE_COST
