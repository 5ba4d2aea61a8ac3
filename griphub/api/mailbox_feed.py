"""Mailboxes of the hub: stored events in, items for held polls out."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

import orjson

from griphub.access.rights import Rights
from griphub.api.mailbox_channel import MailboxChannels
from griphub.mailboxes.decisions import WakeUp
from griphub.mailboxes.mailboxes import CHECK_INTERVAL, Mailboxes
from griphub.mailboxes.messages import Reply
from griphub.store.event import Event
from griphub.topics.event_text import Epochs, event_json
from griphub.topics.topic_table import TopicTable

__all__ = ["MailboxFeed", "reply_body"]


def reply_body(reply: Reply, epochs: Epochs) -> bytes:
    """Return the answer to a poll as JSON.

    Args:
        reply: the answer.
        epochs: epochs of the store.
    """
    lost = [
        {"topic": topic, **({} if key is None else {"key": key}), "last_id": epochs.cursor(last)}
        for topic, key, last in reply.lost
    ]
    ended = [{"topic": topic, **({} if key is None else {"key": key})} for topic, key in reply.ended]
    return b'{"publisher_id":%b,"messages":[%b],"lost":%b,"ended":%b}\n' % (
        orjson.dumps(reply.publisher_id),
        b",".join([message.payload for message in reply.messages]),
        orjson.dumps(lost),
        orjson.dumps(ended),
    )


class MailboxFeed:
    """Passes stored events to the mailboxes, and answers held polls.

    Args:
        mailboxes: all mailboxes.
        channels: channels on which polls are held.
        topics: all topics.
        epochs: epochs of the store.
        now: monotonic time in seconds.
        later: calls a function in a later turn of the loop, so that others have theirs before.
    """

    def __init__(
        self,
        mailboxes: Mailboxes,
        channels: MailboxChannels,
        topics: TopicTable,
        epochs: Epochs,
        now: Callable[[], float],
        later: Callable[[Callable[[], None]], object],
    ) -> None:
        self.mailboxes: Final = mailboxes
        self.channels: Final = channels
        self._topics = topics
        self._epochs = epochs
        self._now = now
        self._later = later
        self._last_check = now()
        self._later_called = False
        self.woken = 0
        """Held polls that were woken since the start."""
        self.checked: dict[str, Rights] = {}
        """Rights with which the subscriptions of each subscriber were compared last."""

    def empty(self, subscriber: str) -> bytes:
        """Return the answer to a poll of a ``subscriber`` without messages, as JSON."""
        return reply_body(Reply(self.mailboxes.publisher_id_of(subscriber) or ""), self._epochs)

    # --- feed.Listener

    def wants(self, number: int) -> bool:
        """Return whether the topic with a ``number`` has subscriptions."""
        topic = self._topics.numbered(number) if len(self.mailboxes) else None
        return topic is not None and self.mailboxes.follows(topic.name)

    def take(self, number: int, events: Sequence[Event]) -> None:
        """Give the events of one publication to the subscribers.

        Args:
            number: of their topic.
            events: all of them, in order.
        """
        topic = self._topics.numbered(number)
        if topic is None:
            return
        name, now = orjson.dumps(topic.name), self._now()
        for event in events:
            text = event_json(event, event.prev_id, self._epochs)
            payload = b'{"sequence_id":"%d","topic":%b,"event":%b}' % (event.id, name, text)
            self._wake(self.mailboxes.publish(topic.name, event.key, event.id, payload, len(payload), now))
        self._go_on()

    # --- ends

    def end(self, topic: str) -> None:
        """End all subscriptions to a ``topic`` that was deleted, or whose access was revoked, in several turns."""
        self._wake(self.mailboxes.delete_topic(topic, self._now()))
        self._go_on()

    def _go_on(self) -> None:
        """Go on with deliveries and ends in later turns, if any are left."""
        mailboxes = self.mailboxes
        if not self._later_called and (mailboxes.behind or mailboxes.ending):
            self._later_called = True
            self._later(self._do_more)

    def _do_more(self) -> None:
        self._later_called = False
        # One of them, to bound the turn.
        work = self.mailboxes.deliver if self.mailboxes.behind else self.mailboxes.end_more
        self._wake(work(self._now()))
        self._go_on()

    def withdraw(self, subscriber: str, topics: Container[str]) -> None:
        """End the subscriptions of a subscriber to topics that it may not read any more.

        Args:
            subscriber: its name.
            topics: names of the topics.
        """
        self._wake(self.mailboxes.withdraw(subscriber, topics, self._now()))

    def forget(self, subscriber: str) -> bool:
        """Remove a mailbox, and end its held poll.

        Args:
            subscriber: its name.

        Returns:
            Whether there was one.
        """
        if not self.mailboxes.forget(subscriber):
            return False
        self.checked.pop(subscriber, None)
        if self.channels.has(subscriber):
            # Repeated, the poll gets 404.
            self.channels.wake(subscriber)
            self.channels.forget(subscriber)
        return True

    def check(self) -> None:
        """Answer polls that are held for long, and forget subscribers that do not poll; called each second."""
        now = self._now()
        if now - self._last_check < CHECK_INTERVAL:
            return
        checked = self.mailboxes.check(now)
        for emptied in checked.emptied:
            self.channels.answer(emptied.subscriber, self.empty(emptied.subscriber))
        for subscriber in checked.forgotten:
            self.channels.forget(subscriber)
            self.checked.pop(subscriber, None)
        if not checked.more:
            self._last_check = now

    def _wake(self, wakes: Iterable[WakeUp]) -> None:
        for wake in wakes:
            self.woken += 1
            self.channels.wake(wake.subscriber)
