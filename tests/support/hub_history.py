"""History of one topic of a hub, and one validator for each promise (docs/guarantees.md). Sans-I/O.

A history has the answers of publishers, the events and reports of readers, and the events of the store at the end. A
validator yields a finding for each record that contradicts its promise. The known events are those of the store, of
the answers and of all readers together: an event that was deleted since is known as well.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = [
    "VALIDATORS",
    "WHOLE",
    "Answer",
    "Event",
    "Finding",
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
    "judge",
]

SHOWN: Final = 20
"""Findings of one promise that are listed; further ones are counted."""

SETTLE: Final = 5.0
"""Seconds after a fault in which a report without a loss is excused: the position of a channel may have been lost."""


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
    """

    id: int
    prev_id: int
    version: int
    time: int
    content: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """Publication that was asked for, perhaps several times.

    Attributes:
        name: its ``Idempotency-Key``, of one request only.
        contents: of its events.
        keys: of its events.
        sent: time of the first attempt in seconds.
    """

    name: str
    contents: tuple[str, ...]
    keys: tuple[str | None, ...]
    sent: float


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
    """

    at: float
    reader: str
    id: int
    prev_id: int
    version: int
    content: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """Report that a reader received.

    Attributes:
        at: time in seconds.
        reader: name of the reader.
        kind: ``truncated``: events up to the floor are left out; ``resync`` or ``gone``: the place is not retained.
        floor: floor that the report names; None if the topic was deleted.
    """

    at: float
    reader: str
    kind: Literal["truncated", "resync", "gone"]
    floor: int | None


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
class Restored:
    """Restore of the store from a backup.

    Attributes:
        newest: newest id of the backup; events above it are lost.
        first: least id that is issued afterwards.
    """

    newest: int
    first: int

    def lost(self, id: int) -> bool:
        """Return whether the event with ``id`` was lost."""
        # The place before the first id belongs to the new epoch.
        return self.newest < id < self.first - 1


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


Step = Opened | Got | Told | Paged | Snapshot


@dataclass
class History:
    """All records of one topic.

    Attributes:
        requests: publications that were asked for, by name.
        answers: in the order of their arrival.
        readers: range of each reader, by name.
        watchers: names of the readers that get progress.
        steps: of all readers, in the order of their arrival.
        complete: readers that followed until the end, and had the time to receive all events.
        births: birth of the topic, and of each later topic of its name, in order.
        restores: of the store.
        faults: times in seconds at which processes were killed, or served again.
        measured: sizes.
        store: events of the last topic of the name at the end, in order.
        floor: of that topic at the end.
        newest: newest id of the store at the end.
    """

    requests: dict[str, Request] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    readers: dict[str, Keys] = field(default_factory=dict)
    watchers: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    complete: set[str] = field(default_factory=set)
    births: list[int] = field(default_factory=lambda: [0])
    restores: list[Restored] = field(default_factory=list)
    faults: list[float] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    store: list[Event] = field(default_factory=list)
    floor: int = 0
    newest: int = 0

    def by_reader(self) -> dict[str, list[Step]]:
        """Return the steps of each reader, in order."""
        found: dict[str, list[Step]] = {name: [] for name in self.readers}
        for step in self.steps:
            found[step.reader].append(step)
        return found

    def topic(self, id: int) -> int:
        """Return the place of the topic in ``births`` that an id belongs to."""
        return max(0, bisect.bisect_left(self.births, id) - 1)

    def lost(self, id: int) -> bool:
        """Return whether the event with ``id`` was lost by a restore."""
        return any(restored.lost(id) for restored in self.restores)

    def kept(self, id: int) -> bool:
        """Return whether the store must have the event with ``id`` at the end."""
        return id > self.floor and id > self.births[-1] and not self.lost(id)


@dataclass(frozen=True, slots=True)
class Finding:
    """Contradiction to a promise.

    Attributes:
        promise: its name.
        text: the contradiction.
    """

    promise: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"


class _Known:
    """Events of a history, wherever they were seen, with the events of each range in order."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.versions: dict[int, int] = {}
        """Version of each event."""
        self.keys: dict[int, str | None] = {}
        for event in history.store:
            self._add(event.id, event.version, event.key)
        for answer in history.answers:
            keys = history.requests[answer.request].keys
            for id, key in zip(answer.ids, keys, strict=False):
                self._add(id, answer.version, key)
        for step in history.steps:
            if isinstance(step, Got):
                self._add(step.id, step.version, step.key)
        self._ids = sorted(id for id in self.versions if not history.lost(id))
        self._ranges: dict[Keys, list[int]] = {}

    def _add(self, id: int, version: int, key: str | None) -> None:
        self.versions.setdefault(id, version)
        self.keys.setdefault(id, key)

    def ids(self, keys: Keys) -> list[int]:
        """Return the ids of a range, in order; those that a restore lost are left out."""
        found = self._ranges.get(keys)
        if found is None:
            found = self._ranges[keys] = [id for id in self._ids if keys.has(self.keys[id])]
        return found

    def between(self, keys: Keys, after: int, before: int) -> list[int]:
        """Return the ids of a range above one id and below another."""
        ids = self.ids(keys)
        return ids[bisect.bisect_right(ids, after) : bisect.bisect_left(ids, before)]

    def previous(self, keys: Keys, id: int) -> int:
        """Return the id before one, of its range and topic; 0 for none."""
        ids = self.ids(keys)
        place = bisect.bisect_left(ids, id)
        birth = self.history.births[self.history.topic(id)]
        return ids[place - 1] if place and ids[place - 1] > birth else 0


