"""Actions of a subscriber: answers to pushes, requests, events for its queue, and reports."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from griphub.client.received import ReceivedEvent

__all__ = [
    "ANSWERS",
    "Action",
    "AnswerPush",
    "Cancel",
    "Enqueue",
    "OnGone",
    "Poll",
    "PushClass",
    "Report",
    "ReportKind",
    "Strategy",
    "Subscribe",
]


class Strategy(enum.Enum):
    """Ways by which events arrive."""

    PUSH_AND_POLL = "push and poll"
    POLL_ONLY = "poll only"
    PUSH_ONLY = "push only"

    @property
    def polls(self) -> bool:
        """True if history is asked."""
        return self is not Strategy.PUSH_ONLY

    @property
    def pushes(self) -> bool:
        """True if a subscription is made."""
        return self is not Strategy.POLL_ONLY


class OnGone(enum.Enum):
    """Place to go on from when the next events are not retained."""

    EARLIEST = "earliest"
    LATEST = "latest"
    STOP = "stop"


class PushClass(enum.Enum):
    """Class of a push; its answer depends on it."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    GAP = "gap"
    OTHER_EPOCH = "other epoch"
    OTHER_SUBSCRIPTION = "other subscription"
    FULL = "full"
    MALFORMED = "malformed"


ANSWERS: Final = {PushClass.FULL: 503, PushClass.MALFORMED: 400}
"""Status codes of pushes that are no success. A dropped push is one: its repetition would be dropped as well."""


class ReportKind(enum.Enum):
    """Kind of a report."""

    GONE = "gone"
    """Events behind ``after`` are not retained: reading goes on at ``until``, or not at all if that is None."""
    GAP = "gap"
    """Events between ``after`` and ``until``, which was accepted, are lost."""
    RENEWED = "renewed"
    """A poll found events whose pushes are lost: the subscription is made anew. No event is lost."""
    REFUSED = "refused"
    """The publisher refuses the subscription, which is tried again later."""
    FAILED = "failed"
    """A request failed, and is tried again after a pause."""


@dataclass(frozen=True, slots=True)
class AnswerPush:
    """Answer to the push, with a status code of HTTP."""

    status: int


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Event for the application; its ``cursor`` is the place to restart from once it was processed."""

    event: ReceivedEvent


@dataclass(frozen=True, slots=True)
class Poll:
    """Request for the page of history behind the cursor ``after``."""

    after: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Request for a subscription with the id ``id``, from the cursor ``after`` on."""

    id: str
    after: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Request to delete the subscription with the id ``id``."""

    id: str


@dataclass(frozen=True, slots=True)
class Report:
    """Report to the application.

    Attributes:
        kind: its kind, and the meaning of the others.
        after: cursor of the place reached before.
        until: cursor at which reading goes on; None if there is none.
        reason: text of a fault; URL of the snapshot for ``GONE``; empty for none.
    """

    kind: ReportKind
    after: str
    until: str | None = None
    reason: str = ""


Action = AnswerPush | Enqueue | Poll | Subscribe | Cancel | Report
