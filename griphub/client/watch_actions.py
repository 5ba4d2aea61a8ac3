"""Actions of a watcher: requests, messages for its application, and reports."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from griphub.client.watch_messages import Resync, WatchMessage

__all__ = [
    "AskApplication",
    "Deliver",
    "Fail",
    "OpenStream",
    "Request",
    "TakeSnapshot",
    "WatchAction",
    "WatchReport",
    "WatchReportKind",
]


class WatchReportKind(enum.Enum):
    """Kind of a report."""

    LOST = "lost"
    """The stream or the snapshot ended, and is asked for again."""
    SILENT = "silent"
    """The stream was silent for too long, and counts as lost."""
    EPOCH = "epoch"
    """The hub has another epoch: a new stream asks if the place is still one of its history."""
    RESYNC = "resync"
    """Changes are not retained: a snapshot is taken."""
    DISORDER = "disorder"
    """The hub has sent something in an order that may hide a loss: a snapshot is taken."""


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Request for a stream of the changes behind the cursor. It takes the place of the request under way.

    Attributes:
        number: of the request; answers name it.
        cursor: place to begin at.
    """

    number: int
    cursor: str


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Request for the newest snapshot. It takes the place of the request under way.

    Attributes:
        number: of the request; answers name it.
    """

    number: int


@dataclass(frozen=True, slots=True)
class AskApplication:
    """Request to the application for a place to go on from. It takes the place of the request under way.

    Attributes:
        number: of the request; answers name it.
        resync: the hub's answer.
    """

    number: int
    resync: Resync


@dataclass(frozen=True, slots=True)
class Deliver:
    """Message for the application."""

    message: WatchMessage


@dataclass(frozen=True, slots=True)
class WatchReport:
    """Report to the application: the watch goes on by itself.

    Attributes:
        kind: its kind.
        reason: text.
        pause: seconds until the next request.
    """

    kind: WatchReportKind
    reason: str
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Fail:
    """End of the watch: no repetition cures it.

    Attributes:
        reason: text.
    """

    reason: str


Request = OpenStream | TakeSnapshot | AskApplication
WatchAction = Request | Deliver | WatchReport | Fail
