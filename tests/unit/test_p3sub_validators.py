"""Validators of subscriptions by callback on small histories: each finds violations of its promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.p3sub_history import (
    Answered,
    Calm,
    Committed,
    Deleted,
    Ended,
    History,
    Made,
    Pushed,
    Record,
    Restored,
    Started,
    Stopped,
    Told,
    Took,
    Trimmed,
)
from tests.support.p3sub_validators import COUNTDOWN, VALIDATORS, judge


def stored(at: float, cursor: str, parent: str) -> Committed:
    return Committed(at, cursor, parent, int(at * 1e6))


def took(at: float, cursor: str) -> Took:
    return Took(at, "r", cursor)


def told(at: float, after: str, until: str | None, kind: str = "gone") -> Told:
    return Told(at, "r", kind, after, until)  # type: ignore[arg-type]


def sent(at: float, cursor: str, *, success: bool = True, number: int = 7, id: str = "s") -> list[Record]:
    return [Pushed(at, id, number, cursor), Answered(at + 0.1, number, cursor, success)]


def of(*records: Record, end: float = 1000.0) -> History:
    return History(list(records), complete={"r"}, end=end)


def sound() -> History:
    """Three events of one reader: the first was polled for, the others were pushed; a push of the last was repeated."""
    history = of(
        Started(0.0, "r", "0"),
        stored(1.0, "a.1", "0"),
        took(2.0, "a.1"),
        Made(3.0, "s", 7, "a.1"),
        *sent(3.1, ""),
        stored(4.0, "a.3", "a.1"),
        *sent(4.1, "a.3"),
        took(4.1, "a.3"),
        stored(5.0, "a.4", "a.3"),
        *sent(5.1, "a.4", success=False),
        took(5.2, "a.4"),
        *sent(6.1, "a.4"),
        Calm(6.0),
    )
    history.close(1000.0, live={7})
    return history


def restored() -> History:
    """The reader was at an event that a restore lost, and has a report."""
    return of(
        Started(0.0, "r", "0"),
        stored(1.0, "a.1", "0"),
        stored(2.0, "a.2", "a.1"),
        took(2.1, "a.1"),
        took(2.2, "a.2"),
        Stopped(3.0),
        Restored(3.0, "a.1", "b"),
        stored(4.0, "b.9", "a.1"),
        told(4.1, "a.2", "0"),
        took(4.2, "b.9"),
    )


def trimmed() -> History:
    """The first two events were not retained when the reader asked for them, and it has a report."""
    return of(
        stored(1.0, "a.1", "0"),
        stored(2.0, "a.2", "a.1"),
        stored(3.0, "a.3", "a.2"),
        Trimmed(4.0, "a.2"),
        Started(5.0, "r", "0"),
        told(5.1, "0", "a.2"),
        took(5.2, "a.3"),
    )


def restarted() -> History:
    """A reader began again with the cursor of the first event, and had the second one before."""
    return of(
        Started(0.0, "r", "0"),
        stored(1.0, "a.1", "0"),
        stored(2.0, "a.2", "a.1"),
        took(2.0, "a.1"),
        took(2.0, "a.2"),
        Started(3.0, "r", "a.1"),
        took(3.1, "a.2"),
    )


def cancelled() -> History:
    """A subscription was deleted, and another one with its id was made, and deleted while it had a request."""
    return of(
        Made(1.0, "s", 7, "0"),
        *sent(1.1, ""),
        Deleted(2.0, "s"),
        Made(3.0, "s", 8, "0"),
        Pushed(3.1, "s", 8, ""),
        Ended(5.0, 8),
        Deleted(5.0, "s"),
    )


def killed() -> History:
    """A publisher was killed after an answer; the event is sent again, as the position was not written."""
    return of(
        stored(1.0, "a.1", "0"),
        Made(2.0, "s", 7, "0"),
        *sent(2.1, ""),
        *sent(3.0, "a.1"),
        Stopped(4.0),
        *sent(5.0, "a.1"),
    )


def neighbours() -> History:
    """Readers whose delays are the same beside others."""
    return History(alone={"r": [1.0, 2.0]}, beside={"r": [1.5, 2.5]})


def healthy() -> History:
    """A reader without any fault."""
    history = sound()
    history.healthy.add("r")
    return history


def crowded() -> History:
    """Two subscriptions of one host that have a request each, as there are two places."""
    history = of(
        Made(1.0, "s", 7, "0", False, "h", "o"),
        Made(1.0, "t", 8, "0", False, "h", "o"),
        Pushed(2.0, "s", 7, ""),
        Pushed(2.0, "t", 8, ""),
        Answered(3.0, 7, "", True),
        Pushed(3.0, "s", 7, ""),
    )
    history.places.update({"all": 2, "host": 2, "owner": 2})
    return history


SOUND = (crowded, sound, restored, trimmed, restarted, cancelled, killed, neighbours, healthy)


@pytest.mark.parametrize("make", SOUND)
def test_a_sound_history_has_no_finding(make: Callable[[], History]) -> None:
    assert judge(make()) == {}


def replace(kind: type[Record], number: int, *records: Record) -> Callable[[History], None]:
    """Replace the record of a kind with a number by others."""

    def change(history: History) -> None:
        places = [place for place, record in enumerate(history.records) if isinstance(record, kind)]
        history.records[places[number] : places[number] + 1] = records

    return change


def append(*records: Record) -> Callable[[History], None]:
    """Append records."""
    return lambda history: history.records.extend(records)


def fewer_beside(history: History) -> None:
    history.beside["r"].pop()


def slower_beside(history: History) -> None:
    history.beside["r"][1] = 3.1


VIOLATIONS: dict[str, tuple[str, Callable[[], History], Callable[[History], None]]] = {
    "an event twice": ("unique", sound, append(took(9.0, "a.3"))),
    "an event twice behind a restart": ("unique", restarted, append(took(9.0, "a.2"))),
    "an event twice behind a restore": ("unique", restored, append(took(9.0, "a.1"))),
    "a forged event": ("genuine", sound, append(took(9.0, "a.99"))),
    "a missing event": ("gap-free", sound, replace(Took, 1)),
    "a missing event behind a restart": ("gap-free", restarted, replace(Started, 1, Started(3.0, "r", "0"))),
    "a loss without report": ("gap-free", restored, replace(Told, 0)),
    "a floor without report": ("gap-free", trimmed, replace(Told, 0)),
    "a report of less than is missing": ("gap-free", trimmed, replace(Told, 0, told(5.1, "0", "a.1"))),
    "events in another order": ("ordered", sound, replace(Took, 1, took(4.1, "a.4"), took(4.2, "a.3"))),
    "times that do not increase": ("ordered", sound, replace(Committed, 2, Committed(5.0, "a.4", "a.3", 4_000_000))),
    "a report of no loss": ("resumable", sound, append(told(9.0, "a.4", "a.4"))),
    "a report before the floor was raised": ("resumable", trimmed, replace(Trimmed, 0, Trimmed(1.0, "0"))),
    "an event never": ("converges", sound, replace(Took, 2)),
    "an event late": ("converges", sound, replace(Took, 2, took(20.0 + COUNTDOWN, "a.4"))),
    "a renewal": ("settled", healthy, append(told(9.0, "a.3", "a.4", "renewed"))),
    "another subscription": ("settled", healthy, append(Made(9.0, "t", 8, "a.4"))),
    "a push behind a deletion": ("obedient", cancelled, append(*sent(9.0, "", number=8))),
    "a challenge behind a deletion": ("obedient", cancelled, replace(Deleted, 0, Deleted(2.0, "s"), *sent(2.1, ""))),
    "two requests": ("single", sound, append(Pushed(9.0, "s", 7, "a.4"), Pushed(9.1, "s", 7, "a.4"))),
    "a push past an event": ("whole", sound, replace(Answered, 1, Answered(4.2, 7, "a.3", False))),
    "a push past an event behind a kill": (
        "whole",
        killed,
        replace(Answered, 1, Stopped(3.1), stored(3.2, "a.2", "a.1"), *sent(3.3, "a.2")),
    ),
    "an acknowledged event again": ("whole", sound, append(*sent(9.0, "a.4"))),
    "an event that was not sent": ("whole", sound, append(stored(9.0, "a.5", "a.4"))),
    "an event without a challenge": ("invited", sound, replace(Answered, 0, Answered(3.2, 7, "", False))),
    "more requests than places": ("bounded", crowded, replace(Answered, 0, Made(3.0, "u", 7, "0", False, "h", "p"))),
    "more requests of one owner than places": ("bounded", crowded, lambda history: history.places.update({"owner": 1})),
    "longer delays": ("isolated", neighbours, slower_beside),
    "events that are missing beside others": ("isolated", neighbours, fewer_beside),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_found(name: str) -> None:
    promise, make, violate = VIOLATIONS[name]
    history = make()
    violate(history)
    assert promise in judge(history)


def test_each_promise_has_a_violation() -> None:
    assert {promise for promise, _, _ in VIOLATIONS.values()} == set(VALIDATORS)


def test_a_finding_names_the_promise_and_the_reader() -> None:
    history = sound()
    history.records.append(took(9.0, "a.4"))
    assert list(map(str, judge(history)["unique"])) == ["unique: r took event a.4 twice, again at 9.000"]


def test_very_many_findings_are_counted() -> None:
    history = sound()
    history.records.extend([took(9.0, "a.4")] * 50)
    assert str(judge(history)["unique"][-1]) == "unique: and 30 more"
