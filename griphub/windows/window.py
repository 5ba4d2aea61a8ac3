"""Window: events in memory of one soft topic, whose truth is in another store. Sans-I/O.

Ingesters append events with the source's own versions, and give progress for ranges of keys. Events are held back until
the progress of their range passes them, then released in the order of their versions. Nothing is persisted: after a
restart, a reset or a full window, followers resync, and none misses an event in silence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from griphub.windows.batch import SLICE, Batch, Checker, Phase
from griphub.windows.bounds import WindowBounds, WindowLimit
from griphub.windows.decisions import (
    Accepted,
    Decision,
    Outcome,
    Refused,
    Release,
    Resync,
    Settled,
    Start,
    StartKind,
)
from griphub.windows.event_blocks import EventBlocks
from griphub.windows.followed_ranges import FollowedRange, FollowedRanges
from griphub.windows.ingest_lines import IngestLine, Progress, Reset
from griphub.windows.pieces import Pieces
from griphub.windows.positions import Position, Stamps
from griphub.windows.soft_event import EVERYTHING, Place, SoftEvent, complete
from griphub.windows.span import ALL, Span

__all__ = ["RELEASE_MAX", "TURNS_MAX", "Window"]

RELEASE_MAX: Final = 1000
"""Events of one release; a version with more of them is read page by page."""

TURNS_MAX: Final = 200
"""Ranges that one turn releases events for."""

RELEASES: Final = 4000
"""Events that one turn releases, counted for each range, and pieces and blocks that it looks at: a few milliseconds."""

TRIM: Final = 64
"""Part of a full window that is dropped in one go, so that it is not full again with the next event."""


LAG: Final = 8
"""Part of a full window that is dropped in one go if pieces that lag fill it."""


class Window:
    """Window of one topic.

    Args:
        new_epoch: called at the start and at each reset of the whole; returns a name that no window had before, 1 to 32
            characters of ``[0-9a-z]``.
        bounds: bounds of windows.
    """

    def __init__(self, new_epoch: Callable[[], str], bounds: WindowBounds | None = None) -> None:
        self._new_epoch = new_epoch
        self._bounds = bounds or WindowBounds()
        self.epoch = new_epoch()
        """Name under which positions of this window count."""
        self._pieces = Pieces()
        self._events = EventBlocks()
        self._stamps = Stamps()
        self._followed = FollowedRanges()
        self._batches: deque[Batch] = deque()
        self._waiting = 0
        """Bytes that the events of all batches count for."""
        self._checker: Checker | None = None
        self._numbers = 0
        self.resyncs = 0
        """Number of ranges whose followers had to resync, since the start."""
        self.refused = 0
        """Number of batches that were refused, since the start."""
        self.dropped = 0
        """Number of unreleased events that a full window dropped, since the start."""

    def __len__(self) -> int:
        return len(self._events)

    @property
    def size(self) -> int:
        """Bytes that the events count for."""
        return self._events.size

    @property
    def pieces(self) -> int:
        """Number of pieces with a progress of their own."""
        return len(self._pieces)

    @property
    def ranges(self) -> int:
        """Number of followed ranges."""
        return len(self._followed)

    # --- ingest

    def submit(self, lines: Sequence[IngestLine], epoch: str | None = None) -> int:
        """Hand in the lines of one request. ``turn`` takes them in, one request after the other.

        Args:
            lines: the lines.
            epoch: epoch of the window that the ingester believes in; None for any.

        Returns:
            The number by which its outcome is known.

        Raises:
            WindowLimit: too many requests wait.
        """
        if len(self._batches) >= self._bounds.queue:
            raise WindowLimit("ingest requests", self._bounds.queue, "window", "send the next after the answer")
        batch = Batch(self._numbers + 1, lines, epoch)
        if self._batches and self._waiting + batch.size > self._bounds.queue_bytes:
            most = self._bounds.queue_bytes
            raise WindowLimit("bytes of ingest requests", most, "window", "send the next after the answer")
        self._numbers += 1
        self._waiting += batch.size
        self._batches.append(batch)
        return self._numbers

    @property
    def busy(self) -> bool:
        """True if ``turn`` has more to do."""
        return bool(self._batches) or self._followed.waiting

    @property
    def ingesting(self) -> bool:
        """True if requests wait, or are being taken in."""
        return bool(self._batches)

    def turn(self, now: int, *, releasing: bool = True) -> list[Decision]:
        """Take in a slice of a request, and release events to a bounded number of ranges.

        Args:
            now: microseconds since 1970.
            releasing: False to release none: waiting events are released with the next ones.

        Returns:
            Decisions, in the order in which they are to be carried out.
        """
        decisions: list[Decision] = []
        settled = self._advance(now, decisions) if self._batches else None
        work = 0
        for _ in range(TURNS_MAX if releasing else 0):
            if work > RELEASES or (due := self._followed.next()) is None:
                break
            span = due.range.span
            work += self._pieces.width(span) + self._events.width(span)
            decision = self._release(due.range, beat=due.beat, now=now)
            if decision is not None:
                decisions.append(decision)
                work += len(decision.events) if isinstance(decision, Release) else 0
        if settled is not None:
            decisions.append(settled)
        return decisions

    def _advance(self, now: int, decisions: list[Decision]) -> Settled | None:
        batch = self._batches[0]
        if batch.phase is Phase.WAITING:
            self._checker = Checker(batch, self._pieces, self._events, self.epoch, self._bounds, self._stamps.last)
            batch.advance()
        if batch.phase is Phase.CHECKED and self._checker is not None:
            refused = self._checker.step()
            if refused is not None:
                return self._settle(batch, refused)
            if batch.done < len(batch.lines):
                return None
            self._checker = None
            batch.advance()
            if len(batch.lines) > SLICE:
                return None
        self._take(batch, now, decisions)
        if batch.done < len(batch.lines):
            return None
        batch.advance()
        accepted = Accepted(self.epoch, batch.events, batch.repeated, self._pieces.progress(ALL))
        return self._settle(batch, accepted)

    def _settle(self, batch: Batch, outcome: Outcome) -> Settled:
        self._batches.popleft()
        self._waiting -= batch.size
        self._checker = None
        if isinstance(outcome, Refused):
            self.refused += 1
        return Settled(batch.number, outcome)

    def _take(self, batch: Batch, now: int, decisions: list[Decision]) -> None:
        work = 0
        index = batch.done
        lines = batch.lines
        raised: list[Span] = []
        while index < len(lines) and work < SLICE:
            line = lines[index]
            work += 1
            if type(line) is SoftEvent:
                repeated = index in batch.repeats
                batch.count(repeated=repeated)
                if not repeated:
                    work += self._append(line, now)
                    if len(self._events) > self._bounds.events or self._events.size > self._bounds.bytes:
                        work += SLICE
                        decisions += self._make_room(self._bounds.events, self._bounds.bytes)
            elif type(line) is Progress:
                work += self._pieces.width(line.span)
                raised += self._raise(line)
            elif type(line) is Reset:
                work += SLICE
                decisions += self._reset(line.span)
            index += 1
        batch.through(index)
        if raised:
            self._followed.raised(raised)

    def _append(self, line: SoftEvent, now: int) -> int:
        """Take in an event, and return the number of ranges that wait for it."""
        event = SoftEvent(line.version, self._stamps.next(now), *line[2:])
        self._events.add(event)
        return self._followed.added(event.key)

    def _raise(self, line: Progress) -> list[Span]:
        raised = self._pieces.raise_to(line.span, line.version, self._stamps.last)
        for span, before, version in raised:
            if before is None:
                # Nothing below the first progress is complete.
                self._events.drop(span, (version, self._stamps.last))
        self._unite()
        return [span for span, before, _ in raised if before is not None]

    def _unite(self) -> None:
        if len(self._pieces) > self._bounds.pieces:
            self._pieces.unite()

    def _reset(self, span: Span) -> list[Resync]:
        # A place of before is below the floor also if the next progress is of an equal version.
        self._stamps.next(0)
        if span == ALL:
            self._pieces.reset(span)
            self._events.drop(span, EVERYTHING)
            self.epoch = self._new_epoch()
        else:
            self._forget(span)
            self._unite()
        return self._resync([span], "reset")

    def _forget(self, span: Span) -> int:
        """Forget events and progress of a range; return the number of its events."""
        one = self._pieces.width(span) == 1
        count, newest = 0, dict[str, int]()
        for taken in self._events.take(span):
            count += len(taken)
            for event in taken[-1:] if one else taken:
                low = self._pieces.at(event.key).low
                if event.version > newest.get(low, 0):
                    newest[low] = event.version
        self._pieces.forget(span, newest)
        return count

    def _resync(self, spans: Sequence[Span], reason: str) -> list[Resync]:
        """Have the followers of the ranges that touch some spans, which are in order and apart, resync."""
        concerned = self._followed.overlapping(spans)
        for each in concerned:
            self._followed.remove(each.span)
        self.resyncs += len(concerned)
        return [Resync(each.span, self.epoch, reason) for each in concerned]

    # --- bounds

    def shrink(self, size: int) -> list[Resync]:
        """Drop events until they count for at most a number of bytes.

        Args:
            size: bytes.

        Returns:
            The ranges whose followers have to resync.
        """
        return self._make_room(self._bounds.events, size) if self._events.size > size else []

    def _make_room(self, events: int, size: int) -> list[Resync]:
        """Drop the oldest released events, and if these do not suffice, the unreleased ones of the pieces that lag."""
        most, most_bytes = events - events // TRIM, size - size // TRIM
        self._trim(most, most_bytes)
        if len(self._events) <= most and self._events.size <= most_bytes:
            return []
        # A look at all events for each few of them would take longer and longer.
        forgotten: list[Span] = []
        lagging = sorted(self._pieces.each(), key=lambda pair: -1 if pair[1].progress is None else pair[1].progress)
        for span, _ in lagging:
            if not self._events.newest(span):
                continue
            self.dropped += self._forget(span)
            forgotten.append(span)
            if len(self._events) <= events - events // LAG and self._events.size <= size - size // LAG:
                break
        return self._resync(sorted(forgotten), "full")

    def _trim(self, events: int, size: int) -> None:
        floors: dict[str, Place] = {}
        count, left = len(self._events), self._events.size
        for event in self._events.oldest():
            if count <= events and left <= size:
                break
            piece = self._pieces.at(event.key)
            if piece.progress is not None and event.version <= piece.progress:
                count -= 1
                left -= event.size
                floors[piece.low] = max(floors.get(piece.low, (0, 0)), event.place)
        for key, floor in floors.items():
            self._events.drop(self._pieces.raise_floor(key, floor), floor)

    # --- followers

    def start(self, span: Span, version: int) -> Start:
        """Decide whether a follower may read from a version of the source on, as a snapshot named it.

        Args:
            span: its range.
            version: the version: events above it are wanted.
        """
        return self._start(span, complete(version))

    def resume(self, span: Span, position: Position) -> Start:
        """Decide whether a follower may continue behind a position.

        Args:
            span: its range.
            position: position of the last event or progress that it has.
        """
        if position.epoch != self.epoch:
            return Start(StartKind.EPOCH, None, None)
        return self._start(span, position.place)

    def _start(self, span: Span, place: Place) -> Start:
        progress = self._pieces.progress(span)
        if progress is None:
            return Start(StartKind.UNKNOWN, None, None)
        floor = self._pieces.floor(span)
        if place < floor or (place == complete(floor[0]) and self._pieces.ambiguous(span, floor[0])):
            return Start(StartKind.BELOW, floor[0], progress)
        kind = StartKind.ABOVE if place[0] > progress else StartKind.KNOWN
        return Start(kind, floor[0], progress)

    def floor(self, span: Span) -> Position | None:
        """Return the least place from which a range may be read; None while its progress is unknown.

        It has the stamp of the floor where the version alone may be one of before a reset.

        Args:
            span: the range.
        """
        if self._pieces.progress(span) is None:
            return None
        floor = self._pieces.floor(span)
        if not self._pieces.ambiguous(span, floor[0]):
            floor = complete(floor[0])
        return Position(self.epoch, *floor)

    def progress(self, span: Span) -> int | None:
        """Return the version up to which a range is complete; None while that is unknown.

        Args:
            span: the range.
        """
        return self._pieces.progress(span)

    def read(self, span: Span, after: Place, upto: int, limit: int) -> list[SoftEvent]:
        """Return released events in their order. ``start`` or ``resume`` must have found the place known.

        Args:
            span: range of their keys.
            after: place that they lie behind.
            upto: version up to which they lie; above the progress of the range it counts as that.
            limit: greatest number of events.
        """
        progress = self._pieces.progress(span)
        return [] if progress is None else self._events.read(span, after, complete(min(upto, progress)), limit)

    def tail(self, span: Span, now: int) -> Position | None:
        """Return a new position at the progress of a range, or at the version up to which its followers are served.

        Args:
            span: the range.
            now: microseconds since 1970.

        Returns:
            The position; None while the progress is unknown.
        """
        version = self.released(span)
        if version is None:
            version = self._pieces.progress(span)
        return None if version is None else Position(self.epoch, version, self._stamps.next(now))

    def follow(self, span: Span) -> bool:
        """Release events of a range to followers from now on, from its progress on.

        A range that is followed already keeps its place, which may be below its progress until its next turn: a
        follower that starts above ``released`` is answered after that.

        Args:
            span: the range.

        Returns:
            Whether it is followed; False while its progress is unknown.

        Raises:
            WindowLimit: too many ranges are followed.
        """
        progress = self._pieces.progress(span)
        found = self._followed.get(span)
        if found is not None:
            if progress is None or found.released < progress:
                self._followed.due(found, beat=True)
            return True
        if progress is None:
            return False
        if len(self._followed) >= self._bounds.ranges:
            cure = "follow one of the ranges that others follow, or the whole topic"
            raise WindowLimit("ranges", self._bounds.ranges, "window", cure)
        self._followed.add(span, progress, behind=self._events.newest(span) > progress)
        return True

    def released(self, span: Span) -> int | None:
        """Return the version up to which the followers of a range were given its events; None if it is not followed.

        Args:
            span: the range.
        """
        found = self._followed.get(span)
        return None if found is None else found.released

    def unfollow(self, span: Span) -> None:
        """Release no events of a range to followers any more.

        Args:
            span: the range.
        """
        self._followed.remove(span)

    def beat(self, span: Span) -> None:
        """Give followers of a range its progress with one of the next turns, though nothing may have happened.

        Args:
            span: the range.
        """
        found = self._followed.get(span)
        if found is not None:
            self._followed.due(found, beat=True)

    def _release(self, found: FollowedRange, *, beat: bool, now: int) -> Release | Resync | None:
        """Return the events of a range that were not given to its followers yet; None for nothing new."""
        span = found.span
        progress = self._pieces.progress(span)
        if progress is None or (found.behind and self._pieces.floor(span) > complete(found.released)):
            # Events may have been dropped before their turn.
            self._followed.remove(span)
            self.resyncs += 1
            return Resync(span, self.epoch, "behind")
        events = self._events.read(span, complete(found.released), complete(progress), RELEASE_MAX + 1)
        if not events and not beat:
            return None
        upto, many = progress, False
        if len(events) > RELEASE_MAX:
            # A version is given as a whole, or not at all.
            upto = events.pop().version
            while events and events[-1].version == upto:
                events.pop()
            many = not events
            upto = upto if many else events[-1].version
        more = upto < progress
        self._followed.released(found, upto, behind=self._events.newest(span) > upto)
        if more:
            self._followed.due(found, beat=True)
        return Release(span, self.epoch, events, Position(self.epoch, upto, self._stamps.next(now)), many, more)
