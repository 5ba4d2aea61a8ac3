"""Mailboxes of all subscribers: commands, polls, publishing, and subscribers that do not poll any more. Sans-I/O.

A subscriber exists from its first batch of commands until it is forgotten; polls never make one. Messages are published
in the order of their ids. The caller answers held polls; a poll is held in one place at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from griphub.mailboxes.accounts import Accounts
from griphub.mailboxes.bounds import Bounds, MailboxLimit
from griphub.mailboxes.commands import CommandBatch, LastId
from griphub.mailboxes.decisions import (
    Applied,
    Checked,
    CommandDecision,
    Conflict,
    Emptied,
    Forbidden,
    Hold,
    Messages,
    PollDecision,
    Unknown,
    WakeUp,
)
from griphub.mailboxes.deliveries import Deliveries
from griphub.mailboxes.mailbox import Mailbox, MailboxOwner
from griphub.mailboxes.messages import Message
from griphub.mailboxes.subscriptions import SubscriptionIndex, TopicFollowers
from griphub.mailboxes.summary import MailboxSummary
from gripproxy.grip.errors import InternalError

__all__ = ["CHECK_INTERVAL", "SUBSCRIBER_TIMEOUT", "LastId", "Mailboxes", "OutOfOrder"]

SUBSCRIBER_TIMEOUT: Final = 300.0
"""Seconds without a poll after which a held one is answered, and after which a subscriber without one is forgotten."""

CHECK_INTERVAL: Final = 30.0
"""Seconds between two checks of the subscribers."""

END_MAX: Final = 3000
"""Subscriptions to deleted topics that are ended in one call, and messages of their mailboxes that are looked at: a
topic may have millions of keys."""

FORGET_MAX: Final = 10_000
"""Subscriptions that a check removes before it ends early: an index of millions must not be cleared in one turn."""


Pair = tuple[TopicFollowers[Mailbox], str | None]
"""Subscription of a mailbox: its topic, and its key or None for the whole topic."""


class OutOfOrder(InternalError):
    """Message whose id is not above all ids published before it."""


class Mailboxes:
    """All mailboxes.

    Args:
        publisher_id: short text, another one whenever mailboxes were lost.
        bounds: bounds; the defaults if None.
        subscriber_timeout: seconds.
    """

    def __init__(
        self, publisher_id: str, bounds: Bounds | None = None, subscriber_timeout: float = SUBSCRIBER_TIMEOUT
    ) -> None:
        self.publisher_id = publisher_id
        """First part of the ids under which sequence ids count: each life of a mailbox has one of its own."""
        self._bounds = bounds or Bounds()
        self._timeout = subscriber_timeout
        self._mailboxes: dict[str, Mailbox] = {}
        """In the order in which they were seen."""
        self._accounts = Accounts()
        self._index: SubscriptionIndex[Mailbox] = SubscriptionIndex()
        self._deliveries = Deliveries(self._bounds, self._deliver, self._lose, self._of)
        self._ending: deque[TopicFollowers[Mailbox]] = deque()
        """Deleted topics with followers; bounded by the subscriptions."""
        self._leaving: list[Mailbox] = []
        """Followers of a key of the first of them, which it has no more."""
        self._leaving_key: str | None = None
        self._polls = 0
        self.newest = 0
        """Id of the message published last; 0 before the first."""
        self.keys = 0
        """Number of subscriptions of all mailboxes."""
        self.lost = 0
        """Number of messages that were lost to a bound."""

    def __len__(self) -> int:
        return len(self._mailboxes)

    @property
    def size(self) -> int:
        """Bytes that the messages in all mailboxes count for."""
        return self._accounts.size

    def owner_of(self, subscriber: str) -> str | None:
        """Return the key of the owner of ``subscriber``; None if there is no such subscriber."""
        mailbox = self._mailboxes.get(subscriber)
        return None if mailbox is None else mailbox.owner.name

    def publisher_id_of(self, subscriber: str) -> str | None:
        """Return the id under which sequence ids of a ``subscriber`` count; None if there is no such subscriber."""
        mailbox = self._mailboxes.get(subscriber)
        return None if mailbox is None else self._id_of(mailbox)

    def name_of(self, subscriber: str) -> str:
        """Return the name of a ``subscriber`` as its mailbox has it: the same object, which need not be kept twice."""
        mailbox = self._mailboxes.get(subscriber)
        return subscriber if mailbox is None else mailbox.subscriber

    def follows(self, topic: str) -> bool:
        """Return whether a ``topic``, or a key of it, has a subscription."""
        return self._index.find(topic) is not None

    def held(self, subscriber: str) -> int | None:
        """Return the number of the held poll of a ``subscriber``; None for none."""
        mailbox = self._mailboxes.get(subscriber)
        return None if mailbox is None else mailbox.held

    def topics(self, subscriber: str) -> set[str]:
        """Return the names of the topics that a ``subscriber`` follows, or follows keys of."""
        mailbox = self._mailboxes.get(subscriber)
        return set() if mailbox is None else {topic.name for topic in mailbox.topics}

    def summaries(self, owner: str, now: float) -> list[MailboxSummary]:
        """Return the state of an owner's mailboxes, by name of the subscriber.

        Args:
            owner: key of the owner.
            now: monotonic time in seconds.
        """
        return sorted(mailbox.summary(now) for mailbox in self._mailboxes.values() if mailbox.owner.name == owner)

    # --- commands

    def commands(
        self, subscriber: str, owner: str, batch: CommandBatch, last_id: LastId, now: float
    ) -> CommandDecision:
        """Carry out a batch of commands, or give the stored answer again.

        The state at the end of the batch counts: a subscription that is there before and after it is not interrupted.

        Args:
            subscriber: its name.
            owner: key of the owner of the request.
            batch: the commands.
            last_id: gives the places from which subscriptions begin.
            now: monotonic time in seconds.

        Returns:
            The decision.

        Raises:
            MailboxLimit: the batch exceeds a limit; it was not carried out.
        """
        mailbox = self._mailboxes.get(subscriber)
        last = 0
        # A delayed repetition of an earlier life of the subscriber may have the same number and other commands.
        digest = hash(batch.commands)
        if mailbox is not None:
            if mailbox.owner.name != owner:
                return Forbidden()
            last = mailbox.sequence
            if batch.sequence == last and digest == mailbox.digest:
                return Applied(self._id_of(mailbox), last, mailbox.last_ids, repeated=True)
        if batch.sequence != last + 1:
            return Conflict(batch.sequence, (1,) if mailbox is None else (last, last + 1))
        last_ids, wanted = batch.outcome(last_id)
        self._check_limits(mailbox, owner, wanted)
        if mailbox is None:
            mailbox = self._mailboxes[subscriber] = self._accounts.open(subscriber, owner, now)
        self._apply(mailbox, wanted)
        mailbox.answered(batch.sequence, digest, last_ids)
        return Applied(self._id_of(mailbox), batch.sequence, last_ids)

    def _check_limits(self, mailbox: Mailbox | None, owner: str, wanted: dict[tuple[str, str | None], bool]) -> None:
        bounds = self._bounds
        if mailbox is None:
            self._accounts.check(owner, bounds)
        gained = 0
        for (topic, key), subscribe in wanted.items():
            gained += subscribe - (mailbox is not None and self._follows(mailbox, topic, key))
        if gained <= 0:
            return
        if gained + (0 if mailbox is None else mailbox.keys + mailbox.ended) > bounds.keys_each:
            raise MailboxLimit("keys", bounds.keys_each, "mailbox")
        if self._accounts.keys_of(owner) + gained > bounds.keys_owner:
            raise MailboxLimit("keys", bounds.keys_owner, "owner")
        if self.keys + gained > bounds.keys_total:
            raise MailboxLimit("keys", bounds.keys_total, "total")

    def _apply(self, mailbox: Mailbox, wanted: dict[tuple[str, str | None], bool]) -> None:
        removed: dict[str, set[str | None]] = {}
        for (topic, key), subscribe in wanted.items():
            mailbox.confirm(topic, key)
            followers = self._index.find(topic)
            there = followers is not None and followers.has(key, mailbox)
            if subscribe and not there:
                mailbox.follow(self._index.add(topic, key, mailbox), key, self.newest)
                self._count_keys(mailbox, 1)
            elif followers is not None and there and not subscribe:
                mailbox.unfollow(followers, key)
                self._index.remove(followers, key, mailbox)
                self._count_keys(mailbox, -1)
                removed.setdefault(topic, set()).add(key)
        if removed:
            self._drop_unwanted(mailbox, removed)

    def _follows(self, mailbox: Mailbox, topic: str, key: str | None) -> bool:
        """Return whether a mailbox has exactly this subscription."""
        followers = self._index.find(topic)
        return followers is not None and followers.has(key, mailbox)

    def _drop_unwanted(self, mailbox: Mailbox, removed: dict[str, set[str | None]]) -> None:
        """Remove messages that no subscription matches, and losses of subscriptions that are no more."""
        before = mailbox.size
        mailbox.keep(removed, partial(self._follows, mailbox))
        self._accounts.resized(mailbox, before)

    # --- polls

    def poll(
        self, subscriber: str, owner: str, max_processed: int, publisher_id: str | None, now: float
    ) -> PollDecision:
        """Acknowledge messages, and answer with the others or hold the poll.

        Args:
            subscriber: its name.
            owner: key of the owner of the request.
            max_processed: greatest id that the subscriber has processed; 0 for none.
            publisher_id: id under which that number counts: under another one it counts as 0. None for none.
            now: monotonic time in seconds.

        Returns:
            The decision.
        """
        mailbox = self._mailboxes.get(subscriber)
        if mailbox is None:
            return Unknown()
        if mailbox.owner.name != owner:
            return Forbidden()
        self._touch(mailbox, now)
        number = self._next_number()
        older = mailbox.release()
        current = self._id_of(mailbox)
        if publisher_id == current:
            before = mailbox.size
            mailbox.acknowledge(max_processed)
            self._accounts.resized(mailbox, before)
        # A subscriber of a former life has lost messages, so the present id goes to it without delay.
        if mailbox.waiting or publisher_id not in (None, current):
            return Messages(number, mailbox.reply(current, self._bounds), older)
        mailbox.hold(number)
        return Hold(number, older, current)

    def _id_of(self, mailbox: Mailbox) -> str:
        """Return the publisher's id for a mailbox.

        A subscriber that was forgotten, and made again by a late repetition of its first batch, has lost messages
        without an ``Unknown``: the id shows it.
        """
        return f"{self.publisher_id}.{mailbox.life}"

    def _next_number(self) -> int:
        self._polls += 1
        return self._polls

    def _touch(self, mailbox: Mailbox, now: float) -> None:
        mailbox.see(now)
        del self._mailboxes[mailbox.subscriber]
        self._mailboxes[mailbox.subscriber] = mailbox

    def _wake(self, mailboxes: Iterable[Mailbox], now: float) -> list[WakeUp]:
        """Return the held polls that have an answer now. They are not held any more."""
        found = []
        for mailbox in mailboxes:
            if mailbox.waiting and (number := mailbox.release()) is not None:
                found.append(WakeUp(mailbox.subscriber, number))
                # The subscriber could not poll while its poll was held.
                self._touch(mailbox, now)
        return found

    # --- publishing

    def publish(
        self, topic: str, key: str | None, message_id: int, payload: Any, size: int, now: float
    ) -> Sequence[WakeUp]:
        """Add a message to the mailboxes of its subscribers, at a cost proportional to their number.

        Args:
            topic: name of the topic.
            key: key; None for none.
            message_id: id of the event, above all published before.
            payload: content or a reference to it, in memory once for all mailboxes.
            size: bytes of the payload as a reply has it.
            now: monotonic time in seconds.

        Returns:
            The held polls to be woken, each once: the next wake-up of a subscriber follows its next poll.

        Raises:
            OutOfOrder: the id is not above all others; no mailbox has the message.
        """
        if message_id <= self.newest:
            raise OutOfOrder(f"message {message_id} of {topic!r} follows message {self.newest}: ids have to grow")
        self.newest = message_id
        followers = self._index.find(topic)
        if followers is None:
            return []
        reached = self._deliveries.add(Message(topic, key, message_id, size, payload), followers, now)
        self._bound_total()
        return self._wake(reached, now)

    @property
    def behind(self) -> bool:
        """True if messages wait for mailboxes that they are for, to be delivered by ``deliver``."""
        return self._deliveries.waiting

    def deliver(self, now: float) -> list[WakeUp]:
        """Deliver some of the messages that wait.

        Args:
            now: monotonic time in seconds.

        Returns:
            The held polls to be woken.
        """
        reached = self._deliveries.work(now)
        self._bound_total()
        return self._wake(reached, now)

    def _deliver(self, mailbox: Mailbox, message: Message) -> None:
        before = mailbox.size
        mailbox.add(message)
        while mailbox.exceeds(self._bounds):
            self._lose_oldest(mailbox)
        self._accounts.resized(mailbox, before)

    def _lose(self, mailbox: Mailbox, gap: Mapping[TopicFollowers[Mailbox], int]) -> None:
        """Have a mailbox report its part of a gap. Its messages are older, and losses come before messages: they go."""
        lost = [(gap[topic], topic.name) for topic in mailbox.topics if topic in gap]
        if not lost:
            return
        before = mailbox.size
        while len(mailbox):
            self._lose_oldest(mailbox)
        for last, topic in sorted(lost):
            mailbox.lose(topic, None, last, self._bounds.losses)
            self.lost += 1
        self._accounts.resized(mailbox, before)

    def _of(self, owner: MailboxOwner) -> list[Mailbox]:
        return [mailbox for mailbox in self._mailboxes.values() if mailbox.owner is owner]

    def _lose_oldest(self, mailbox: Mailbox) -> None:
        message = mailbox.take_oldest()
        key = None if self._follows(mailbox, message.topic, None) else message.key
        mailbox.lose(message.topic, key, message.id, self._bounds.losses)
        self.lost += 1

    def _bound_total(self) -> None:
        """Lose the oldest messages of the largest mailbox of the largest owner until all together are within bounds."""
        while self.size > self._bounds.bytes_total:
            mailbox = self._accounts.largest()
            if mailbox is None:
                raise InternalError(f"mailboxes count {self.size} bytes of messages, and none has a message")
            before = mailbox.size
            self._lose_oldest(mailbox)
            self._accounts.resized(mailbox, before)

    # --- ends

    def delete_topic(self, topic: str, now: float) -> list[WakeUp]:
        """End subscriptions to a deleted topic; their subscribers get a report.

        No later message reaches them. Those made from now on are of a new topic of that name.

        Args:
            topic: name of the topic.
            now: monotonic time in seconds.

        Returns:
            The held polls to be woken. While ``ending`` is true, ``end_more`` has to be called in later turns.
        """
        followers = self._index.take(topic)
        if followers is not None:
            self._ending.append(followers)
        return self.end_more(now)

    @property
    def ending(self) -> bool:
        """True if subscriptions to deleted topics are left, to be ended by ``end_more``."""
        return bool(self._ending)

    def end_more(self, now: float) -> list[WakeUp]:
        """End some of the subscriptions to deleted topics.

        Args:
            now: monotonic time in seconds.

        Returns:
            The held polls to be woken.
        """
        concerned: dict[Mailbox, list[Pair]] = {}
        cost = 0
        while self._ending and cost < END_MAX:
            topic = self._ending[0]
            if not self._leaving:
                self._leaving_key, self._leaving = topic.pop()
                self._leaving.reverse()
            while self._leaving and cost < END_MAX:
                mailbox = self._leaving.pop()
                # Meanwhile it may have been forgotten, or have ended the subscription itself.
                if mailbox.follows(topic, self._leaving_key):
                    # Each mailbox is looked through for messages that no subscription matches any more.
                    cost += 0 if mailbox in concerned else len(mailbox)
                    concerned.setdefault(mailbox, []).append((topic, self._leaving_key))
                cost += 1
            if not topic and not self._leaving:
                self._ending.popleft()
        for mailbox, pairs in concerned.items():
            self._end(mailbox, pairs, taken=True)
        return self._wake(concerned, now)

    def withdraw(self, subscriber: str, topics: Container[str], now: float) -> list[WakeUp]:
        """End the subscriptions of a subscriber to topics that it may not read any more; it gets a report.

        Args:
            subscriber: its name.
            topics: names of the topics.
            now: monotonic time in seconds.

        Returns:
            The held polls to be woken.
        """
        mailbox = self._mailboxes.get(subscriber)
        if mailbox is None:
            return []
        pairs = [(topic, key) for topic in mailbox.topics if topic.name in topics for key in mailbox.keys_of(topic)]
        if not pairs:
            return []
        self._end(mailbox, pairs, taken=False)
        return self._wake([mailbox], now)

    def _end(self, mailbox: Mailbox, pairs: Sequence[Pair], *, taken: bool) -> None:
        removed: dict[str, set[str | None]] = {}
        for topic, key in pairs:
            mailbox.unfollow(topic, key)
            if not taken:
                self._index.remove(topic, key, mailbox)
            # Of a deleted topic there may be a later one that it follows already.
            if not (taken and self._follows(mailbox, topic.name, key)):
                mailbox.report(topic.name, key)
            removed.setdefault(topic.name, set()).add(key)
        self._count_keys(mailbox, -len(pairs))
        self._drop_unwanted(mailbox, removed)

    def _count_keys(self, mailbox: Mailbox, change: int) -> None:
        self.keys += change
        mailbox.owner.count_keys(change)

    def forget(self, subscriber: str) -> bool:
        """Remove a mailbox: polls for it are unknown from now on.

        Args:
            subscriber: its name.

        Returns:
            Whether there was one.
        """
        mailbox = self._mailboxes.pop(subscriber, None)
        if mailbox is None:
            return False
        for topic in mailbox.topics:
            for key in mailbox.keys_of(topic):
                self._index.remove(topic, key, mailbox)
        self._count_keys(mailbox, -mailbox.keys)
        mailbox.close()
        self._accounts.close(mailbox)
        return True

    def check(self, now: float) -> Checked:
        """Find subscribers that do not poll any more, to be called each ``CHECK_INTERVAL``.

        A held poll is answered after the timeout, so that the subscriber has to repeat it. Without a held poll the
        subscriber is forgotten after the timeout.

        Args:
            now: monotonic time in seconds.

        Returns:
            Held polls to be answered, and forgotten subscribers.
        """
        due: list[Mailbox] = []
        keys = 0
        more = False
        for mailbox in self._mailboxes.values():
            if now - mailbox.seen < self._timeout:
                break
            if keys >= FORGET_MAX:
                more = True
                break
            due.append(mailbox)
            keys += 1 + mailbox.keys
        emptied: list[Emptied] = []
        forgotten: list[str] = []
        for mailbox in due:
            number = mailbox.release()
            if number is None:
                self.forget(mailbox.subscriber)
                forgotten.append(mailbox.subscriber)
            else:
                emptied.append(Emptied(mailbox.subscriber, number, self._next_number()))
                self._touch(mailbox, now)
        return Checked(tuple(emptied), tuple(forgotten), more)
