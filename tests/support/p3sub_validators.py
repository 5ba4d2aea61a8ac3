"""One validator for each promise of subscriptions by callback (docs/guarantees.md). Sans-I/O.

A validator yields a finding for each record of a history that contradicts its promise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.support.p3sub_history import (
    BEGINNING,
    Answered,
    Calm,
    Committed,
    Deleted,
    Ended,
    History,
    Made,
    Pushed,
    Restored,
    Started,
    Stopped,
    Told,
    Took,
    Trimmed,
)

__all__ = ["COUNTDOWN", "VALIDATORS", "Finding", "judge"]

COUNTDOWN: Final = 300.0 * 1.1
"""Seconds of the longest countdown of a subscriber."""

SLACK: Final = 5.0
"""Seconds for the requests of the poll at the end of a countdown: on a sound network each takes a second at most."""

ISOLATION: Final = 1.5
"""Greatest factor by which the delays of others may grow."""

SHOWN: Final = 20
"""Findings of one promise that are listed; further ones are counted."""


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


class _Chain:
    """Events of the topic as a tree: each restore begins a branch."""

    def __init__(self, history: History) -> None:
        self.parents: dict[str, str] = {}
        self.depths: dict[str, int] = {BEGINNING: 0}
        self.times: dict[str, float] = {}
        """Time of each commit."""
        self._bases: dict[str, str] = {}
        """Last event of the backup that an epoch began with."""
        self._epochs: dict[str, list[int]] = {}
        """Ids of the events of each epoch, in order."""
        self.tip = BEGINNING
        self.trims: list[tuple[float, str]] = []
        self.restored = False
        for record in history.records:
            if isinstance(record, Committed):
                self.parents[record.cursor] = record.parent
                self.depths[record.cursor] = self.depths[record.parent] + 1
                self.times[record.cursor] = record.at
                epoch, _, id = record.cursor.partition(".")
                self._epochs.setdefault(epoch, []).append(int(id))
                self.tip = record.cursor
            elif isinstance(record, Restored):
                self._bases[record.epoch] = self.tip = record.newest
                self.restored = True
            elif isinstance(record, Trimmed):
                self.trims.append((record.at, self.node(record.floor)))

    def node(self, cursor: str) -> str:
        """Return the last event up to a place, which may be that of another topic's event."""
        if cursor in self.depths:
            return cursor
        epoch, _, text = cursor.partition(".")
        ids = [id for id in self._epochs.get(epoch, ()) if id <= int(text)]
        return f"{epoch}.{ids[-1]}" if ids else self._bases.get(epoch, BEGINNING)

    def up(self, node: str, depth: int) -> str:
        """Return the event at a depth before another, or the other itself."""
        while self.depths[node] > depth:
            node = self.parents[node]
        return node

    def before(self, place: str, node: str) -> bool:
        """Return whether a place lies on the way to an event, or is it."""
        return self.up(node, self.depths[place]) == place

    def fork(self, place: str, node: str) -> str:
        """Return the last event that two have in common."""
        depth = min(self.depths[place], self.depths[node])
        place, node = self.up(place, depth), self.up(node, depth)
        while place != node:
            place, node = self.parents[place], self.parents[node]
        return node

    def way(self, place: str, node: str) -> list[str]:
        """Return the events behind the last common one of two, up to the second, in order."""
        fork, found = self.fork(place, node), []
        while node != fork:
            found.append(node)
            node = self.parents[node]
        return found[::-1]


# --- validators of readers


