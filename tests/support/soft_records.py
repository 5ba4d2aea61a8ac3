"""Records of the history of a soft topic: timelines of its source, and what its watchers have received. Sans-I/O."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.hub_records import Keys, Measured

__all__ = ["Began", "Commit", "Got", "History", "Progressed", "Segment", "Step", "Timeline", "Told"]


@dataclass(frozen=True, slots=True)
class Commit:
    """Transaction of a source.

    Attributes:
        version: its version.
        changes: new values by key; None for a deleted key.
        truncated: range whose keys are gone without an event; None for none.
    """

    version: int
    changes: Mapping[str, str | None] = field(default_factory=dict)
    truncated: Keys | None = None

    def apply(self, table: dict[str, str], keys: Keys) -> None:
        """Change a table.

        Args:
            table: values by key.
            keys: range of the table.
        """
        if self.truncated is not None:
            for key in [key for key in table if self.truncated.has(key)]:
                del table[key]
        for key, value in self.changes.items():
            if keys.has(key):
                if value is None:
                    table.pop(key, None)
                else:
                    table[key] = value


class Timeline:
    """Commits of a source from its beginning up to a restore, in the order of their versions.

    Args:
        number: of the timeline; a restore begins the next one.
        commits: those that the restore has kept.
    """

    def __init__(self, number: int, commits: Sequence[Commit] = ()) -> None:
        self.number = number
        self.fork = commits[-1].version if commits else 0
        """Version up to which it is equal to the one before."""
        self.commits = list(commits)
        self._versions = [commit.version for commit in self.commits]

    @property
    def newest(self) -> int:
        """Version of the last commit; 0 for none."""
        return self._versions[-1] if self._versions else 0

    def add(self, commit: Commit) -> None:
        """Add a ``commit``, of a higher version than all before."""
        assert commit.version > self.newest, commit
        self.commits.append(commit)
        self._versions.append(commit.version)

    def until(self, version: int) -> Timeline:
        """Return the next timeline: that of a source restored to its state at ``version``."""
        return Timeline(self.number + 1, self.between(0, version))

    def between(self, after: int, upto: int) -> list[Commit]:
        """Return commits.

        Args:
            after: version that they lie behind.
            upto: version up to which they lie.
        """
        return self.commits[bisect.bisect_right(self._versions, after) : bisect.bisect_right(self._versions, upto)]

    def at(self, version: int) -> Commit | None:
        """Return the commit of a ``version``; None for none."""
        found = self.between(version - 1, version)
        return found[0] if found else None

    def state(self, version: int, keys: Keys) -> dict[str, str]:
        """Return the values of a range.

        Args:
            version: at which they are asked for.
            keys: the range.
        """
        table: dict[str, str] = {}
        for commit in self.between(0, version):
            commit.apply(table, keys)
        return table


@dataclass(frozen=True, slots=True)
class Began:
    """Snapshot that a watcher has read from the source, and goes on from.

    Attributes:
        watcher: its name.
        timeline: number of the source's timeline.
        version: of the snapshot.
        table: values by key.
    """

    watcher: str
    timeline: int
    version: int
    table: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Got:
    """Event that a watcher received.

    Attributes:
        watcher: its name.
        epoch: of its cursor.
        version: of the event.
        key: its key.
        value: its content; None for a deletion.
    """

    watcher: str
    epoch: str
    version: int
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Progressed:
    """Progress of its whole range that a watcher received.

    Attributes:
        watcher: its name.
        epoch: of its cursor.
        version: up to which all was given.
        cursor: of the progress.
    """

    watcher: str
    epoch: str
    version: int
    cursor: str


@dataclass(frozen=True, slots=True)
class Told:
    """Resync that a watcher received.

    Attributes:
        watcher: its name.
        floor: that it names; None while it is unknown.
    """

    watcher: str
    floor: int | None


Step = Began | Got | Progressed | Told


@dataclass
class Segment:
    """Steps of one watcher from a snapshot to the next resync.

    Attributes:
        watcher: its name.
        began: the snapshot; None if the watcher has read none.
        steps: events and progress.
        told: whether a resync has ended it.
    """

    watcher: str
    began: Began | None = None
    steps: list[Got | Progressed] = field(default_factory=list)
    told: bool = False

    @property
    def epoch(self) -> str:
        """Epoch of the first step; empty for none."""
        return self.steps[0].epoch if self.steps else ""

    @property
    def progress(self) -> int:
        """Version up to which the watcher knows its range; -1 for none."""
        return max([step.version for step in self.steps if isinstance(step, Progressed)], default=-1)


@dataclass
class History:
    """All records of one topic.

    Attributes:
        timelines: of the source, in order; the last one is that of the end.
        epochs: number of the timeline whose changes the window of each epoch has, as ingesters were answered.
        watchers: range of each watcher, by name.
        steps: of all watchers, in the order of their arrival.
        complete: watchers that had the time to know everything at the end.
        measured: sizes.
    """

    timelines: list[Timeline] = field(default_factory=lambda: [Timeline(0)])
    epochs: dict[str, int] = field(default_factory=dict)
    watchers: dict[str, Keys] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    complete: set[str] = field(default_factory=set)
    measured: list[Measured] = field(default_factory=list)

    @property
    def source(self) -> Timeline:
        """Timeline of now."""
        return self.timelines[-1]

    def restored(self, version: int) -> None:
        """Begin a timeline: the source was restored to a ``version``."""
        self.timelines.append(self.source.until(version))

    def timeline(self, segment: Segment) -> Timeline:
        """Return the timeline of a segment with a snapshot.

        Args:
            segment: from a snapshot that may be one of two timelines, if it is of a version before the restore.
        """
        assert segment.began is not None
        first, last = segment.began.timeline, self.epochs.get(segment.epoch, segment.began.timeline)
        later = self.timelines[first + 1 : last + 1]
        common = all(segment.began.version <= timeline.fork for timeline in later)
        return self.timelines[last if common and last > first else first]

    def answered(self, epoch: str, timeline: int) -> None:
        """Note the timeline that an ingester has given to the window of an ``epoch``.

        Args:
            epoch: as the answer names it.
            timeline: its number.
        """
        self.epochs[epoch] = timeline

    def segments(self) -> Iterator[Segment]:
        """Yield the steps of each watcher in segments, those of one watcher in order."""
        current: dict[str, Segment] = {}
        for step in self.steps:
            segment = current.setdefault(step.watcher, Segment(step.watcher))
            match step:
                case Began():
                    if segment.began is not None or segment.steps:
                        yield segment
                    current[step.watcher] = Segment(step.watcher, step)
                case Told():
                    segment.told = True
                    yield segment
                    current[step.watcher] = Segment(step.watcher)
                case _:
                    segment.steps.append(step)
        yield from current.values()
