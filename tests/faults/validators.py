"""One validator per guarantee (docs/guarantees.md): what a history shows against it, with the evidence.

Clients without ids are judged by what they are promised: order and no repetition for as long as one handler lives.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.faults.history import History, Record
from tests.faults.truth import item_id

__all__ = ["ANSWERED", "VALIDATORS", "Case", "Facts", "Finding", "Session", "Terms", "judge", "sessions_of", "windows"]

SHOWN: Final = 20
"""Findings of one guarantee that are told; the rest is counted."""


@dataclass(frozen=True)
class Facts:
    """What a client was told to be. ``slow``: it stops reading now and then."""

    form: str
    channels: tuple[str, ...]
    reliable: bool
    control: bool = False
    slow: bool = False


@dataclass(frozen=True)
class Terms:
    """What a run may take: ``deadline`` seconds for an item to come where no fault is.

    ``settle`` seconds around a fault of the service in which its consequences are excused; ``order_wait`` seconds
    the service waits for an item that was overtaken; ``memory_kb`` by the first word of a process's name.
    """

    deadline: float = 15.0
    settle: float = 5.0
    order_wait: float = 1.0
    memory_kb: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A finished run: its history, the number of items of each channel, the clients, and what it may take."""

    history: History
    truth: dict[str, int]
    clients: dict[str, Facts]
    terms: Terms = field(default_factory=Terms)


@dataclass(frozen=True)
class Finding:
    """Something that should not be: which guarantee, what, and the records that show it."""

    guarantee: str
    text: str
    evidence: tuple[Record, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.guarantee}: {self.text}", *(f"    {record.line()}" for record in self.evidence)]
        return "\n".join(lines)


class Session:
    """One session of one client: how it began, what it got, how it ended."""

    def __init__(self, client: str, opened: Record) -> None:
        self.client = client
        self.opened = opened.at
        self.after: dict[str, int] = {}
        self.got: list[Record] = []
        self.ended: Record | None = None


def sessions_of(case: Case) -> list[Session]:
    """Return all sessions, those of each client in their order."""
    found: dict[tuple[str, int], Session] = {}
    for record in case.history.select("opened", "got", "ended"):
        key = (record.who, record.values[0])
        if record.what == "opened":
            session = found.get(key) or found.setdefault(key, Session(record.who, record))
            session.after[record.values[1]] = record.values[2]
        elif key in found:
            if record.what == "got":
                found[key].got.append(record)
            elif found[key].ended is None:
                found[key].ended = record
    return list(found.values())


