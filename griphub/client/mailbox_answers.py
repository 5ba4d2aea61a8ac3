"""Answers of a hub about mailboxes, read from its JSON. Sans-I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from griphub.client.errors import BadAnswer
from griphub.client.mailbox_actions import CommandsAnswer, Loss, MailboxMessage, Pair, Place, PollAnswer
from griphub.client.received import ReceivedEvent, document_of

__all__ = ["MailboxEvent", "commands_answer_of", "place_of", "poll_answer_of"]

_CURSOR: Final = re.compile(r"[0-9a-z]{1,32}\.([0-9]{1,19})")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class MailboxEvent:
    """Event of one of the topics of a mailbox.

    Attributes:
        topic: name of the topic.
        event: the event.
    """

    topic: str
    event: ReceivedEvent


def place_of(cursor: object) -> Place:
    """Return the place of a cursor.

    Args:
        cursor: ``EPOCH.ID``, or ``0`` for the beginning.

    Raises:
        ValueError: it is neither.
    """
    if cursor == "0":
        return Place(0, "0")
    match = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if match is None:
        raise ValueError(f"{str(cursor)[:80]!r} is no cursor: expected EPOCH.ID as the hub gave it, or 0")
    return Place(int(match[1]), match[0])


def commands_answer_of(body: bytes) -> CommandsAnswer:
    """Return the answer to a batch of commands.

    Args:
        body: JSON.

    Raises:
        BadAnswer: it is no such answer.
    """
    document = document_of(body)
    try:
        last = [None if cursor is None else place_of(cursor) for cursor in _list(document, "last_ids")]
        epoch = _text(document, "epoch") if "epoch" in document else ""
        return CommandsAnswer(_text(document, "publisher_id"), last, epoch)
    except (LookupError, TypeError, ValueError) as error:
        raise BadAnswer(f"no answer to commands: {str(document)[:200]}") from error


def poll_answer_of(body: bytes) -> PollAnswer:
    """Return the reply to a poll; the payload of each message is a ``MailboxEvent``.

    Args:
        body: JSON.

    Raises:
        BadAnswer: it is no such reply.
    """
    document = document_of(body)
    try:
        return PollAnswer(
            _text(document, "publisher_id"),
            [_message(each) for each in _list(document, "messages")],
            [Loss(_pair(each), place_of(each["last_id"])) for each in _list(document, "lost")],
            [_pair(each) for each in _list(document, "ended")],
        )
    except (LookupError, TypeError, ValueError) as error:
        raise BadAnswer(f"no reply to a poll: {str(document)[:200]}") from error


def _message(document: Mapping[str, Any]) -> MailboxMessage:
    sequence, topic = _text(document, "sequence_id"), _text(document, "topic")
    if not _NUMBER.fullmatch(sequence):
        raise ValueError
    event = ReceivedEvent.of(document["event"])
    return MailboxMessage(topic, event.key, Place(int(sequence), event.cursor), MailboxEvent(topic, event))


def _pair(document: Mapping[str, Any]) -> Pair:
    return Pair(_text(document, "topic"), _text(document, "key") if "key" in document else None)


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document[name]
    if not isinstance(value, str):
        raise TypeError
    return value


def _list(document: Mapping[str, Any], name: str) -> list[Any]:
    value = document[name]
    if not isinstance(value, list):
        raise TypeError
    return value
