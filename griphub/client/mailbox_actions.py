"""Actions and answers of a mailbox on the subscriber's side: the vocabulary of ``MailboxState``."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "Action",
    "Cause",
    "Command",
    "CommandsAnswer",
    "Deliver",
    "Failure",
    "Loss",
    "MailboxMessage",
    "Pair",
    "Place",
    "Poll",
    "PollAnswer",
    "ReadHistory",
    "Report",
    "SendCommands",
]


class Pair(NamedTuple):
    """Subject of a subscription.

    Attributes:
        topic: name of the topic.
        key: key; None for the whole topic.
    """

    topic: str
    key: str | None = None


class Place(NamedTuple):
    """Place in the history.

    Attributes:
        id: id of the last event up to there.
        cursor: text that a request names the place by; empty if the publisher has none.
    """

    id: int
    cursor: str = ""

    @property
    def epoch(self) -> str:
        """Epoch of the store in which the id was issued; empty for the beginning."""
        return self.cursor.rpartition(".")[0]


class Command(NamedTuple):
    """Begin or end of a subscription.

    Attributes:
        subscribe: True for the begin.
        pair: its subject.
    """

    subscribe: bool
    pair: Pair


@dataclass(frozen=True, slots=True, eq=False)
class SendCommands:
    """Send a batch of commands; an answer or failure has to follow.

    Attributes:
        subscriber: name of the subscriber.
        sequence: number of the batch.
        commands: the commands.
    """

    subscriber: str
    sequence: int
    commands: tuple[Command, ...]

    def document(self) -> dict[str, Any]:
        """Return the batch as a JSON object."""
        commands = []
        for subscribe, (topic, key) in self.commands:
            subject = {"topic": topic} if key is None else {"topic": topic, "key": key}
            commands.append({"subscribe" if subscribe else "unsubscribe": subject})
        return {"sequence": self.sequence, "commands": commands}


@dataclass(frozen=True, slots=True, eq=False)
class Poll:
    """Poll; an answer or failure has to follow.

    Attributes:
        subscriber: name of the subscriber.
        max_processed: greatest id that was processed; 0 for none.
        publisher_id: id under which that number counts; None before the first answer.
    """

    subscriber: str
    max_processed: int
    publisher_id: str | None


class MailboxMessage(NamedTuple):
    """Message of a reply.

    Attributes:
        topic: name of the topic.
        key: key; None for none.
        place: place behind the event.
        payload: content.
    """

    topic: str
    key: str | None
    place: Place
    payload: Any


class Loss(NamedTuple):
    """Loss in a reply: messages up to a place went before they were acknowledged.

    Attributes:
        pair: subscription that they belonged to.
        place: place behind the last one.
    """

    pair: Pair
    place: Place


@dataclass(frozen=True, slots=True)
class Deliver:
    """Give a message to the application."""

    message: MailboxMessage


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """Read the events of a subscription from the history, and give them to the application before any later message.

    Attributes:
        pair: its subject.
        after: place behind the last event that the application has.
        until: place behind the last event to be read: later ones come by the mailbox.
    """

    pair: Pair
    after: Place
    until: Place


class Cause(enum.Enum):
    """Cause of a report."""

    UNREACHABLE = "no attempt has succeeded for a time; attempts go on"
    FORGOTTEN = "the publisher has forgotten the subscriber; all is subscribed to again"
    RESTARTED = "the publisher has lost its mailboxes; all is subscribed to again"
    CONFLICT = "the publisher has other commands of the subscriber; all is subscribed to again under another name"
    LOST = "messages went before they were acknowledged; they are read from the history"
    REFUSED = "the publisher has refused a subscription, which has ended"
    ENDED = "the publisher has ended a subscription"


@dataclass(frozen=True, slots=True)
class Report:
    """Report a failure or a loss to the application.

    Attributes:
        cause: kind of it.
        pair: subscription concerned; None for all.
        detail: text of the publisher or the connection; empty for none.
    """

    cause: Cause
    pair: Pair | None = None
    detail: str = ""


Action: TypeAlias = SendCommands | Poll | Deliver | ReadHistory | Report


@dataclass(frozen=True, slots=True)
class CommandsAnswer:
    """Answer to a batch that was carried out.

    Attributes:
        publisher_id: id under which sequence ids count.
        last: for each subscribe of the batch, in order, the topic's last event then; None for a refused one.
        epoch: current epoch of the store; empty if the publisher names none.
    """

    publisher_id: str
    last: Sequence[Place | None]
    epoch: str = ""


@dataclass(frozen=True, slots=True)
class PollAnswer:
    """Reply to a poll.

    Attributes:
        publisher_id: id under which sequence ids count.
        messages: in the order of their ids.
        lost: losses, in the order of their ids.
        ended: subscriptions that the publisher has ended.
    """

    publisher_id: str
    messages: Sequence[MailboxMessage] = ()
    lost: Sequence[Loss] = ()
    ended: Sequence[Pair] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """Request without success.

    Attributes:
        status: HTTP status code; None if there was no answer.
        detail: text.
        retry_after: seconds that the publisher asks to wait; None if it names none.
        command: place of the command, from 0, because of which a batch was refused; None if the publisher names none.
    """

    status: int | None = None
    detail: str = ""
    retry_after: float | None = None
    command: int | None = None
