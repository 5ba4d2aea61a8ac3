"""Validators of the history of one topic of a hub, one for each promise (docs/guarantees.md). Sans-I/O.

A history has the answers of publishers, the events and reports of readers, and the events of the store at the end. A
validator yields a finding for each record that contradicts its promise. The known events are those of the store, of
the answers and of all readers together: an event that was deleted since is known as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.support.hub_records import (
    Answer,
    Event,
    Got,
    History,
    Keys,
    Opened,
    Paged,
    Progressed,
    Snapshot,
    Step,
    Told,
    Viewed,
)
from tests.support.hub_truth import Truth

__all__ = ["SETTLE", "VALIDATORS", "Finding", "judge"]

SHOWN: Final = 20
"""Findings of one promise that are listed; further ones are counted."""

SETTLE: Final = 5.0
"""Seconds behind a fault in which a report without a loss is excused: the position of a channel may have been lost."""


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


def _begins_anew(step: Step, place: int) -> bool:
    """Return whether a reader at a place begins anew by a report: what it has got may come again.

    A place of a lost future is above the floor; a reader that allows truncation is then put to the floor.
    """
    if not isinstance(step, Told):
        return False
    return step.kind != "truncated" or (step.floor is not None and step.floor < place)


# --- validators


def durable(history: History) -> Iterator[Finding]:
    """Yield answered or delivered events of a ``history`` that are not stored, or with another content.

    Events that a restore has lost are looked for in the store before it.
    """
    yield from _stored(history, history.store, history.kept, "")
    for restored in history.restores:
        if restored.events is not None:
            yield from _stored(history, restored.events, restored.had, f" before the restore to {restored.newest}")


def _stored(history: History, store: Iterable[Event], had: Callable[[int], bool], when: str) -> Iterator[Finding]:
    """Yield events that a store must have, and has not, or with another content."""
    stored = {event.id: event for event in store}
    for answer in history.answers:
        request = history.requests[answer.request]
        for id, content, key in zip(answer.ids, request.contents, request.keys, strict=True):
            if not had(id):
                continue
            event = stored.get(id)
            if event is None:
                yield Finding("durable", f"event {id} of {answer.request} was answered and is not stored{when}")
            elif (event.content, event.key) != (content, key):
                yield Finding("durable", f"event {id} is {event.content!r}, {answer.request} published {content!r}")
            elif event.op != ("delete" if content in request.deletions else "put"):
                yield Finding("durable", f"event {id} is a {event.op}, {answer.request} published the other one")
    for step in history.steps:
        if isinstance(step, Got) and had(step.id):
            event = stored.get(step.id)
            if event is None:
                yield Finding("durable", f"{step.reader} received event {step.id}, which is not stored{when}")
            elif (event.content, event.key, event.op) != (step.content, step.key, step.op):
                yield Finding("durable", f"{step.reader} received {step.content!r} as {step.id}: {event.content!r}")


def ordered(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` received behind later ones, stored out of order, or against that of requests."""
    for name, steps in history.by_reader().items():
        last, seen = 0, set[int]()
        for step in steps:
            if _begins_anew(step, last):
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
        last, seen = 0, set[int]()
        for step in steps:
            if _begins_anew(step, last):
                seen.clear()
            elif isinstance(step, Got):
                if step.id in seen:
                    yield Finding("unique", f"{name} received event {step.id} twice")
                seen.add(step.id)
                last = step.id


