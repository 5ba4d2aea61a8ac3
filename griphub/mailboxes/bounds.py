"""Bounds of mailboxes, and the error of a request beyond one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from gripproxy.grip.errors import ClientError

__all__ = ["Bounds", "MailboxLimit", "Whose"]

Whose: TypeAlias = Literal["owner", "mailbox", "total"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of mailboxes.

    Commands beyond a bound of mailboxes or subscriptions are refused whole. Beyond a bound of messages the oldest ones
    go, and the subscriber gets a report: an absent subscriber must not hold memory, and the others are not delayed.

    Attributes:
        mailboxes_each: mailboxes of an owner.
        mailboxes_total: mailboxes of all owners.
        keys_each: subscriptions of a mailbox.
        keys_owner: subscriptions of an owner's mailboxes: below the total, so that others have some.
        keys_total: subscriptions of all mailboxes: each takes up to 250 bytes of the index.
        messages: messages in a mailbox. Each unsubscribe may look at all of them.
        bytes_each: bytes of messages in a mailbox.
        bytes_total: bytes of messages in all mailboxes. A message counts in each mailbox that it is in, though its
            payload is in memory once: so this is more than the memory taken.
        losses: lost keys that a mailbox remembers; beyond, it remembers their topics.
        reply_messages: messages and losses of a reply.
        reply_bytes: bytes of the messages of a reply. One message is given even if it is larger.
        reply_ended: ended subscriptions of a reply.

    Raises:
        ValueError: a bound is below 1.
    """

    mailboxes_each: int = 1000
    mailboxes_total: int = 20_000
    keys_each: int = 10_000
    keys_owner: int = 1_000_000
    keys_total: int = 5_000_000
    messages: int = 20_000
    bytes_each: int = 10_000_000
    bytes_total: int = 500_000_000
    losses: int = 1000
    reply_messages: int = 5000
    reply_bytes: int = 1_000_000
    reply_ended: int = 500

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value < 1:
                raise ValueError(f"{each.name} is {value}: expected at least 1")


class MailboxLimit(ClientError):
    """Batch of commands for more than a limit allows: answered with 429. No command of it was carried out.

    Args:
        name: of the limit, as ``mailboxes`` or ``keys``.
        limit: its value, a number of things.
        whose: holder of the limit.

    Attributes:
        name: of the limit.
        limit: its value.
        whose: holder of the limit.
    """

    def __init__(self, name: str, limit: int, whose: Whose) -> None:
        holder = "in total" if whose == "total" else f"per {whose}"
        super().__init__(f"the limit of {limit} {name} {holder} is reached: end some of them first")
        self.name = name
        self.limit = limit
        self.whose = whose