class _Times:
    """Spans of time, and whether something lies within one of them."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        merged: list[list[float]] = []
        for start, end in sorted(spans):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        self._starts = [start for start, _ in merged]
        self._ends = [end for _, end in merged]

    def touch(self, start: float, end: float) -> bool:
        """Whether any span has something in common with this one."""
        position = bisect.bisect_left(self._ends, start)
        return position < len(self._starts) and self._starts[position] <= end


SERVICE: Final = ("worker", "handler", "runner", "pipe")
"""First words of the targets whose faults hurt the service itself."""


ANSWERED: Final = ("publisher http", "publisher rep", "publisher calm")
"""Publishers that are told when the service has taken an item."""


def _troubles(case: Case, *targets: str) -> _Times:
    """When something of this name, or beginning with this word, was hurt.

    Faults until they healed and for some time after, and every start of a process of the service.
    """
    settle = case.terms.settle
    spans: list[tuple[float, float]] = []
    begun: dict[tuple[str, str], float] = {}
    taken = sorted(record.at for record in _published(case).values() if record.who in ANSWERED)
    serving = next((record.at for record in case.history.select("phase") if record.values[0] == "serving"), 0.0)
    for record in case.history.select("fault", "healed", "process"):
        if record.at < serving:
            continue
        if record.what == "process":
            end = record.at
            if record.values[0] == "handler":
                # It serves when a publisher that waits for the answer has got one.
                end = next((at for at in taken if at > end), end)
            spans.append((record.at - settle, end + settle))
            continue
        kind, target = record.values
        if target not in targets and target.split(" ")[0] not in targets:
            continue
        if record.what == "fault":
            begun[(kind, target)] = record.at
            spans.append((record.at, record.at + settle))
        else:
            spans.append((begun.pop((kind, target), record.at), record.at + settle))
    return _Times(spans)


def _published(case: Case) -> dict[tuple[str, int], Record]:
    """The last publication of each item that reached the service, as far as its publisher knows."""
    return {
        (record.values[0], record.values[1]): record
        for record in case.history.select("published")
        if record.values[2] not in ("lost", "failed")
    }


def ordered(case: Case) -> Iterator[Finding]:
    """A session sees the items of one channel in their order.

    Without ids: an item does not come behind its successors when it was published in time, and what is before it has
    come. The service knows an order only from an item on whose predecessor it has seen (docs/grip.md §6.2).
    """
    troubles = _troubles(case, *SERVICE)
    published = _published(case)
    for session in sessions_of(case):
        reliable = case.clients[session.client].reliable
        last: dict[str, Record] = {}
        seen: set[tuple[str, int]] = set()
        for record in session.got:
            _, channel, number, _ = record.values
            before = last.get(channel)
            if before is not None and number < before.values[2]:
                known = (channel, number - 1) in seen and not troubles.touch(before.at, record.at)
                if reliable or (known and not _overtaken(case, published, troubles, before, record)):
                    yield Finding(
                        "ordered", f"{session.client}: item {number} after {before.values[2]}", (before, record)
                    )
            else:
                last[channel] = record
                seen.add((channel, number))


def _overtaken(
    case: Case, published: dict[tuple[str, int], Record], troubles: _Times, before: Record, late: Record
) -> bool:
    """Whether an item was published so long after its successor that the service need not have waited for it."""
    first = published.get((before.values[1], before.values[2]))
    second = published.get((late.values[1], late.values[2]))
    if first is None or second is None:
        return True
    gap = second.at - first.at
    return gap > case.terms.order_wait / 2 or troubles.touch(first.at - case.terms.order_wait, second.at)


def unique(case: Case) -> Iterator[Finding]:
    """An item comes at most once: to a session, and to a client that comes back with its last id."""
    troubles = _troubles(case, *SERVICE)
    seen: dict[str, dict[tuple[str, int], Record]] = {}
    for session in sessions_of(case):
        reliable = case.clients[session.client].reliable
        known = seen.setdefault(session.client, {}) if reliable else {}
        for record in session.got:
            key = (record.values[1], record.values[2])
            before = known.get(key)
            known[key] = record
            if before is None or (not reliable and troubles.touch(before.at, record.at)):
                continue
            yield Finding("unique", f"{session.client}: item {key[1]} of {key[0]} twice", (before, record))


def gap_free(case: Case) -> Iterator[Finding]:
    """A reliable session skips nothing, from the item that the client had on."""
    for session in sessions_of(case):
        if not case.clients[session.client].reliable:
            continue
        last = dict(session.after)
        previous: Record | None = None
        for record in session.got:
            _, channel, number, _ = record.values
            if channel not in last:
                continue
            if number > last[channel] + 1:
                yield Finding(
                    "gap-free",
                    f"{session.client}: item {number} of {channel} right after {last[channel]}",
                    (record,) if previous is None else (previous, record),
                )
            last[channel] = max(last[channel], number)
            previous = record


def windows(case: Case) -> Iterator[Record]:
    """Return the answers to clients with ids that began a hold, although something newer had been published by then."""
    when = {key: record.at for key, record in _published(case).items()}
    for answer in case.history.select("answered"):
        session, channel, upto = answer.values
        name = session.rpartition(".")[0]
        # Without a name it is the proxy's own request, for whoever shares it.
        if name and when.get((channel, upto + 1), float("inf")) <= answer.at and case.clients[name].reliable:
            yield answer


def no_window(case: Case) -> Iterator[Finding]:
    """What is written and published after the backend read and before the hold began comes to the client in time."""
    deadline = case.terms.deadline
    came: dict[tuple[str, str], list[Record]] = {}
    cut: dict[str, list[float]] = {}
    for record in case.history.select("got", "ended", "paused"):
        if record.what == "got":
            came.setdefault((record.who, record.values[1]), []).append(record)
        elif record.what == "paused" or record.values[1]:
            cut.setdefault(record.who, []).append(record.at)
    troubles: dict[str, _Times] = {}
    for answer in windows(case):
        session, channel, upto = answer.values
        at, name, number = answer.at, session.rpartition(".")[0], upto + 1
        if any(record.at <= at + deadline for record in came.get((name, channel), ()) if record.values[2] >= number):
            continue
        backend = channel.partition("-")[0]
        if backend not in troubles:
            troubles[backend] = _troubles(case, *SERVICE, f"backend {backend}")
        excused = any(at <= end <= at + deadline for end in cut.get(name, ())) or case.clients[name].slow
        if not excused and not troubles[backend].touch(at, at + deadline):
            yield Finding(
                "no-window",
                f"{name}: item {number} of {channel} was published before the hold began, and did not come in"
                f" {deadline:g} s",
                (answer,),
            )


def resumable(case: Case) -> Iterator[Finding]:
    """In the end every reliable client has all of its channels, and has without help what the service was given."""
    for record in case.history.select("behind"):
        name, channel, number = record.values
        yield Finding("resumable", f"{name} did not get item {number} of {channel} by itself", (record,))
    last: dict[tuple[str, str], Record] = {}
    for record in case.history.select("got"):
        key = (record.who, record.values[1])
        if key not in last or record.values[2] >= last[key].values[2]:
            last[key] = record
    for name, facts in case.clients.items():
        if not facts.reliable:
            continue
        for channel in facts.channels:
            newest = last.get((name, channel))
            number = 0 if newest is None else newest.values[2]
            if number != case.truth[channel]:
                yield Finding(
                    "resumable",
                    f"{name} ({facts.form}) ended with item {number} of {channel}, which has {case.truth[channel]}",
                    () if newest is None else (newest,),
                )


def isolated(case: Case) -> Iterator[Finding]:
    """Clients that no fault is aimed at get everything in time and are not disconnected."""
    terms = case.terms
    troubles = _troubles(case, *SERVICE)
    stop = next((record.at for record in case.history.select("phase") if record.values[0] == "stop"), float("inf"))
    wanted: dict[str, list[tuple[int, float]]] = {}
    for (channel, number), record in _published(case).items():
        wanted.setdefault(channel, []).append((number, record.at))
    came: dict[tuple[str, str, int], float] = {}
    begun: dict[str, float] = {}
    for session in sessions_of(case):
        if not case.clients[session.client].control:
            continue
        begun.setdefault(session.client, session.opened)
        for record in session.got:
            came.setdefault((session.client, record.values[1], record.values[2]), record.at)
        ended = session.ended
        if ended is not None and ended.values[1] and ended.at < stop and not troubles.touch(ended.at, ended.at):
            yield Finding("isolated", f"{session.client} was disconnected: {ended.values[1]}", (ended,))
    for name, facts in case.clients.items():
        if not facts.control or facts.form == "ask":
            continue
        if name not in begun:
            yield Finding("isolated", f"{name} was never held")
            continue
        for channel in facts.channels:
            for number, at in wanted.get(channel, ()):
                if at < begun[name] or at + terms.deadline > stop or troubles.touch(at, at + terms.deadline):
                    continue
                took = came.get((name, channel, number), float("inf")) - at
                if took > terms.deadline:
                    yield Finding("isolated", f"{name} ({facts.form}): item {number} of {channel} took {took:.1f} s")


def bounded(case: Case) -> Iterator[Finding]:
    """No process uses more memory than its configured limits add up to."""
    limits = case.terms.memory_kb
    worst: dict[str, Record] = {}
    for record in case.history.select("memory"):
        name, kb = record.values
        if kb > limits.get(name.split(" ")[0], kb) and (name not in worst or kb > worst[name].values[1]):
            worst[name] = record
    for name, record in worst.items():
        limit = limits[name.split(" ")[0]]
        yield Finding("bounded", f"{name} used {record.values[1]} KB, at most {limit} are allowed", (record,))


def addressed(case: Case) -> Iterator[Finding]:
    """A session gets items of the channels it is subscribed to and answers to its own requests, nothing else."""
    for record in case.history.select("misled"):
        yield Finding("addressed", f"{record.who} got what is not for it: {record.values[1]}", (record,))
    for record in case.history.select("refused"):
        yield Finding("addressed", f"a backend was asked for what it does not have: {record.values[1]}", (record,))
    for record in case.history.select("got"):
        _, channel, number, identifier = record.values
        if channel not in case.clients[record.who].channels:
            yield Finding("addressed", f"{record.who} is not subscribed to {channel}", (record,))
        elif not 0 < number <= case.truth[channel] or identifier != item_id(channel, number):
            yield Finding("addressed", f"{record.who}: {channel} has no such item", (record,))


VALIDATORS: Final[dict[str, Callable[[Case], Iterator[Finding]]]] = {
    "ordered": ordered,
    "unique": unique,
    "gap-free": gap_free,
    "no-window": no_window,
    "resumable": resumable,
    "isolated": isolated,
    "bounded": bounded,
    "addressed": addressed,
}
"""All guarantees by name."""


def judge(case: Case) -> dict[str, list[Finding]]:
    """Return the findings by guarantee, those without any left out; of each the first ones and how many there are."""
    verdict: dict[str, list[Finding]] = {}
    for name, validator in VALIDATORS.items():
        findings = list(validator(case))
        if len(findings) > SHOWN:
            findings[SHOWN:] = [Finding(name, f"and {len(findings) - SHOWN} more")]
        if findings:
            verdict[name] = findings
    return verdict
