"""Validators of the history of a soft topic, one for each promise (docs/guarantees.md). Sans-I/O.

A history has the timelines of the source, the snapshots that watchers have read from it, and what the hub has sent
them. A validator yields a finding for each record that contradicts its promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.support.hub_history import Finding
from tests.support.hub_records import Keys
from tests.support.soft_records import Began, Commit, Got, History, Segment, Timeline

__all__ = ["VALIDATORS", "judge"]

SHOWN: Final = 20
"""Findings of one promise that are listed; further ones are counted."""


def _events(commit: Commit, keys: Keys) -> dict[str, str | None]:
    return {key: value for key, value in commit.changes.items() if keys.has(key)}


def _begun(history: History) -> Iterator[tuple[Segment, Began, Timeline, Keys]]:
    """Yield the segments that begin with a snapshot, with its timeline and the range of the watcher."""
    for segment in history.segments():
        if segment.began is not None:
            yield segment, segment.began, history.timeline(segment), history.watchers[segment.watcher]


def ordered(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` that a watcher received behind those of a higher version."""
    for segment in history.segments():
        last = 0
        for step in segment.steps:
            if isinstance(step, Got):
                if step.version < last:
                    yield Finding("ordered", f"{segment.watcher} received {step.key!r} of {step.version} behind {last}")
                last = max(last, step.version)


