"""What each validator of soft topics says of small histories, sound and violated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.hub_records import Keys, Measured
from tests.support.soft_records import Began, Commit, Got, History, Progressed, Step, Told
from tests.support.soft_validators import VALIDATORS, judge

RANGE = Keys("a", "m")


def got(version: int, key: str, value: str | None = "", epoch: str = "e1") -> Got:
    return Got("w", epoch, version, key, f"0.{version}" if value == "" else value)


def progressed(version: int, stamp: int = 0, epoch: str = "e1") -> Progressed:
    return Progressed("w", epoch, version, f"{epoch}.{version}.{stamp or version}")


def sound() -> History:
    """Three versions, the second of two keys and one outside of the range; the third deletes a key."""
    history = History(watchers={"w": RANGE}, complete={"w"}, epochs={"e1": 0})
    source = history.source
    source.add(Commit(10, {"a": "0.10", "b": "0.10", "z": "0.10"}))
    source.add(Commit(20, {"a": "0.20", "c": "0.20", "z": "0.20"}))
    source.add(Commit(30, {"b": None, "y": "0.30"}))
    history.steps = [
        Began("w", 0, 10, {"a": "0.10", "b": "0.10"}),
        progressed(10),
        got(20, "c"),
        got(20, "a"),
        progressed(20),
        got(30, "b", None),
        progressed(30, 1),
        progressed(30, 2),
    ]
    return history


def test_a_sound_history_has_no_finding() -> None:
    assert judge(sound()) == {}


def replaced(index: int, *steps: Step) -> Callable[[History], None]:
    def change(history: History) -> None:
        history.steps[index : index + 1] = steps

    return change


def swapped(index: int, other: int) -> Callable[[History], None]:
    def change(history: History) -> None:
        steps = history.steps
        steps[index], steps[other] = steps[other], steps[index]

    return change


def silent(history: History) -> None:
    del history.steps[1:]


def truncated(history: History) -> None:
    history.source.add(Commit(40, {}, Keys("c", None)))
    history.steps.append(progressed(40))


def restored(history: History) -> None:
    """The source goes back to 20, and the window to another epoch, without a word."""
    history.restored(20)
    history.epochs["e2"] = 1
    history.source.add(Commit(30, {"b": "1.30"}))
    history.steps += [got(30, "b", "1.30", epoch="e2"), progressed(30, epoch="e2")]


def kept_epoch(history: History) -> None:
    """The source goes back to 20, and its changes are given under the epoch of before."""
    history.restored(20)
    history.epochs["e1"] = 1
    history.source.add(Commit(30, {"b": "1.30"}))


def large(history: History) -> None:
    history.measured.append(Measured("memory", 2, 1))


VIOLATIONS: list[tuple[str, str, Callable[[History], None]]] = [
    ("behind a later version", "ordered", swapped(3, 5)),
    ("twice", "unique", replaced(3, got(20, "a"), got(20, "a"))),
    ("of another value", "true", replaced(3, got(20, "a", "0.19"))),
    ("of no version", "true", replaced(3, got(20, "a"), got(21, "a"))),
    ("of another range", "true", replaced(3, got(20, "a"), got(20, "z"))),
    ("a version is missing", "gap-free", replaced(5)),
    ("half of a version is missing", "atomic", replaced(3)),
    ("an event behind its progress", "bookmarkable", swapped(3, 4)),
    ("an event of the snapshot", "bookmarkable", replaced(1, got(10, "a"))),
    ("progress falls", "bookmarkable", replaced(7, progressed(20, 9))),
    ("progress below an event", "bookmarkable", replaced(4, progressed(10, 9))),
    ("a place is named twice", "bookmarkable", replaced(7, progressed(30, 1))),
    ("silence at the end", "told", replaced(7, Told("w", None))),
    ("a watcher that hears nothing", "told", silent),
    ("another epoch", "told", replaced(7, progressed(30, 2, epoch="e2"))),
    ("a truncation", "told", truncated),
    ("a restore", "told", restored),
    ("a restore under the same epoch", "true", kept_epoch),
    ("a wrong snapshot", "table", replaced(0, Began("w", 0, 10, {"a": "0.10"}))),
    ("a table that differs at progress", "table", replaced(5)),
    ("a table that differs at the end", "table", restored),
    ("a size above its bound", "bounded", large),
]


@pytest.mark.parametrize(("name", "promise", "change"), VIOLATIONS, ids=[name for name, _, _ in VIOLATIONS])
def test_a_violation_is_found(name: str, promise: str, change: Callable[[History], None]) -> None:
    history = sound()
    change(history)
    assert promise in judge(history), name


def test_every_validator_has_a_violation() -> None:
    assert {promise for _, promise, _ in VIOLATIONS} == set(VALIDATORS)


def test_a_resync_begins_anew() -> None:
    """A restore, and the same versions once more, with other values."""
    history = sound()
    history.restored(20)
    history.epochs["e2"] = 1
    history.source.add(Commit(30, {"b": "1.30"}))
    history.steps += [
        Told("w", 20),
        Began("w", 1, 20, {"a": "0.20", "b": "0.10", "c": "0.20"}),
        got(30, "b", "1.30", epoch="e2"),
        progressed(30, epoch="e2"),
    ]
    assert judge(history) == {}


def test_a_snapshot_of_before_a_restore_is_one_of_after_it_too() -> None:
    history = sound()
    history.restored(10)
    history.epochs["e2"] = 1
    history.source.add(Commit(15, {"a": "1.15"}))
    history.steps[1:] = [got(15, "a", "1.15", epoch="e2"), progressed(15, epoch="e2")]
    assert judge(history) == {}


def test_a_truncation_of_other_keys_concerns_no_one() -> None:
    history = sound()
    history.source.add(Commit(40, {}, Keys("x", None)))
    history.steps.append(progressed(40))
    assert judge(history) == {}


def test_many_findings_are_counted() -> None:
    history = sound()
    history.steps += [got(20, "a")] * 50
    assert str(judge(history)["unique"][-1]) == "unique: and 30 more"