def unique(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` that an application took twice."""
    chain = _Chain(history)
    for name, records in history.readers().items():
        had: set[str] = set()
        fresh: set[str] = set()
        for record in records:
            if isinstance(record, Started):
                had, fresh = set(chain.way(BEGINNING, chain.node(record.after))), set()
            elif isinstance(record, Took):
                if record.cursor in had:
                    yield Finding("unique", f"{name} took event {record.cursor} twice, again at {record.at:.3f}")
                had.add(record.cursor)
                fresh.add(record.cursor)
            elif record.kind == "gone":
                # A reader that has started knows its cursor alone: events of epochs before that may be repeated.
                epoch = record.after.partition(".")[0]
                had = {each for each in had if each in fresh or each.partition(".")[0] == epoch}


def genuine(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` that an application took, and the publisher has never stored."""
    chain = _Chain(history)
    for record in history.records:
        if isinstance(record, Took) and record.cursor not in chain.parents:
            yield Finding("genuine", f"{record.reader} took {record.cursor}, which was never stored")


def gap_free(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` that are missing at an application without a report, and losses by a restore."""
    chain = _Chain(history)
    for name, records in history.readers().items():
        place, had, told = BEGINNING, set[str](), False
        for record in records:
            if isinstance(record, Started):
                place = chain.node(record.after)
                had = set(chain.way(BEGINNING, place))
            elif isinstance(record, Told):
                if record.kind == "gone" and record.until is not None:
                    place = chain.node(record.until)
                told = told or record.kind != "renewed"
            elif record.cursor in chain.parents:
                if not chain.before(place, record.cursor) and record.cursor not in had and not told:
                    text = f"{name} was at event {place}, which a restore lost, and took {record.cursor} without report"
                    yield Finding("gap-free", text)
                missing = [each for each in chain.way(place, record.cursor)[:-1] if each not in had]
                if missing and not told:
                    text = f"{name} took {record.cursor} behind {place} at {record.at:.3f}: {_listed(missing)} missing"
                    yield Finding("gap-free", text)
                elif missing and not _reported(chain, records, missing):
                    yield Finding("gap-free", f"{name} took {record.cursor}: {_listed(missing)} missing, in no report")
                if record.cursor not in had:
                    place = record.cursor
                had.add(record.cursor)


def _reported(chain: _Chain, records: Sequence[Started | Took | Told], missing: Sequence[str]) -> bool:
    """Return whether events lie within the reported losses."""
    lost: set[str] = set()
    for record in records:
        if isinstance(record, Told) and record.kind != "renewed" and record.until is not None:
            lost.update(chain.way(chain.node(record.after), chain.node(record.until)))
    return lost.issuperset(missing)


def ordered(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` that an application took behind later ones, or that were stored out of order."""
    chain = _Chain(history)
    for name, records in history.readers().items():
        last = BEGINNING
        for record in records:
            if isinstance(record, Started) or (isinstance(record, Told) and record.kind == "gone"):
                last = BEGINNING
            elif isinstance(record, Took) and record.cursor in chain.parents:
                if record.cursor != last and chain.before(record.cursor, last):
                    yield Finding("ordered", f"{name} took event {record.cursor} behind {last}")
                last = record.cursor
    time = 0
    for each in history.records:
        if isinstance(each, Restored):
            time = 0
        elif isinstance(each, Committed):
            if each.time <= time:
                yield Finding("ordered", f"event {each.cursor} is stored at {each.time}, the one before at {time}")
            time = each.time


def resumable(history: History) -> Iterator[Finding]:
    """Yield reports of a loss, in a ``history``, to readers that had lost nothing."""
    chain = _Chain(history)
    branches = [(each.at, each.newest) for each in history.records if isinstance(each, Restored)]
    for name, records in history.readers().items():
        for record in records:
            if not isinstance(record, Told) or record.kind != "gone" or record.until is None:
                continue
            place = chain.node(record.after)
            floors = [floor for at, floor in chain.trims if at <= record.at]
            trimmed = any(chain.before(place, floor) and place != floor for floor in floors)
            lost = any(at <= record.at and not chain.before(place, newest) for at, newest in branches)
            if not trimmed and not lost:
                text = f"{name} at {record.after} was sent {record.kind} at {record.at:.3f}, and had lost nothing"
                yield Finding("resumable", text)


def converges(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` that a complete reader took later than a countdown after the faults, or never."""
    chain = _Chain(history)
    calm = max((record.at for record in history.records if isinstance(record, Calm)), default=0.0)
    for name, records in history.readers().items():
        if name not in history.complete:
            continue
        taken, lost = dict[str, float](), set[str]()
        begin, started = BEGINNING, 0.0
        for record in records:
            if isinstance(record, Started):
                begin = begin if started else chain.node(record.after)
                started = max(record.at, 1e-9)
            elif isinstance(record, Took):
                taken.setdefault(record.cursor, record.at)
            elif record.kind != "renewed" and record.until is not None:
                lost.update(chain.way(chain.node(record.after), chain.node(record.until)))
        for cursor in chain.way(begin, chain.tip):
            due = max(calm, started, chain.times[cursor]) + COUNTDOWN + SLACK
            if cursor in taken:
                if taken[cursor] > due:
                    late = taken[cursor] - due + COUNTDOWN + SLACK
                    yield Finding("converges", f"{name} took event {cursor} {late:.0f} s after the faults")
            elif cursor not in lost and due <= history.end:
                yield Finding("converges", f"{name} did not take event {cursor}")


def settled(history: History) -> Iterator[Finding]:
    """Yield subscriptions of a ``history`` that were made anew, though nothing was lost."""
    readers = history.readers()
    starts = 0
    for name in history.healthy:
        for record in readers.get(name, ()):
            starts += isinstance(record, Started)
            if isinstance(record, Told) and record.kind == "renewed":
                text = f"{name} renewed its subscription at {record.at:.3f}, between {record.after} and {record.until}"
                yield Finding("settled", text)
    made = sum(isinstance(record, Made) for record in history.records)
    if history.healthy and made > starts:
        yield Finding("settled", f"{made} subscriptions were made by {starts} readers")


# --- validators of the publisher


def obedient(history: History) -> Iterator[Finding]:
    """Yield requests of a ``history`` with an id whose deletion was answered before."""
    deleted: dict[str, float] = {}
    for record in history.records:
        if isinstance(record, Made):
            deleted.pop(record.id, None)
        elif isinstance(record, Deleted):
            deleted.setdefault(record.id, record.at)
        elif isinstance(record, Pushed) and record.id in deleted:
            text = f"a request with {record.id} began at {record.at:.3f}, deleted at {deleted[record.id]:.3f}"
            yield Finding("obedient", text)


def single(history: History) -> Iterator[Finding]:
    """Yield requests of a ``history`` that began beside another one of the same subscription."""
    flying: set[int] = set()
    for record in history.records:
        if isinstance(record, Pushed):
            if record.number in flying:
                yield Finding("single", f"{record.id} has two requests at {record.at:.3f}")
            flying.add(record.number)
        elif isinstance(record, Answered | Ended):
            flying.discard(record.number)
        elif isinstance(record, Stopped):
            flying.clear()


def whole(history: History) -> Iterator[Finding]:
    """Yield requests of a ``history`` that pass over an event or repeat an acknowledged one, and events never sent."""
    chain = _Chain(history)
    places: dict[int, str] = {}
    """Last event that was acknowledged, by number of the subscription."""
    known: dict[int, str] = {}
    """Last one of which the sender at work has seen the answer."""
    for record in history.records:
        if isinstance(record, Made):
            places[record.number] = chain.node(record.after)
        elif isinstance(record, Stopped):
            known.clear()
        elif isinstance(record, Answered) and record.success and record.cursor:
            known[record.number] = record.cursor
            if not chain.before(record.cursor, places[record.number]):
                places[record.number] = record.cursor
        elif isinstance(record, Pushed) and record.cursor:
            place, parent = places[record.number], chain.parents[record.cursor]
            if not chain.before(parent, place):
                missing = chain.way(place, parent)
                yield Finding("whole", f"{record.id} is sent {record.cursor} behind {place}: {_listed(missing)} before")
            if record.number in known and chain.before(record.cursor, known[record.number]):
                text = f"{record.id} is sent {record.cursor} again behind {known[record.number]}"
                yield Finding("whole", text)
    for number in sorted(history.live):
        if places[number] != chain.tip:
            missing = chain.way(places[number], chain.tip)
            yield Finding("whole", f"subscription {number} has all events, and was not sent {_listed(missing)}")


def invited(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` that were sent to a callback before it has answered a challenge."""
    confirmed: dict[int, bool] = {}
    for record in history.records:
        if isinstance(record, Made):
            confirmed[record.number] = record.confirmed
        elif isinstance(record, Answered) and record.success and not record.cursor:
            confirmed[record.number] = True
        elif isinstance(record, Pushed) and record.cursor and not confirmed[record.number]:
            yield Finding("invited", f"{record.id} was sent {record.cursor}, and has answered no challenge")


def bounded(history: History) -> Iterator[Finding]:
    """Yield moments of a ``history`` at which more requests were under way than there are places."""
    made: dict[int, Made] = {}
    flying: dict[int, tuple[str, ...]] = {}
    counts: Counter[str] = Counter()
    for record in history.records:
        if isinstance(record, Made):
            made[record.number] = record
        elif isinstance(record, Stopped):
            flying.clear()
            counts.clear()
        elif isinstance(record, Answered | Ended):
            counts.subtract(flying.pop(record.number, ()))
        elif isinstance(record, Pushed):
            each = made[record.number]
            flying[record.number] = ("all", f"host {each.host}", f"owner {each.owner}")
            counts.update(flying[record.number])
            for name in flying[record.number]:
                for kind, most in history.places.items():
                    if name.startswith(kind) and counts[name] > most:
                        yield Finding("bounded", f"{counts[name]} requests of {name} at {record.at:.3f}: {most} places")


def isolated(history: History) -> Iterator[Finding]:
    """Yield readers of a ``history`` whose delays are longer beside others than alone."""
    for name, delays in history.beside.items():
        alone, beside = _quantile(history.alone[name], 0.99), _quantile(delays, 0.99)
        if len(delays) < len(history.alone[name]):
            yield Finding("isolated", f"{name}: {len(delays)} of {len(history.alone[name])} events beside others")
        elif beside > ISOLATION * alone:
            yield Finding("isolated", f"{name}: p99 of the delays is {beside:.3f} s beside others, {alone:.3f} s alone")


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def _listed(cursors: Sequence[str]) -> str:
    return ", ".join(cursors[:5]) + (" …" if len(cursors) > 5 else "")


VALIDATORS: Final[Mapping[str, Callable[[History], Iterator[Finding]]]] = {
    "unique": unique,
    "genuine": genuine,
    "gap-free": gap_free,
    "ordered": ordered,
    "resumable": resumable,
    "converges": converges,
    "settled": settled,
    "obedient": obedient,
    "single": single,
    "whole": whole,
    "invited": invited,
    "bounded": bounded,
    "isolated": isolated,
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
