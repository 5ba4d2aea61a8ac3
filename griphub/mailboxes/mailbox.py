"""Mailbox: messages of one subscriber in order, from their publication to their acknowledgement. Sans-I/O.

A reply removes nothing. The next poll acknowledges the messages up to a number, and gives all others again.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final, TypeAlias

from griphub.mailboxes.bounds import Bounds
from griphub.mailboxes.losses import Losses
from griphub.mailboxes.messages import MESSAGE_COST, Ended, Lost, Message, Reply
from griphub.mailboxes.size_classes import SizeClasses
from griphub.mailboxes.subscriptions import TopicFollowers
from griphub.mailboxes.summary import MailboxSummary

__all__ = ["Mailbox", "MailboxOwner"]

REFUSED: Final = -1
"""Last id that stands for a refused subscribe in the stored answer."""


ALLOWANCE: Final = 5000.0
"""Deliveries that an owner has immediately, after a pause. One that wakes a held poll counts for several."""

ALLOWANCE_RATE: Final = 100_000.0
"""Deliveries a second that an owner has immediately: those beyond take turns with the ones of other owners."""


Begins: TypeAlias = int | dict[str | None, int]
"""Subscriptions of a mailbox in a topic: keys, None for the whole topic, each with the newest id at its begin; or
that id alone, if it follows the whole topic and no key."""


class MailboxOwner:
    """Owner of mailboxes.

    Args:
        name: key of the owner.

    Attributes:
        name: key of the owner.
        mailboxes: number of its mailboxes.
        keys: number of their subscriptions.
        size: bytes of the messages in them.
        sizes: those with messages.
    """

    __slots__ = ("_allowance", "_refilled", "keys", "mailboxes", "name", "size", "sizes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.mailboxes = 0
        self.keys = 0
        self.size = 0
        self.sizes: SizeClasses[Mailbox] = SizeClasses()
        self._allowance = ALLOWANCE
        self._refilled = 0.0

    def count(self, change: int) -> int:
        """Note mailboxes that were opened or closed.

        Args:
            change: their number; negative for closed ones.

        Returns:
            The number of its mailboxes.
        """
        self.mailboxes += change
        return self.mailboxes

    def count_keys(self, change: int) -> None:
        """Note subscriptions that were begun or ended.

        Args:
            change: their number; negative for ended ones.
        """
        self.keys += change

    def resize(self, size: int) -> None:
        """Note the bytes of the messages in its mailboxes.

        Args:
            size: bytes.
        """
        self.size = size

    def spend(self, deliveries: int, now: float) -> bool:
        """Take deliveries from the allowance.

        Args:
            deliveries: how many.
            now: monotonic time in seconds.

        Returns:
            Whether there were as many; if not, none is taken.
        """
        if self._allowance < deliveries:
            self._allowance = min(ALLOWANCE, self._allowance + (now - self._refilled) * ALLOWANCE_RATE)
            self._refilled = now
            if self._allowance < deliveries:
                return False
        self._allowance -= deliveries
        return True


class Mailbox:
    """Mailbox of a subscriber.

    Args:
        subscriber: its name.
        owner: its owner.
        now: monotonic time in seconds.
        life: number that no other mailbox has, a former one of the subscriber neither.

    Attributes:
        subscriber: its name.
        owner: its owner.
        life: number of the mailbox.
        keys: number of topics and keys that it follows.
        size: bytes that the messages count for.
        seen: time of the last poll, or of the answer to a held one, in seconds.
        held: number of the held poll; None for none.
        sequence: number of the last batch of commands; 0 before the first.
        digest: hash of its commands.
    """

    __slots__ = (
        "_answer",
        "_answers",
        "_begins",
        "_ended",
        "_losses",
        "_messages",
        "_others",
        "_sent",
        "_topic",
        "digest",
        "held",
        "keys",
        "life",
        "owner",
        "seen",
        "sequence",
        "size",
        "subscriber",
    )

    def __init__(self, subscriber: str, owner: MailboxOwner, now: float, life: int = 1) -> None:
        self.subscriber = subscriber
        self.owner = owner
        self.keys = 0
        # Most mailboxes follow one topic, or keys of one, for which a dict would take more than the rest of them.
        self._topic: TopicFollowers[Mailbox] | None = None
        self._begins: Begins = 0
        """Subscriptions in that topic."""
        self._others: dict[TopicFollowers[Mailbox], Begins] | None = None
        """Subscriptions in other topics."""
        self.size = 0
        self.seen = now
        self.life = life
        self.held: int | None = None
        self.sequence = 0
        self.digest = 0
        self._answer: array[int] | None = None
        """Last ids of the last batch; one for all of them, if they are equal."""
        self._answers = 0
        # Most mailboxes are empty most of the time, so the queue and the others exist while they are needed.
        self._messages: deque[Message] | None = None
        self._losses: Losses | None = None
        self._ended: dict[Ended, None] | None = None
        self._sent = 0
        """Greatest id that a reply had."""

    def __len__(self) -> int:
        return len(self._messages or ())

    def summary(self, now: float) -> MailboxSummary:
        """Return the state of the mailbox.

        Args:
            now: monotonic time in seconds.
        """
        return MailboxSummary(
            self.subscriber,
            self.keys,
            len(self),
            self.size,
            self.held is not None,
            round(max(0.0, now - self.seen), 1),
            self.sequence,
        )

    # --- subscriptions

    @property
    def topics(self) -> Sequence[TopicFollowers[Mailbox]]:
        """Topics that it follows, or follows keys of."""
        first = () if self._topic is None else (self._topic,)
        return (*first, *(self._others or ()))

    def keys_of(self, topic: TopicFollowers[Mailbox]) -> list[str | None]:
        """Return the keys of a topic that it follows, None for the whole topic.

        Args:
            topic: the topic.
        """
        begins = self._begins_of(topic)
        if begins is None:
            return []
        return [*begins] if isinstance(begins, dict) else [None]

    def follows(self, topic: TopicFollowers[Mailbox], key: str | None) -> bool:
        """Return whether it has exactly this subscription.

        Args:
            topic: the topic.
            key: key; None for the whole topic.
        """
        begins = self._begins_of(topic)
        return key in begins if isinstance(begins, dict) else begins is not None and key is None

    def follow(self, topic: TopicFollowers[Mailbox], key: str | None, begin: int) -> None:
        """Add a subscription that is not there.

        Args:
            topic: its topic.
            key: key; None for the whole topic.
            begin: newest id at its begin: later messages belong to it.
        """
        self.keys += 1
        begins = self._begins_of(topic)
        if isinstance(begins, dict):
            begins[key] = begin
            return
        if begins is None:
            added: Begins = begin if key is None else {key: begin}
        else:
            added = {None: begins, key: begin}
        if topic is self._topic or (self._topic is None and begins is None):
            self._topic, self._begins = topic, added
        elif self._others is None:
            self._others = {topic: added}
        else:
            self._others[topic] = added

    def unfollow(self, topic: TopicFollowers[Mailbox], key: str | None) -> None:
        """Remove a subscription that is there.

        Args:
            topic: its topic.
            key: key; None for the whole topic.
        """
        self.keys -= 1
        begins = self._begins_of(topic)
        if isinstance(begins, dict):
            del begins[key]
            if begins:
                return
        if self._topic is topic:
            self._topic, self._begins = None, 0
        elif self._others is not None:
            del self._others[topic]
            self._others = self._others or None

    def close(self) -> None:
        """Remove all subscriptions: messages on their way are not for it any more."""
        self._topic = self._others = None
        self.keys = 0

    def _begins_of(self, topic: TopicFollowers[Mailbox]) -> Begins | None:
        if topic is self._topic:
            return self._begins
        return None if self._others is None else self._others.get(topic)

    def wants(self, topic: TopicFollowers[Mailbox], message: Message) -> bool:
        """Return whether a message that was published before now is for the mailbox.

        Args:
            topic: of the message.
            message: the message.
        """
        begins = self._begins_of(topic)
        if isinstance(begins, dict):
            never = message.id
            return begins.get(None, never) < never or begins.get(message.key, never) < never
        return begins is not None and begins < message.id

    # --- commands

    @property
    def ended(self) -> int:
        """Number of ended subscriptions that no command has confirmed."""
        return len(self._ended or ())

    @property
    def last_ids(self) -> tuple[int | None, ...]:
        """Stored answer to the last batch: a last id for each subscribe, None for a refused one."""
        found = tuple(None if last_id == REFUSED else last_id for last_id in self._answer or ())
        return found * self._answers if len(found) == 1 else found

    def answered(self, sequence: int, digest: int, last_ids: tuple[int | None, ...]) -> None:
        """Store the answer to a batch of commands.

        Args:
            sequence: number of the batch.
            digest: hash of its commands.
            last_ids: a last id for each subscribe, None for a refused one.
        """
        self.sequence = sequence
        self.digest = digest
        self._answers = len(last_ids)
        kept = last_ids[:1] if len(set(last_ids)) == 1 else last_ids
        # Of a list: an array that is filled one by one has room for more.
        self._answer = array("q", [REFUSED if last_id is None else last_id for last_id in kept]) if kept else None

    def confirm(self, topic: str, key: str | None) -> bool:
        """Forget an ended subscription, after a command about it.

        Args:
            topic: name of the topic.
            key: key; None for the whole topic.

        Returns:
            Whether it was there.
        """
        if self._ended is None or Ended(topic, key) not in self._ended:
            return False
        del self._ended[Ended(topic, key)]
        self._ended = self._ended or None
        return True

    def report(self, topic: str, key: str | None) -> None:
        """Report an ended subscription, until a command confirms it.

        Args:
            topic: name of the topic.
            key: key; None for the whole topic.
        """
        if self._ended is None:
            self._ended = {}
        self._ended[Ended(topic, key)] = None

    def keep(self, removed: Mapping[str, Container[str | None]], follows: Callable[[str, str | None], bool]) -> None:
        """Remove messages and losses that no subscription matches any more.

        Args:
            removed: keys of removed subscriptions by topic, None among them for the whole topic. Only messages that
                these match are looked at more closely.
            follows: called with topic and key, or None for the whole topic; False if there is no such subscription.
        """

        def wanted(topic: str, key: str | None) -> bool:
            keys = removed.get(topic)
            if keys is None or (key not in keys and None not in keys):
                return True
            return follows(topic, None) or (key is not None and follows(topic, key))

        if self._messages is not None:
            kept = [each for each in self._messages if each.topic not in removed or wanted(each.topic, each.key)]
            if len(kept) < len(self._messages):
                self._messages = deque(kept) if kept else None
                self.size = sum([message.size for message in kept]) + MESSAGE_COST * len(kept)
        if self._losses is not None:
            # A loss of a whole topic may stand for those of its keys.
            topics = {topic.name for topic in self.topics}
            self._losses.keep(lambda topic, key: topic in topics if key is None else wanted(topic, key))
            self._losses = self._losses if len(self._losses) else None

    # --- messages

    def add(self, message: Message) -> None:
        """Add a message behind all others."""
        if self._messages is None:
            self._messages = deque()
        self._messages.append(message)
        self.size += message.size + MESSAGE_COST

    def exceeds(self, bounds: Bounds) -> bool:
        """Return whether the messages exceed ``bounds``."""
        return self.size > bounds.bytes_each or len(self._messages or ()) > bounds.messages

    def take_oldest(self) -> Message:
        """Return the oldest message, which leaves the mailbox.

        Raises:
            IndexError: there is none.
        """
        if self._messages is None:
            raise IndexError(f"the mailbox of {self.subscriber!r} is empty")
        message = self._messages.popleft()
        self.size -= message.size + MESSAGE_COST
        if not self._messages:
            self._messages = None
        return message

    def lose(self, topic: str, key: str | None, last_id: int, most: int) -> None:
        """Remember the loss of the oldest message.

        Args:
            topic: name of its topic.
            key: its key; None for a subscription to the whole topic.
            last_id: its id.
            most: number of losses beyond which those of keys become losses of their topics.
        """
        if self._losses is None:
            self._losses = Losses(most)
        self._losses.add(topic, key, last_id)

    # --- polls

    @property
    def waiting(self) -> bool:
        """True if a poll has an answer."""
        return self._messages is not None or self._losses is not None or self._ended is not None

    def hold(self, number: int) -> None:
        """Note that the poll with a ``number`` is held."""
        self.held = number

    def release(self) -> int | None:
        """Return the number of the held poll, which is not held any more; None for none."""
        number, self.held = self.held, None
        return number

    def see(self, now: float) -> None:
        """Note a poll, or the answer to a held one.

        Args:
            now: monotonic time in seconds.
        """
        self.seen = now

    def acknowledge(self, number: int) -> None:
        """Remove messages and losses that the subscriber has processed.

        Args:
            number: greatest id that it has processed. Those that no reply had are kept also below a greater number.
        """
        number = min(number, self._sent)
        while self._messages is not None and self._messages[0].id <= number:
            self.take_oldest()
        if self._losses is not None:
            self._losses.acknowledge(number)
            if not len(self._losses):
                self._losses = None

    def reply(self, publisher_id: str, bounds: Bounds) -> Reply:
        """Return the answer to a poll: the oldest messages and losses.

        Args:
            publisher_id: id under which the sequence ids count.
            bounds: numbers and bytes of a reply. One message or loss is given even if it is larger.
        """
        ended = tuple(self._ended or ())[: bounds.reply_ended]
        lost, size = self._first_losses(bounds)
        messages: list[Message] = []
        # An acknowledged message acknowledges all losses, so those go first.
        if len(lost) == len(self._losses or ()):
            for message in self._messages or ():
                size += message.size
                given = len(lost) + len(messages)
                if given and (size > bounds.reply_bytes or given >= bounds.reply_messages):
                    break
                messages.append(message)
        newest = messages[-1].id if messages else lost[-1].last_id if lost else 0
        self._sent = max(self._sent, newest)
        return Reply(publisher_id, tuple(messages), lost, ended)

    def _first_losses(self, bounds: Bounds) -> tuple[tuple[Lost, ...], int]:
        """Return the losses that a reply has room for, and their bytes."""
        lost: list[Lost] = []
        size = 0
        for loss in self._losses or ():
            cost = MESSAGE_COST + len(loss.topic.encode()) + len((loss.key or "").encode())
            if lost and (size + cost > bounds.reply_bytes or len(lost) >= bounds.reply_messages):
                break
            lost.append(loss)
            size += cost
        return tuple(lost), size
