"""Mailbox: messages of one subscriber in order, from their publication to their acknowledgement. Sans-I/O.

A reply removes nothing. The next poll acknowledges the messages up to a number, and gives all others again.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import Final

from griphub.mailboxes.bounds import Bounds
from griphub.mailboxes.losses import Losses
from griphub.mailboxes.messages import MESSAGE_COST, Ended, Lost, Message, Reply
from griphub.mailboxes.size_classes import SizeClasses
from griphub.mailboxes.subscriptions import Subject
from griphub.mailboxes.summary import MailboxSummary

__all__ = ["Mailbox", "MailboxOwner"]

REFUSED: Final = -1
"""Last id that stands for a refused subscribe in the stored answer."""


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

    __slots__ = ("keys", "mailboxes", "name", "size", "sizes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.mailboxes = 0
        self.keys = 0
        self.size = 0
        self.sizes: SizeClasses[Mailbox] = SizeClasses()

    def count(self, change: int) -> int:
        """Note mailboxes that were opened or closed.

        Args:
            change: their number; negative for closed ones.

        Returns:
            The number of its mailboxes.
        """
        self.mailboxes += change
        return self.mailboxes

    def resize(self, size: int) -> None:
        """Note the bytes of the messages in its mailboxes.

        Args:
            size: bytes.
        """
        self.size = size


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
        subscriptions: topics and keys that it follows.
        size: bytes that the messages count for.
        seen: time of the last poll, or of the answer to a held one, in seconds.
        held: number of the held poll; None for none.
        sequence: number of the last batch of commands; 0 before the first.
        digest: hash of its commands.
    """

    __slots__ = (
        "_answer",
        "_ended",
        "_losses",
        "_messages",
        "_sent",
        "digest",
        "held",
        "life",
        "owner",
        "seen",
        "sequence",
        "size",
        "subscriber",
        "subscriptions",
    )

    def __init__(self, subscriber: str, owner: MailboxOwner, now: float, life: int = 1) -> None:
        self.subscriber = subscriber
        self.owner = owner
        self.subscriptions: dict[Subject[Mailbox], None] = {}
        self.size = 0
        self.seen = now
        self.life = life
        self.held: int | None = None
        self.sequence = 0
        self.digest = 0
        self._answer: array[int] | None = None
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
            len(self.subscriptions),
            len(self),
            self.size,
            self.held is not None,
            round(max(0.0, now - self.seen), 1),
            self.sequence,
        )

    # --- commands

    @property
    def ended(self) -> int:
        """Number of ended subscriptions that no command has confirmed."""
        return len(self._ended or ())

    @property
    def last_ids(self) -> tuple[int | None, ...]:
        """Stored answer to the last batch: a last id for each subscribe, None for a refused one."""
        return tuple(None if last_id == REFUSED else last_id for last_id in self._answer or ())

    def answered(self, sequence: int, digest: int, last_ids: tuple[int | None, ...]) -> None:
        """Store the answer to a batch of commands.

        Args:
            sequence: number of the batch.
            digest: hash of its commands.
            last_ids: a last id for each subscribe, None for a refused one.
        """
        self.sequence = sequence
        self.digest = digest
        self._answer = array("q", (REFUSED if last_id is None else last_id for last_id in last_ids))

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

    def end(self, subject: Subject[Mailbox]) -> None:
        """End a subscription on the publisher's side: it is reported until a command confirms it.

        Args:
            subject: one of the subscriptions.
        """
        del self.subscriptions[subject]
        if self._ended is None:
            self._ended = {}
        self._ended[Ended(subject.topic, subject.key)] = None

    def keep(self, follows: Callable[[str, str | None], bool]) -> None:
        """Remove messages and losses that no subscription matches.

        Args:
            follows: called with topic and key, or None for the whole topic; False if there is no such subscription.
        """

        def wanted(topic: str, key: str | None) -> bool:
            return follows(topic, None) or (key is not None and follows(topic, key))

        if self._messages is not None:
            kept = [message for message in self._messages if wanted(message.topic, message.key)]
            self._messages = deque(kept) if kept else None
            self.size = sum(message.size + MESSAGE_COST for message in kept)
        if self._losses is not None:
            # A loss of a whole topic may stand for those of its keys.
            topics = {subject.topic for subject in self.subscriptions}
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
