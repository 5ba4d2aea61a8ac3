"""Messages of mailboxes, and the replies that give them to subscribers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

__all__ = ["MESSAGE_COST", "Ended", "Lost", "Message", "Reply"]

MESSAGE_COST: Final = 100
"""Bytes that a message counts for in a mailbox beside its payload: empty ones have to count as well."""


@dataclass(slots=True, eq=False)
class Message:
    """Message in the mailboxes of its subscribers, which share it.

    Attributes:
        topic: name of the topic.
        key: key; None for none.
        id: sequence id: that of the event.
        size: bytes of the payload as a reply has it.
        payload: content or a reference to it, for the caller.
    """

    topic: str
    key: str | None
    id: int
    size: int
    payload: Any


class Lost(NamedTuple):
    """Messages of a subscription that went before they were acknowledged.

    Attributes:
        topic: name of the topic.
        key: key; None for the whole topic.
        last_id: id of the last one of them.
    """

    topic: str
    key: str | None
    last_id: int


class Ended(NamedTuple):
    """Subscription that was ended by the publisher: its topic was deleted, or the right to it.

    Attributes:
        topic: name of the topic.
        key: key; None for the whole topic.
    """

    topic: str
    key: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to a poll.

    A subscriber acknowledges messages and losses by the greatest of their ids, and an ended subscription by the next
    command about it.

    Attributes:
        publisher_id: id under which the sequence ids count.
        messages: in the order of their ids.
        lost: losses, in the order of their ids, which are below those of the messages.
        ended: ended subscriptions.
    """

    publisher_id: str
    messages: tuple[Message, ...] = ()
    lost: tuple[Lost, ...] = ()
    ended: tuple[Ended, ...] = ()
