"""Decisions of a window: fates of batches, and releases to the followers of ranges."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from griphub.windows.positions import Position
from griphub.windows.soft_event import SoftEvent
from griphub.windows.span import Span

__all__ = [
    "Accepted",
    "Decision",
    "Outcome",
    "Refusal",
    "Refused",
    "Release",
    "Resync",
    "Settled",
    "Start",
    "StartKind",
]


class Refusal(enum.Enum):
    """Reason for which a batch is refused as a whole."""

    CONFLICT = "conflict"
    """An event at or below progress, or another one for its key and version: 409."""
    EPOCH = "epoch"
    """The window is another one than the ingester believes: 410. Its unreleased events are lost."""
    LIMIT = "limit"
    """More than a bound allows: 429."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Batch that was taken in.

    Attributes:
        epoch: of the window now; new after a reset of the whole.
        events: number of events that were taken in.
        repeated: number of events that were there already, equal in all: they count as taken in once.
        progress: version up to which the whole is complete; None while a piece is unknown. One above the ingester's own
            versions shows it that its source went back.
    """

    epoch: str
    events: int
    repeated: int
    progress: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """Batch of which nothing was taken in.

    Attributes:
        refusal: the reason.
        epoch: of the window.
        detail: fault and cure.
        line: number of the line concerned, from 1 without empty ones; 0 for none.
        progress: progress that the line conflicts with; None for none.
        limit: name of the limit; empty for none.
        most: value of the limit.
    """

    refusal: Refusal
    epoch: str
    detail: str
    line: int = 0
    progress: int | None = None
    limit: str = ""
    most: int = 0


Outcome = Accepted | Refused


@dataclass(frozen=True, slots=True)
class Settled:
    """Batch that is done.

    Attributes:
        number: of the batch.
        outcome: its fate.
    """

    number: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Release:
    """Events and progress for the followers of a range.

    Attributes:
        span: the range.
        epoch: of the window.
        events: in their order; the versions among them are whole.
        progress: position up to which the range is complete with these events.
        many: whether a version has too many events: followers ask again, and read them page by page.
        more: whether another release follows, of higher versions.
    """

    span: Span
    epoch: str
    events: Sequence[SoftEvent]
    progress: Position
    many: bool = False
    more: bool = False

    def position(self, event: SoftEvent) -> Position:
        """Return the position of an ``event`` of these."""
        return Position(self.epoch, event.version, event.stamp)


@dataclass(frozen=True, slots=True)
class Resync:
    """Range whose followers are to read a snapshot: it was reset, or they fell behind. It is not followed any more.

    Attributes:
        span: the range.
        epoch: of the window now.
        reason: word for logs and metrics: ``reset``, ``full`` or ``behind``.
    """

    span: Span
    epoch: str
    reason: str


Decision = Settled | Release | Resync


class StartKind(enum.Enum):
    """Answer to a follower that wants to start or continue at a place."""

    KNOWN = "known"
    """All events behind the place are there, or will come."""
    BELOW = "below"
    """Events behind the place may be missing: 410 or resync."""
    ABOVE = "above"
    """The place is above the progress, as after a restore of the source: 410 or resync, never a wait."""
    UNKNOWN = "unknown"
    """No ingester has given progress for all of the range yet: 410 or resync."""
    EPOCH = "epoch"
    """The place is one of another epoch: 410 or resync."""


@dataclass(frozen=True, slots=True)
class Start:
    """Decision about a place from which a follower wants to read.

    Attributes:
        kind: the decision.
        floor: least version that may be started from; None while that is unknown.
        progress: version up to which the range is complete; None while that is unknown.
    """

    kind: StartKind
    floor: int | None
    progress: int | None
