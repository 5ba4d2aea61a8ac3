"""Position of a stream between two rounds, and the work of the next round. Decides only: no Spark, no clock.

A round gets the segments that are new. Minutes before ``final`` have been written and are not touched again; the
minutes up to ``--delay`` before the newest event become final now. Segments with events of later minutes stay *open*:
they are read again, until all of theirs are final.
"""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_stats.reports.span import LOOK_BACK, Span

__all__ = ["MEMORY", "Position", "Round", "Segment", "begun"]

MINUTE: Final = 60_000_000
"""Length of a minute, µs."""
MEMORY: Final = 7 * 86_400_000_000
"""Time for which a final segment is remembered, µs, to recognise a copy. Spark forgets names of files as late."""
MOST: Final = 20_000
"""Segments that are final and remembered, at most."""
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Segment:
    """Footer of a segment.

    Attributes:
        path: path below the record.
        kind: type of the events.
        session: session that recorded them.
        first: number of the first event.
        last: number of the last event.
        rows: number of events.
        since: time of the first event, µs since 1970.
        until: time of the last event, µs since 1970.
    """

    path: str
    kind: str
    session: str
    first: int
    last: int
    rows: int
    since: int
    until: int

    @property
    def content(self) -> tuple[str, str, int, int, int]:
        """Return the fields that a copy of the segment has in common with it."""
        return (self.kind, self.session, self.first, self.last, self.rows)

    def overlaps(self, other: Segment) -> bool:
        """Return True if this segment and ``other`` may have events in common."""
        same = self.kind == other.kind and self.session == other.session
        return same and self.first <= other.last and other.first <= self.last

    @classmethod
    def read(cls, root: pathlib.Path, path: pathlib.Path) -> Segment | None:
        """Return the segment from its footer, None if it has no events.

        Args:
            root: folder of the record.
            path: file of the segment.

        Raises:
            ValueError: the file is broken, or no segment.
            OSError: the file cannot be read.
        """
        try:
            metadata = pq.read_metadata(path)
            columns = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
            places = [columns[name] for name in ("session", "seq", "received_at")]
        except (pa.ArrowInvalid, KeyError) as e:
            raise ValueError(f"{path} is broken, or no segment ({e})") from e
        if not metadata.num_rows:
            return None
        ends: list[list[Any]] = [[], [], []]
        for group in range(metadata.num_row_groups):
            for end, place in zip(ends, places, strict=True):
                found = metadata.row_group(group).column(place).statistics
                if found is None or not found.has_min_max:
                    raise ValueError(f"{path} is no segment (without statistics)")
                end += [found.min, found.max]
        sessions, numbers, times = ends
        if len(set(sessions)) != 1 or not isinstance(times[0], datetime.datetime):
            raise ValueError(f"{path} is no segment (of one session)")
        kind = path.parent.name.removeprefix("type=")
        below = path.relative_to(root).as_posix()
        since, until = _micros(min(times)), _micros(max(times))
        return cls(below, kind, sessions[0], min(numbers), max(numbers), metadata.num_rows, since, until)


@dataclass(frozen=True, slots=True)
class Round:
    """Work of a round.

    ``span`` are the minutes that become final, None if there are none; the segments to be read for it follow.
    ``repeated`` are kinds of which two of these overlap, whose events have to be compared one by one; ``copies`` of
    others are left out; ``late`` are new segments that may have events of minutes that were final before; ``gone`` are
    open segments that are no longer there.
    """

    span: Span | None
    segments: list[Segment]
    repeated: set[str]
    copies: list[Segment]
    late: list[Segment]
    gone: list[Segment]


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a stream; all times in µs since 1970.

    Minutes before ``final`` are final (None before the first round); ``newest`` is the time of the newest event;
    ``segments`` are those that are known.
    """

    final: int | None = None
    newest: int | None = None
    segments: list[Segment] = field(default_factory=list)

    def following(
        self,
        new: Iterable[Segment],
        delay: float,
        now: datetime.datetime,
        exists: Callable[[Segment], bool] = lambda segment: True,
    ) -> tuple[Round, Position]:
        """Return the work for new segments, and the position after it.

        Args:
            new: segments that have appeared since the last round.
            delay: seconds an event may be late.
            now: the current time; events of the future, of a clock that jumped, make no minute final.
            exists: returns True if the file of a segment is there.
        """
        known = {segment.content: segment for segment in self.segments}
        copies, fresh = [], []
        for segment in sorted(new, key=lambda each: (each.since, each.path)):
            other = known.get(segment.content)
            if other is not None and (other.path == segment.path or exists(other)):
                copies.append(segment)
                continue
            # In the place of one that was moved away, it is as good.
            known[segment.content] = segment
            if other is None:
                fresh.append(segment)
        limit = _micros(now)
        newest = max((min(each.until, limit) for each in fresh), default=self.newest)
        if newest is None or (self.newest is not None and self.newest > newest):
            newest = self.newest
        final = self.final
        if newest is not None:
            final = (newest - round(delay * 1_000_000)) // MINUTE * MINUTE
            final = final if self.final is None else max(final, self.final)
        segments = sorted(known.values(), key=lambda each: (each.since, each.path))
        unread = [each for each in segments if self.final is None or each.until >= self.final]
        there = {each: exists(each) for each in unread}
        gone = [each for each in unread if not there[each]]
        unread = [each for each in unread if there[each]]
        since = self.final
        if since is None and segments:
            # Reports are about the time before them.
            since = begun(segments[0].since) - round(LOOK_BACK.total_seconds()) * 1_000_000
        span = None
        if since is not None and final is not None and since < final:
            span = Span(_time(since), _time(final))
        # Few of them are reports, and these may be about the minute before.
        late = [each for each in fresh if self.final and (each.since < self.final or each.kind == "report")]
        # While nothing is final, a round begins where the record does.
        reached = self.final if span is None else final
        kept = [each for each in unread if reached is None or each.until >= reached]
        oldest = 0 if newest is None else newest - MEMORY
        over = [each for each in segments if reached is not None and oldest <= each.until < reached]
        kept = [*[each for each in over if there.get(each, True)][-MOST:], *kept]
        return Round(span, unread, _overlapping(unread), copies, late, gone), Position(reached, newest, kept)

    def to_json(self) -> dict[str, Any]:
        """Return a form that JSON can hold, for :meth:`of_json`."""
        return {"final": self.final, "newest": self.newest, "segments": [asdict(each) for each in self.segments]}

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Position:
        """Return the position whose :meth:`to_json` returned ``value``."""
        return cls(value["final"], value["newest"], [Segment(**each) for each in value["segments"]])


def _overlapping(segments: Iterable[Segment]) -> set[str]:
    """Kinds with segments of a session whose numbers overlap."""
    found = set()
    reached: dict[tuple[str, str], int] = {}
    for segment in sorted(segments, key=lambda each: each.first):
        key = (segment.kind, segment.session)
        if segment.first <= reached.get(key, -1):
            found.add(segment.kind)
        reached[key] = max(segment.last, reached.get(key, -1))
    return found


def begun(micros: int) -> int:
    """Return the beginning of the minute that contains ``micros``; both µs since 1970."""
    return micros // MINUTE * MINUTE


def _micros(time: datetime.datetime) -> int:
    return (time.astimezone(datetime.UTC) - _EPOCH) // datetime.timedelta(microseconds=1)


def _time(micros: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(microseconds=micros)