def unique(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` that a watcher received twice without a resync between."""
    for segment in history.segments():
        seen = set[tuple[int, str]]()
        for step in segment.steps:
            if isinstance(step, Got):
                if (step.version, step.key) in seen:
                    yield Finding("unique", f"{segment.watcher} received {step.key!r} of {step.version} twice")
                seen.add((step.version, step.key))


def true(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` that the source does not have, or with another value, or of another range."""
    for segment, began, timeline, keys in _begun(history):
        for step in segment.steps:
            if isinstance(step, Got):
                commit = timeline.at(step.version)
                events = {} if commit is None else _events(commit, keys)
                if step.key not in events or events[step.key] != step.value:
                    text = f"{step.key!r} is {step.value!r} in {step.version}"
                    yield Finding("true", f"{segment.watcher} (from {began.version} of {timeline.number}): {text}")


def _missing(history: History, *, whole: bool) -> Iterator[str]:
    """Yield events that were not given before progress: those of whole versions, or of versions given in part."""
    for segment, began, timeline, keys in _begun(history):
        place, seen = began.version, dict[int, set[str]]()
        for step in segment.steps:
            if isinstance(step, Got):
                seen.setdefault(step.version, set()).add(step.key)
                continue
            for commit in timeline.between(place, step.version):
                given = seen.get(commit.version, set())
                missing = _events(commit, keys).keys() - given
                if missing and bool(given) is not whole:
                    text = f"progress {step.cursor} without {sorted(missing)[:5]} of version {commit.version}"
                    yield f"{segment.watcher} (from {began.version}): {text}"
            place = max(place, step.version)


def gap_free(history: History) -> Iterator[Finding]:
    """Yield versions of a ``history`` of which a watcher got nothing before progress that passes them."""
    for text in _missing(history, whole=True):
        yield Finding("gap-free", text)


def atomic(history: History) -> Iterator[Finding]:
    """Yield versions of a ``history`` of which a watcher got some events only before progress that passes them."""
    for text in _missing(history, whole=False):
        yield Finding("atomic", text)


def bookmarkable(history: History) -> Iterator[Finding]:
    """Yield events of a ``history`` at or below progress before them, and progress that falls or names a place twice.

    Progress below an event before it falls, too.
    """
    for segment in history.segments():
        progress = -1 if segment.began is None else segment.began.version
        last, cursors = progress, set[str]()
        for step in segment.steps:
            if isinstance(step, Got):
                if step.version <= progress:
                    text = f"{segment.watcher} received {step.key!r} of {step.version} behind progress {progress}"
                    yield Finding("bookmarkable", text)
                last = max(last, step.version)
                continue
            if step.version < last:
                yield Finding("bookmarkable", f"{segment.watcher} received progress {step.cursor} behind {last}")
            if step.cursor in cursors:
                yield Finding("bookmarkable", f"{segment.watcher} received progress {step.cursor} twice")
            cursors.add(step.cursor)
            progress = last = max(last, step.version)


def told(history: History) -> Iterator[Finding]:
    """Yield losses in a ``history`` of which a watcher was not told: restarts, resets, silence at the end.

    A reset is one of the source: another timeline, or keys that are gone without an event.
    """
    ends: dict[str, Segment] = {}
    for segment in history.segments():
        ends[segment.watcher] = segment
        epochs = list(dict.fromkeys(step.epoch for step in segment.steps))
        if len(epochs) > 1:
            yield Finding("told", f"{segment.watcher} was not told that epoch {epochs[0]} became {epochs[1]}")
    for segment, began, timeline, keys in _begun(history):
        if history.epochs.get(segment.epoch, timeline.number) != timeline.number:
            text = f"{segment.watcher} has a snapshot of timeline {began.timeline}, and was not told of another"
            yield Finding("told", text)
        for commit in timeline.between(began.version, segment.progress):
            if commit.truncated is not None and any(map(commit.truncated.has, _keys(timeline, keys))):
                text = f"{segment.watcher} was not told of the reset in {commit.version}, but of {segment.progress}"
                yield Finding("told", text)
    for name in history.complete:
        progress = ends[name].progress if name in ends else -1
        if progress < history.source.newest:
            yield Finding("told", f"{name} knows version {progress} and was not told of {history.source.newest}")


def _keys(timeline: Timeline, keys: Keys) -> set[str]:
    return {key for commit in timeline.commits for key in commit.changes if keys.has(key)}


def table(history: History) -> Iterator[Finding]:
    """Yield snapshots, progress and ends of a ``history`` at which a watcher's table is not the source's."""
    last: dict[str, tuple[Began, dict[str, str], int]] = {}
    for segment, began, timeline, keys in _begun(history):
        expected, found, place = timeline.state(began.version, keys), dict(began.table), began.version
        if expected != found:
            yield Finding("table", f"the snapshot {began.version} of {segment.watcher} is not the source: {found}")
            continue
        for step in segment.steps:
            if isinstance(step, Got):
                Commit(step.version, {step.key: step.value}).apply(found, keys)
                continue
            for commit in timeline.between(place, step.version):
                commit.apply(expected, keys)
            place = max(place, step.version)
            if found != expected:
                yield Finding("table", f"{segment.watcher} at {step.cursor}: {_difference(found, expected)}")
        last[segment.watcher] = (began, found, place)
    source = history.source
    for name in history.complete & last.keys():
        began, found, place = last[name]
        if found != (expected := source.state(source.newest, history.watchers[name])):
            text = f"{name} ends at {place} of timeline {began.timeline}: {_difference(found, expected)}"
            yield Finding("table", text)


def _difference(found: Mapping[str, str], expected: Mapping[str, str]) -> str:
    keys = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    return ", ".join(f"{key!r} is {found.get(key)!r}, not {expected.get(key)!r}" for key in keys[:5])


def bounded(history: History) -> Iterator[Finding]:
    """Yield sizes of a ``history`` above their bounds."""
    for measured in history.measured:
        if measured.value > measured.bound:
            yield Finding("bounded", f"{measured.name} is {measured.value}, its bound is {measured.bound}")


VALIDATORS: Final[Mapping[str, Callable[[History], Iterator[Finding]]]] = {
    "ordered": ordered,
    "unique": unique,
    "true": true,
    "gap-free": gap_free,
    "atomic": atomic,
    "bookmarkable": bookmarkable,
    "told": told,
    "table": table,
    "bounded": bounded,
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
