"""Decisions about commands and polls, and the held polls that are to be answered.

Polls have numbers, one counter for all subscribers, which never go back: a number in place of a position orders the
answers on the channel of a mailbox.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from griphub.mailboxes.messages import Reply

__all__ = [
    "Applied",
    "Checked",
    "CommandDecision",
    "Conflict",
    "Emptied",
    "Forbidden",
    "Hold",
    "Messages",
    "PollDecision",
    "Unknown",
    "WakeUp",
]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Poll for a subscriber that does not exist, or was forgotten: answered with 404, never with silence."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """Request for the mailbox of another owner: answered with 403."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Batch of commands out of sequence: answered with 409, and not carried out.

    Attributes:
        sequence: number of the batch.
        expected: numbers that would be right: that of the last batch for its repetition, and the next one.
    """

    sequence: int
    expected: tuple[int, ...]

    def __str__(self) -> str:
        following = self.expected[-1]
        if len(self.expected) == 1:
            return f"sequence is {self.sequence}, and the subscriber is new: expected {following}"
        last = self.expected[0]
        if self.sequence == last:
            return f"sequence {last} was used for other commands: expected {following} for new ones"
        return f"sequence is {self.sequence}: expected {following}, or {last} for the last batch again"


@dataclass(frozen=True, slots=True)
class Applied:
    """Batch of commands that was carried out.

    Attributes:
        publisher_id: id under which the sequence ids count.
        sequence: number of the batch.
        last_ids: for each subscribe in the batch, in order, the id of the topic's last event at that moment: later ones
            come to the mailbox, those up to there are in the history. None for one that was refused.
        repeated: whether it was carried out by an earlier request.
    """

    publisher_id: str
    sequence: int
    last_ids: tuple[int | None, ...]
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Messages:
    """Poll that is answered without delay.

    Attributes:
        number: of the poll.
        reply: the answer.
        older: number of a held poll that is to be answered by an empty reply; None for none.
    """

    number: int
    reply: Reply
    older: int | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Poll that is held until it is woken.

    Attributes:
        number: of the poll.
        older: number of a held poll that is to be answered by an empty reply; None for none.
        publisher_id: id for the empty reply if none wakes it.
    """

    number: int
    older: int | None = None
    publisher_id: str = field(default="", compare=False)


class WakeUp(NamedTuple):
    """Held poll that is to be repeated, since there is an answer for it now.

    Attributes:
        subscriber: name of the subscriber.
        number: of the held poll.
    """

    subscriber: str
    number: int


class Emptied(NamedTuple):
    """Held poll that is to be answered by an empty reply, since it has been held for long.

    Attributes:
        subscriber: name of the subscriber.
        number: of the held poll.
        next_number: number of the answer.
    """

    subscriber: str
    number: int
    next_number: int


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of a check of all subscribers.

    Attributes:
        emptied: held polls that are to be answered.
        forgotten: names of subscribers whose mailboxes were removed.
        more: whether the check ended early, to be called again in a later turn.
    """

    emptied: tuple[Emptied, ...]
    forgotten: tuple[str, ...]
    more: bool


CommandDecision = Applied | Conflict | Forbidden
PollDecision = Messages | Hold | Unknown | Forbidden