def gap_free(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` missing at a reader without a report, and wrong ``prev_id``."""
    truth = Truth(history)
    for name, steps in history.by_reader().items():
        place: int | None = None
        promised = -1
        for step in steps:
            if isinstance(step, Opened):
                place = step.after if place is None else place
                # A poll may be held from before a restore on.
                promised = promised if name in history.polls and promised == step.after else -1
            elif isinstance(step, Told):
                if step.kind != "truncated":
                    place = None
                elif step.floor is not None:
                    place = step.floor
            elif isinstance(step, Paged):
                yield from _missed(truth, name, place or 0, step.cursor, inclusive=True, promised=promised)
                # A poll that was held may name the last event of its range, which is below the place it was asked with.
                place = step.cursor if not isinstance(step, Progressed) else max(place or 0, step.cursor)
                promised = step.cursor if isinstance(step, Progressed) or name in history.polls else -1
            elif isinstance(step, Got):
                yield from _missed(truth, name, place or 0, step.id, promised=promised)
                place = max(place or 0, step.id)
        if name in history.complete and place is not None:
            yield from _missed(truth, name, place, history.newest + 1)
    yield from _misnamed(truth)
    for name, ids in history.pushed.items():
        if missing := [event.id for event in history.store if event.id > history.floor and event.id not in ids]:
            yield Finding("gap-free", f"callback {name} did not receive {len(missing)} events: {_some(missing)}")


def _misnamed(truth: Truth) -> Iterator[Finding]:
    """Yield events that name another one before them than the one that is."""
    history = truth.history
    unanswered = bool(set(history.requests) - {answer.request for answer in history.answers})
    last_birth, floor = max(history.all_births), max(map(history.highest_floor, history.all_births))
    for step in history.steps:
        if not isinstance(step, Got):
            continue
        before = truth.previous(history.readers[step.reader], step.id)
        # Of a range, an event that is not retained is not found any more; compaction leaves an earlier one.
        earlier = step.prev_id == 0 or (history.compact and step.prev_id < before)
        forgotten = earlier and (before <= floor or step.id <= last_birth)
        unknown = step.prev_id not in truth.versions and (unanswered or history.lost(step.id))
        if step.prev_id != before and not forgotten and not unknown:
            text = f"{step.reader}: event {step.id} names {step.prev_id} before it, which is {before}"
            yield Finding("gap-free", text)


def _some(ids: Sequence[int]) -> str:
    """Return the first of some ids as text."""
    return ", ".join(map(str, ids[:5])) + (" …" if len(ids) > 5 else "")


def _missed(
    truth: Truth, name: str, place: int, id: int, *, inclusive: bool = False, promised: int = -1
) -> Iterator[Finding]:
    """Yield the loss between the place of a reader and the id that it is at next, which may be part of the loss.

    The place of a watcher that has stayed connected, or of a poll that was held, may be one that was promised to it. If
    no event of its range was lost up to there, its table is that of the restored store.
    """
    history = truth.history
    # A page that is complete up to the birth of a topic is one of that topic.
    birth = history.birth(id + inclusive)
    if (
        place
        and history.lost_before(place, id)
        and not (place == promised and not truth.lost(history.readers[name], place, id))
    ):
        yield Finding("gap-free", f"{name} was at event {place}, which a restore lost, and received no report")
    elif 0 < place < history.birth(id):
        yield Finding("gap-free", f"{name} was at event {place} of a deleted topic, and received no report")
    if missing := truth.between(history.readers[name], max(place, birth), id, inclusive=inclusive):
        text = f"{name} did not receive {len(missing)} events between {place} and {id}: {_some(missing)}"
        yield Finding("gap-free", text)


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
    truth = Truth(history)
    members: dict[int, list[int]] = defaultdict(list)
    for id, version in truth.versions.items():
        members[version].append(id)
    # A floor may lie within a version: the rest of it is behind the report.
    floors = {step.floor for step in history.steps if isinstance(step, Told)}
    for step in history.steps:
        if isinstance(step, Got) and step.version != truth.versions[step.id]:
            yield Finding("atomic", f"{step.reader} received event {step.id} with version {step.version}")
        elif isinstance(step, Paged) and step.cursor in truth.versions and step.cursor not in floors:
            keys, version = history.readers[step.reader], truth.versions[step.cursor]
            behind = [id for id in members[version] if id > step.cursor and keys.has(truth.keys[id])]
            if behind:
                text = f"a page of {step.reader} ends at {step.cursor}, before {min(behind)} of the same version"
                yield Finding("atomic", text)


def resumable(history: History) -> Iterator[Finding]:
    """Yield reports of a loss, in a ``history``, to readers that had lost nothing."""
    truth = Truth(history)
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
            elif isinstance(step, Told) and _begins_anew(step, place):
                if not _justified(truth, keys, place, step, opened=since):
                    text = f"{name} at event {place} was sent {step.kind}, and had lost nothing: {step.reason}"
                    yield Finding("resumable", text)
                place = 0


def _justified(truth: Truth, keys: Keys, place: int, told: Told, *, opened: bool) -> bool:
    """Return whether a report was due: the topic has ended, a restore, or events that are not retained."""
    history, floor = truth.history, told.floor
    if floor is None or history.lost(place):
        return True
    # The floor of a topic made later is at its birth, or above.
    if any(place <= birth <= floor for birth in history.all_births):
        return True
    if opened and place < floor:
        return True
    if truth.between(keys, place, floor, inclusive=True):
        return True
    return any(begun <= told.at <= healed + SETTLE for begun, healed in history.faults)


def repeatable(history: History) -> Iterator[Finding]:
    """Yield requests of a ``history`` stored twice, or answered differently when they were repeated."""
    first: dict[str, Answer] = {}
    for answer in history.answers:
        before = first.setdefault(answer.request, answer)
        if before.ids != answer.ids:
            if history.lost(before.ids[0]):
                # The store that a restore brought back does not know the request.
                first[answer.request] = answer
            else:
                yield Finding("repeatable", f"{answer.request} was answered with {before.ids}, then with {answer.ids}")
    ids: dict[str, int] = {}
    for event in history.store:
        if ids.setdefault(event.content, event.id) != event.id:
            yield Finding("repeatable", f"{event.content!r} is stored as {ids[event.content]} and as {event.id}")
    for step in history.steps:
        if isinstance(step, Got) and not history.lost(step.id) and ids.setdefault(step.content, step.id) != step.id:
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
    truth = Truth(history)
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
                if step.cursor < truth.versions.get(last, 0):
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
    truth = Truth(history)
    for step in history.steps:
        if isinstance(step, Snapshot):
            name = f"the snapshot {step.version} of {step.reader}"
            yield from _differences(truth, "snapshot", name, [history.readers[step.reader]], step.version, step.ids)


def region(history: History) -> Iterator[Finding]:
    """Yield values that caches of a ``history`` gave together and that never were so, or that stay old for ever."""
    truth = Truth(history)
    reached: dict[str, int] = {}
    for step in history.steps:
        if not isinstance(step, Viewed):
            continue
        reached[step.reader] = max(reached.get(step.reader, -1), step.version)
        name = f"the read of {step.reader} at {step.epoch}.{step.version}"
        yield from _differences(truth, "region", name, step.ranges, step.version, step.ids)
        if history.epochs and not _is_version(history, step.epoch, step.version):
            yield Finding("region", f"{name} is at no version of this store")
    for name, version in reached.items():
        if name in history.complete and version < history.newest:
            yield Finding("region", f"{name} gave no values at {history.newest}, the last ones are at {version}")


def _is_version(history: History, epoch: str, version: int) -> bool:
    """Return whether a number is one of a version that an epoch had, or has taken over from those before it."""
    if epoch not in history.epochs:
        return False
    restores = history.restores[: history.epochs.index(epoch)]
    return history.generation(version) <= len(restores) and not any(each.lost(version) for each in restores)


def _differences(
    truth: Truth, promise: str, name: str, ranges: Sequence[Keys], version: int, ids: Mapping[str, int]
) -> Iterator[Finding]:
    """Yield the keys whose events are not those of the log at a version."""
    history = truth.history
    unanswered = bool(set(history.requests) - {answer.request for answer in history.answers})
    values = truth.values(ranges, version)
    floor = 0 if history.compact else history.highest_floor(history.birth(version))
    # At the birth of a topic its values are those of the topic before it, or none.
    born = version in history.all_births
    for key in sorted(values.keys() | ids.keys()):
        expected, found = values.get(key, 0), ids.get(key, 0)
        # Events at and below the floor may be deleted, and those of requests that were not answered are not known.
        forgotten = not found and (expected <= floor or born)
        unknown = found not in truth.versions and found <= version and (unanswered or history.lost(found))
        if found != expected and not forgotten and not (found and unknown):
            yield Finding(promise, f"{key!r} is event {found} in {name}, not {expected}")


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
    "region": region,
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
