"""Summary of a mailbox, for its owner."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MailboxSummary"]


class MailboxSummary(NamedTuple):
    """State of a mailbox at a moment.

    Attributes:
        subscriber: name of the subscriber.
        subscriptions: number of topics and keys that it follows.
        messages: number of messages that it has not acknowledged.
        bytes: bytes that these count for.
        held: whether a poll is held.
        idle: seconds since the last poll, or since the answer to a held one.
        sequence: number of the last batch of commands.
    """

    subscriber: str
    subscriptions: int
    messages: int
    bytes: int
    held: bool
    idle: float
    sequence: int
