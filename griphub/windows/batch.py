"""Batches: lines of one ingest request, checked as a whole before one of them is taken in.

The check plays the lines on a copy of the pieces. Both the check and the taking in go on in slices.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from griphub.windows.bounds import WindowBounds
from griphub.windows.decisions import Refusal, Refused
from griphub.windows.event_blocks import EventBlocks
from griphub.windows.ingest_lines import IngestLine, Progress, Reset
from griphub.windows.pieces import Pieces
from griphub.windows.soft_event import SoftEvent
from griphub.windows.span import Span

__all__ = ["SLICE", "Batch", "Checker", "Phase"]

SLICE: Final = 500
"""Lines and pieces that a turn looks at: a few milliseconds."""

SHOWN: Final = 80
"""Characters of a key that a message shows."""


class Phase(enum.Enum):
    """State of a batch."""

    WAITING = "waiting"
    """Another one is being taken in."""
    CHECKED = "checked"
    """Lines are being checked."""
    TAKEN = "taken"
    """Lines are being taken in: it cannot be refused any more."""
    DONE = "done"
    """Its outcome is known."""


NEXT: Final = {Phase.WAITING: Phase.CHECKED, Phase.CHECKED: Phase.TAKEN, Phase.TAKEN: Phase.DONE}


class Batch:
    """Lines of one request.

    Args:
        number: of the batch, for its outcome.
        lines: the lines.
        epoch: epoch of the window that the ingester believes in; None for any.

    Attributes:
        number: of the batch.
        lines: the lines.
        epoch: epoch of the window that the ingester believes in.
        phase: state.
        done: number of lines that the phase is through with.
        events: number of events that were taken in.
        repeated: number of events that were there already.
        size: bytes that the events of its lines count for.
    """

    __slots__ = ("done", "epoch", "events", "lines", "number", "phase", "repeated", "repeats", "size")

    def __init__(self, number: int, lines: Sequence[IngestLine], epoch: str | None) -> None:
        self.number: Final = number
        self.lines: Final = lines
        self.epoch: Final = epoch
        self.phase = Phase.WAITING
        self.done = 0
        self.events = 0
        self.repeated = 0
        self.size: Final = sum([line.size for line in lines if isinstance(line, SoftEvent)])
        self.repeats: Final[set[int]] = set()
        """Indices of the lines that repeat an event."""

    def advance(self) -> None:
        """Enter the next phase, at its first line."""
        self.phase = NEXT[self.phase]
        self.done = 0

    def through(self, lines: int) -> None:
        """Note that the phase is through with a number of ``lines``."""
        self.done = lines

    def count(self, *, repeated: bool) -> None:
        """Count an event.

        Args:
            repeated: whether it was there already.
        """
        if repeated:
            self.repeated += 1
        else:
            self.events += 1


class Checker:
    """Check of one batch against a window that no other batch changes meanwhile.

    Args:
        batch: the batch.
        pieces: of the window.
        events: of the window.
        epoch: of the window.
        bounds: bounds of windows.
        stamp: last stamp of the window.
    """

    __slots__ = ("_batch", "_bounds", "_epoch", "_events", "_new", "_pieces", "_resets", "_stamp")

    def __init__(
        self, batch: Batch, pieces: Pieces, events: EventBlocks, epoch: str, bounds: WindowBounds, stamp: int
    ) -> None:
        self._batch = batch
        self._pieces = pieces.copy()
        self._events = events
        self._epoch = epoch
        self._bounds = bounds
        self._stamp = stamp
        self._new: dict[tuple[int, str], SoftEvent] = {}
        """Events of the batch."""
        self._resets: list[Span] = []

    def step(self) -> Refused | None:
        """Check a slice of lines.

        Returns:
            The refusal of the batch; None if nothing was found so far.
        """
        batch = self._batch
        if batch.epoch is not None and batch.epoch != self._epoch:
            detail = (
                f"the window is of epoch {self._epoch}, not {batch.epoch[:SHOWN]}: unreleased events were lost"
                " with that; append again all above the last progress"
            )
            return Refused(Refusal.EPOCH, self._epoch, detail)
        work = 0
        index = batch.done
        lines = batch.lines
        while index < len(lines) and work < SLICE:
            line = lines[index]
            work += 1
            if isinstance(line, SoftEvent):
                refused = self._append(index, line)
                work += len(self._resets)
            else:
                work += self._pieces.width(line.span)
                if type(line) is Reset:
                    work += len(self._new) // 16
                refused = self._change(index, line)
            if refused is not None:
                return refused
            index += 1
        batch.through(index)
        return None

    def _change(self, index: int, line: IngestLine) -> Refused | None:
        if type(line) is Progress:
            self._pieces.raise_to(line.span, line.version, self._stamp)
        elif type(line) is Reset:
            self._pieces.reset(line.span)
            self._resets.append(line.span)
            within = [pair for pair in self._new if line.span.low <= pair[1] < line.span.high]
            for pair in within:
                del self._new[pair]
        if len(self._pieces) > self._bounds.pieces:
            self._pieces.unite()
        if len(self._pieces) <= self._bounds.pieces and len(self._resets) <= self._bounds.pieces:
            return None
        most = self._bounds.pieces
        detail = f"line {index + 1}: more than {most} pieces would have progress of their own: give it for wider ranges"
        return Refused(Refusal.LIMIT, self._epoch, detail, index + 1, limit="pieces", most=most)

    def _append(self, index: int, event: SoftEvent) -> Refused | None:
        known = self._new.get((event.version, event.key))
        if known is None and not self._was_reset(event.key):
            known = self._events.get(event.version, event.key)
        if known is not None:
            if known[2:] == event[2:]:
                self._batch.repeats.add(index)
                return None
            detail = (
                f"line {index + 1}: key {event.key[:SHOWN]!r} has another event in version {event.version} already:"
                " a version has the last event of each key only"
            )
            return Refused(Refusal.CONFLICT, self._epoch, detail, index + 1)
        progress = self._pieces.at(event.key).progress
        if progress is not None and event.version <= progress:
            detail = (
                f"line {index + 1}: version {event.version} of key {event.key[:SHOWN]!r} is not above {progress}, the"
                " progress of its piece: its followers have that as complete; append higher versions, or reset the"
                " range if the source went back"
            )
            return Refused(Refusal.CONFLICT, self._epoch, detail, index + 1, progress)
        self._new[event.version, event.key] = event
        return None

    def _was_reset(self, key: str) -> bool:
        return any(span.low <= key < span.high for span in self._resets)
