"""Records of the history of one topic of a hub: what was asked for, answered, received and stored. Sans-I/O."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = [
    "WHOLE",
    "Answer",
    "Event",
    "Got",
    "History",
    "Keys",
    "Measured",
    "Opened",
    "Paged",
    "Progressed",
    "Request",
    "Restored",
    "Snapshot",
    "Step",
    "Told",
    "Viewed",
]


@dataclass(frozen=True, slots=True)
class Keys:
    """Range of keys that a reader reads.

    Attributes:
        low: least key; None for no bound.
        high: first key beyond; None for no bound.
        keyed: False for the whole topic, events without key included.
    """

    low: str | None = None
    high: str | None = None
    keyed: bool = True

    def has(self, key: str | None) -> bool:
        """Return whether an event with ``key`` lies in the range."""
        if not self.keyed:
            return True
        if key is None:
            return False
        text = key.encode()
        return (self.low is None or self.low.encode() <= text) and (self.high is None or text < self.high.encode())


WHOLE: Final = Keys(keyed=False)
"""The whole topic."""


@dataclass(frozen=True, slots=True)
class Event:
    """Event as the store has it.

    Attributes:
        id: its id.
        prev_id: id of the event before it, of the topic.
        version: id of the last event of its publication.
        time: of storing, in microseconds since 1970.
        content: its content, not equal to that of any other event of the run.
        key: its key; None for none.
        op: ``put`` or ``delete``.
    """

    id: int
    prev_id: int
    version: int
    time: int
    content: str
    key: str | None = None
    op: str = "put"


@dataclass(frozen=True, slots=True)
class Request:
    """Publication that was asked for, perhaps several times.

    Attributes:
        name: its ``Idempotency-Key``, of one request only.
        contents: of its events.
        keys: of its events.
        sent: time of the first attempt in seconds.
        deletions: contents of the events that delete their key.
    """

    name: str
    contents: tuple[str, ...]
    keys: tuple[str | None, ...]
    sent: float
    deletions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer 201 to a request.

    Attributes:
        at: time in seconds.
        request: name of the request.
        ids: of its events.
        version: of its events.
    """

    at: float
    request: str
    ids: tuple[int, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Opened:
    """Connection or request of a reader, begun by the reader itself.

    Attributes:
        at: time in seconds.
        reader: name of the reader.
        after: id of the cursor that it named; 0 for the beginning.
        right: whether it had the right to read.
    """

    at: float
    reader: str
    after: int
    right: Literal["valid", "revoked", "forged"] = "valid"


@dataclass(frozen=True, slots=True)
class Got:
    """Event that a reader received.

    Attributes:
        at: time in seconds.
        reader: name of the reader.
        id: of the event.
        prev_id: id of the event before it, as the event names it.
        version: of the event.
        content: of the event.
        key: of the event.
        op: of the event.
    """

    at: float
    reader: str
    id: int
    prev_id: int
    version: int
    content: str
    key: str | None = None
    op: str = "put"


@dataclass(frozen=True, slots=True)
class Told:
    """Report that a reader received.

    Attributes:
        at: time in seconds.
        reader: name of the reader.
        kind: ``truncated``: events up to the floor are left out; ``resync`` or ``gone``: the place is not retained.
        floor: floor that the report names; None if the topic was deleted.
        reason: text of the report.
    """

    at: float
    reader: str
    kind: Literal["truncated", "resync", "gone"]
    floor: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Paged:
    """End of a page.

    Attributes:
        at: time in seconds.
        reader: name of the reader.
        cursor: id up to which the page is complete.
    """

    at: float
    reader: str
    cursor: int


@dataclass(frozen=True, slots=True)
class Progressed(Paged):
    """Progress that a watcher received: it counts as the end of a page.

    Attributes:
        mark: cursor of the progress.
    """

    mark: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Complete snapshot that a watcher has read.

    Attributes:
        at: time in seconds.
        reader: name of the watcher.
        version: of the snapshot.
        ids: of the events, by their keys.
    """

    at: float
    reader: str
    version: int
    ids: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Viewed:
    """Values of ranges at one version, as one or several caches gave them together.

    Attributes:
        at: time in seconds.
        reader: name of the caches.
        epoch: of the version.
        version: its number.
        ranges: that were read.
        ids: of the events, by their keys.
    """

    at: float
    reader: str
    epoch: str
    version: int
    ranges: tuple[Keys, ...]
    ids: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Restored:
    """Restore of the store from a backup. Each backup is one of the epoch before, so that no id is issued twice.

    Attributes:
        newest: newest id of the backup; events above it are lost.
        first: least id that is issued afterwards.
        births: of the topic, and of each earlier topic of its name, before the restore; empty if it changed none.
        events: events that are lost, as the store had them; None if they were not read.
        floor: of the topic before the restore.
    """

    newest: int
    first: int
    births: tuple[int, ...] = ()
    events: tuple[Event, ...] | None = None
    floor: int = 0

    def lost(self, id: int) -> bool:
        """Return whether the event with ``id`` was lost."""
        # The place before the first id belongs to the new epoch.
        return self.newest < id < self.first - 1

    def had(self, id: int) -> bool:
        """Return whether the store had the event with ``id`` until the restore, if it was stored at all."""
        return self.lost(id) and id > self.floor and id > max(self.births, default=0)


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured size of something that has a bound.

    Attributes:
        name: of the measured thing.
        value: its size.
        bound: greatest size that is allowed.
    """

    name: str
    value: int
    bound: int


Step = Opened | Got | Told | Paged | Snapshot | Viewed


@dataclass
class History:
    """All records of one topic.

    Attributes:
        requests: publications that were asked for, by name.
        answers: in the order of their arrival.
        readers: range of each reader, by name.
        watchers: names of the readers that get progress.
        polls: names of the readers whose requests are held while there is nothing for them.
        steps: of all readers, in the order of their arrival.
        pushed: ids of the events that each callback received, by its name.
        complete: readers that followed until the end, and had the time to receive all events.
        births: birth of the topic, and of each earlier topic of its name, in order, as the store has them at the end.
        restores: of the store, in order.
        epochs: names of all epochs of the store, in order; none if they are not known.
        faults: times in seconds at which processes ended, and at which they served again.
        measured: sizes.
        store: events of the last topic of the name at the end, in order.
        floor: of that topic at the end.
        compact: whether the last event of each key is retained below the floor.
        newest: newest id of the store at the end.
    """

    requests: dict[str, Request] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    readers: dict[str, Keys] = field(default_factory=dict)
    watchers: set[str] = field(default_factory=set)
    polls: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    pushed: dict[str, set[int]] = field(default_factory=dict)
    complete: set[str] = field(default_factory=set)
    births: list[int] = field(default_factory=lambda: [0])
    restores: list[Restored] = field(default_factory=list)
    epochs: list[str] = field(default_factory=list)
    faults: list[tuple[float, float]] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    store: list[Event] = field(default_factory=list)
    floor: int = 0
    compact: bool = False
    newest: int = 0

    def by_reader(self) -> dict[str, list[Step]]:
        """Return the steps of each reader, in order."""
        found: dict[str, list[Step]] = {name: [] for name in self.readers}
        for step in self.steps:
            found[step.reader].append(step)
        return found

    # --- restores

    def generation(self, id: int) -> int:
        """Return the number of restores before an ``id`` was issued."""
        return sum(id >= restored.first - 1 for restored in self.restores)

    def lost(self, id: int) -> bool:
        """Return whether the event with ``id`` was lost by a restore."""
        return any(restored.lost(id) for restored in self.restores)

    def lost_before(self, id: int, later: int) -> bool:
        """Return whether an event was lost by a restore before another id was issued.

        Args:
            id: of the event.
            later: the other id.
        """
        return any(restored.lost(id) and later >= restored.first - 1 for restored in self.restores)

    def highest_floor(self, birth: int) -> int:
        """Return the greatest floor of a topic, as far as it is known: a restore has a lower one again.

        Args:
            birth: of the topic.
        """
        floors = [restored.floor for restored in self.restores if max(restored.births, default=birth) == birth]
        return max([birth, *floors, *([self.floor] if self.births[-1] == birth else [])])

    # --- topics of the name

    @property
    def all_births(self) -> set[int]:
        """Births of all topics of the name, those that a restore has undone included."""
        return {*self.births, *(birth for restored in self.restores for birth in restored.births)}

    def birth(self, id: int) -> int:
        """Return the birth of the topic that an ``id`` belongs to."""
        births: Sequence[int] = self.births
        for restored in self.restores[self.generation(id) :]:
            if restored.births:
                births = restored.births
                break
        return births[max(0, bisect.bisect_left(births, id) - 1)]

    def kept(self, id: int) -> bool:
        """Return whether the store must have the event with ``id`` at the end."""
        return id > self.floor and id > self.births[-1] and not self.lost(id)