# --- validators


def durable(history: History) -> Iterator[Finding]:
    """Yield answered or delivered events of a ``history`` that are not stored, or with another content."""
    stored = {event.id: event for event in history.store}
    for answer in history.answers:
        request = history.requests[answer.request]
        for id, content, key in zip(answer.ids, request.contents, request.keys, strict=True):
            if not history.kept(id):
                continue
            event = stored.get(id)
            if event is None:
                yield Finding("durable", f"event {id} of {answer.request} was answered and is not stored")
            elif (event.content, event.key) != (content, key):
                yield Finding("durable", f"event {id} is {event.content!r}, {answer.request} published {content!r}")
    for step in history.steps:
        if isinstance(step, Got) and history.kept(step.id):
            event = stored.get(step.id)
            if event is None:
                yield Finding("durable", f"{step.reader} received event {step.id}, which is not stored")
            elif (event.content, event.key) != (step.content, step.key):
                yield Finding("durable", f"{step.reader} received {step.content!r} as {step.id}: {event.content!r}")


def ordered(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` received behind later ones, stored out of order, or against that of requests."""
    for name, steps in history.by_reader().items():
        last, seen = 0, set[int]()
        for step in steps:
            if isinstance(step, Told) and step.kind != "truncated":
                last = 0
                seen.clear()
            elif isinstance(step, Got):
                if step.id < last and step.id not in seen:
                    yield Finding("ordered", f"{name} received event {step.id} behind {last}")
                last = max(last, step.id)
                seen.add(step.id)
    for before, event in zip(history.store, history.store[1:], strict=False):
        if event.id <= before.id or event.time <= before.time:
            yield Finding("ordered", f"event {event.id} is stored behind {before.id}, its time is not later")
    yield from _answered_in_order(history)


def _answered_in_order(history: History) -> Iterator[Finding]:
    """Yield requests sent after the answer to another whose events are behind its own."""
    first: dict[str, Answer] = {}
    for answer in history.answers:
        first.setdefault(answer.request, answer)
    newest, when = 0, ""
    ends = sorted(first.values(), key=lambda answer: answer.at)
    place = 0
    for request in sorted(first, key=lambda name: history.requests[name].sent):
        while place < len(ends) and ends[place].at < history.requests[request].sent:
            if ends[place].version > newest and not history.lost(ends[place].version):
                newest, when = ends[place].version, ends[place].request
            place += 1
        if first[request].ids[0] <= newest:
            yield Finding("ordered", f"{request} has event {first[request].ids[0]}, {when} had {newest} before it")


def unique(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` that a reader received twice."""
    for name, steps in history.by_reader().items():
        seen = set[int]()
        for step in steps:
            if isinstance(step, Told) and step.kind != "truncated":
                seen.clear()
            elif isinstance(step, Got):
                if step.id in seen:
                    yield Finding("unique", f"{name} received event {step.id} twice")
                seen.add(step.id)


def gap_free(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` missing at a reader without a report, and wrong ``prev_id``."""
    known = _Known(history)
    unanswered = set(history.requests) - {answer.request for answer in history.answers}
    for name, steps in history.by_reader().items():
        keys = history.readers[name]
        place: int | None = None
        for step in steps:
            if isinstance(step, Opened):
                place = step.after if place is None else place
            elif isinstance(step, Told):
                if step.kind != "truncated":
                    place = None
                elif step.floor is not None:
                    place = max(place or 0, step.floor)
            elif isinstance(step, Paged):
                yield from _missed(known, name, place or 0, step.cursor, inclusive=True)
                place = max(place or 0, step.cursor)
            elif isinstance(step, Got):
                yield from _missed(known, name, place or 0, step.id)
                place = max(place or 0, step.id)
                before = known.previous(keys, step.id)
                # Of a range, an event that is not retained is not found any more.
                forgotten = step.prev_id == 0 and (before <= history.floor or step.id <= history.births[-1])
                unknown = history.lost(step.id) or (bool(unanswered) and step.prev_id not in known.versions)
                if step.prev_id != before and not forgotten and not unknown:
                    text = f"{name}: event {step.id} names {step.prev_id} before it, which is {before}"
                    yield Finding("gap-free", text)
        if name in history.complete and place is not None:
            yield from _missed(known, name, place, history.newest + 1)


def _missed(known: _Known, name: str, place: int, id: int, *, inclusive: bool = False) -> Iterator[Finding]:
    """Yield the loss between the place of a reader and the id that it is at next, which may be part of the loss."""
    history = known.history
    if place and history.lost(place) and not history.lost(id):
        yield Finding("gap-free", f"{name} was at event {place}, which a restore lost, and received no report")
    elif place and place < history.births[-1] < id and history.topic(place) != history.topic(id):
        yield Finding("gap-free", f"{name} was at event {place} of a deleted topic, and received no report")
    # A page that is complete up to the birth of a topic is one of that topic.
    birth = history.births[history.topic(id + inclusive)]
    if missing := known.between(history.readers[name], max(place, birth), id + inclusive):
        ids = ", ".join(map(str, missing[:5])) + (" …" if len(missing) > 5 else "")
        yield Finding("gap-free", f"{name} did not receive {len(missing)} events between {place} and {id}: {ids}")


def atomic(history: History) -> Iterator[Finding]:
    """Yield publications of a ``history`` that are stored in part, and pages that end within one."""
    for answer in history.answers:
        if list(answer.ids) != list(range(answer.ids[0], answer.ids[0] + len(answer.ids))):
            yield Finding("atomic", f"the ids of {answer.request} are not consecutive: {answer.ids}")
        if answer.version != answer.ids[-1]:
            yield Finding("atomic", f"the version of {answer.request} is {answer.version}, not {answer.ids[-1]}")
    stored = {event.content: event for event in history.store if history.kept(event.id)}
    for request in history.requests.values():
        events = [stored[content] for content in request.contents if content in stored]
        # The first ones may lie at or below the floor.
        cut = request.contents[-1] in stored and events[0].id - 1 <= history.floor
        if events and len(events) < len(request.contents) and not cut:
            yield Finding("atomic", f"{len(events)} of {len(request.contents)} events of {request.name} are stored")
        if len({event.version for event in events}) > 1:
            yield Finding("atomic", f"the events of {request.name} have several versions")
    known = _Known(history)
    members: dict[int, list[int]] = defaultdict(list)
    for id, version in known.versions.items():
        members[version].append(id)
    # A floor may lie within a version: the rest of it is behind the report.
    floors = {step.floor for step in history.steps if isinstance(step, Told)}
    for step in history.steps:
        if isinstance(step, Got) and step.version != known.versions[step.id]:
            yield Finding("atomic", f"{step.reader} received event {step.id} with version {step.version}")
        elif isinstance(step, Paged) and step.cursor in known.versions and step.cursor not in floors:
            keys, version = history.readers[step.reader], known.versions[step.cursor]
            behind = [id for id in members[version] if id > step.cursor and keys.has(known.keys[id])]
            if behind:
                text = f"a page of {step.reader} ends at {step.cursor}, before {min(behind)} of the same version"
                yield Finding("atomic", text)


def resumable(history: History) -> Iterator[Finding]:
    """Yield reports of a loss, in a ``history``, to readers that had lost nothing."""
    known = _Known(history)
    for name, steps in history.by_reader().items():
        keys = history.readers[name]
        place, since = 0, False
        for step in steps:
            if isinstance(step, Opened):
                # A place that the reader names itself may be below the floor, also where nothing of its range is.
                place, since = max(place, step.after), True
            elif isinstance(step, Got):
                place, since = step.id, False
            elif isinstance(step, Paged):
                place, since = max(place, step.cursor), False
            elif isinstance(step, Told) and step.kind != "truncated":
                if not _justified(known, keys, place, step, opened=since):
                    yield Finding("resumable", f"{name} at event {place} was sent {step.kind}, and had lost nothing")
                place = 0


def _justified(known: _Known, keys: Keys, place: int, told: Told, *, opened: bool) -> bool:
    """Return whether a report was due: the topic has ended, a restore, or events that are not retained."""
    history = known.history
    if told.floor is None or history.restores or place < history.births[-1]:
        return True
    if opened and place < told.floor:
        return True
    if known.between(keys, place, told.floor + 1):
        return True
    return any(at <= told.at <= at + SETTLE for at in history.faults)


def repeatable(history: History) -> Iterator[Finding]:
    """Yield requests of a ``history`` stored twice, or answered differently when they were repeated."""
    first: dict[str, Answer] = {}
    for answer in history.answers:
        before = first.setdefault(answer.request, answer)
        if before.ids != answer.ids:
            yield Finding("repeatable", f"{answer.request} was answered with {before.ids}, then with {answer.ids}")
    ids: dict[str, int] = {}
    for event in history.store:
        if ids.setdefault(event.content, event.id) != event.id:
            yield Finding("repeatable", f"{event.content!r} is stored as {ids[event.content]} and as {event.id}")
    for step in history.steps:
        if isinstance(step, Got) and ids.setdefault(step.content, step.id) != step.id:
            yield Finding("repeatable", f"{step.reader} received {step.content!r} as {step.id}, it is not the only one")


def bounded(history: History) -> Iterator[Finding]:
    """Yield sizes of a ``history`` above their bounds."""
    for measured in history.measured:
        if measured.value > measured.bound:
            yield Finding("bounded", f"{measured.name} is {measured.value}, its bound is {measured.bound}")


def entitled(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` received without the right to read."""
    for name, steps in history.by_reader().items():
        right = "valid"
        for step in steps:
            if isinstance(step, Opened):
                right = step.right
            elif isinstance(step, Got) and right != "valid":
                yield Finding("entitled", f"{name} received event {step.id} with a link that is {right}")


def bookmarkable(history: History) -> Iterator[Finding]:
    """Yield progress of a ``history`` that was ahead of an event, fell, came within a version, or has an id of another.

    An event that is missing at progress is one of *gap-free*, too.
    """
    known = _Known(history)
    for name, steps in history.by_reader().items():
        progress, last, marks = -1, 0, set[str]()
        for step in steps:
            if isinstance(step, Told) and step.kind != "truncated":
                progress, last = -1, 0
            elif isinstance(step, Got):
                if step.id <= progress:
                    yield Finding("bookmarkable", f"{name} received event {step.id} behind progress {progress}")
                last = max(last, step.id)
            elif isinstance(step, Progressed):
                if step.cursor < progress:
                    yield Finding("bookmarkable", f"{name} received progress {step.cursor} behind {progress}")
                if step.cursor < last:
                    yield Finding("bookmarkable", f"{name} received progress {step.cursor} behind event {last}")
                if step.cursor < known.versions.get(last, 0):
                    yield Finding("bookmarkable", f"progress {step.cursor} of {name} divides the version of {last}")
                if step.mark in marks:
                    yield Finding("bookmarkable", f"{name} received progress {step.mark} twice")
                progress = max(progress, step.cursor)
                marks.add(step.mark)


def told(history: History) -> Iterator[Finding]:
    """Yield watchers of a ``history`` that neither know the newest version nor had a report: they hear nothing."""
    for name, steps in history.by_reader().items():
        if name not in history.watchers or name not in history.complete:
            continue
        progress = max([step.cursor for step in steps if isinstance(step, Progressed)], default=-1)
        if progress < history.newest:
            yield Finding("told", f"{name} knows version {progress} and was not told of {history.newest}")


def snapshot(history: History) -> Iterator[Finding]:
    """Yield snapshots of a ``history`` that are not the log at their version."""
    known = _Known(history)
    for step in history.steps:
        if not isinstance(step, Snapshot):
            continue
        keys = history.readers[step.reader]
        log: dict[str, int] = {}
        birth = history.births[history.topic(step.version)]
        for id in known.between(keys, birth, step.version + 1):
            key = known.keys[id]
            if key is not None:
                log[key] = id
        for key in log.keys() | step.ids.keys():
            expected, found = log.get(key, 0), step.ids.get(key, 0)
            # Events at and below the floor may be deleted, and events of requests that were not answered are not known.
            forgotten = not found and expected <= history.floor
            if found != expected and not forgotten and (found < expected or found > step.version):
                text = f"{key!r} is event {found} in the snapshot {step.version} of {step.reader}, not {expected}"
                yield Finding("snapshot", text)


VALIDATORS: Final[Mapping[str, Callable[[History], Iterator[Finding]]]] = {
    "durable": durable,
    "ordered": ordered,
    "unique": unique,
    "gap-free": gap_free,
    "atomic": atomic,
    "resumable": resumable,
    "repeatable": repeatable,
    "bounded": bounded,
    "entitled": entitled,
    "bookmarkable": bookmarkable,
    "told": told,
    "snapshot": snapshot,
}
"""Validators by the name of their promise."""


def judge(history: History) -> dict[str, list[Finding]]:
    """Return the findings by promise; of each the first ones, and the number of the others.

    Args:
        history: complete.
    """
    verdict: dict[str, list[Finding]] = {}
    for name, validator in VALIDATORS.items():
        findings = list(validator(history))
        if len(findings) > SHOWN:
            findings[SHOWN:] = [Finding(name, f"and {len(findings) - SHOWN} more")]
        if findings:
            verdict[name] = findings
    return verdict
