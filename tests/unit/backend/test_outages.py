"""Failures of backends: which lines they give, and when."""

from __future__ import annotations

import pytest

from gripproxy.backend.outages import FORGOTTEN_AFTER, LINES_EVERY, TARGETS_MAX, WELL_AFTER, WHY_MAX, Outage, Outages
from gripproxy.grip.stats_format import FAILURES
from gripproxy.process.log_event import text_of


class Pool:
    """What requests of one target go through."""

    def __init__(self) -> None:
        self.outage: Outage | None = None

    def answers(self) -> None:
        if self.outage is not None:
            self.outage.answered = True


class Place:
    """One process, swept every second."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lines: list[str] = []
        self.outages = Outages(lambda: self.now, self.warn, lambda event, **fields: None)
        self.pool = Pool()

    def warn(self, event: str, **fields: object) -> None:
        self.lines.append(text_of(event, fields))

    def fails(self, kind: str = "refused", got: str = "502", target: str = "one:80", why: str = "no") -> None:
        self.outages.failed(self.pool, target, kind, why, got)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1)
            self.outages.sweep()

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


@pytest.fixture
def place() -> Place:
    return Place()


def test_the_first_of_a_kind_is_a_line_at_once(place: Place) -> None:
    place.fails()
    place.fails("late", "504", why="no response head in time")
    place.fails(target="two:80")
    assert place.take() == [
        "backend failed: target=one:80 kind=refused client_got=502 why=no",
        'backend failed: target=one:80 kind=late client_got=504 why="no response head in time"',
        "backend failed: target=two:80 kind=refused client_got=502 why=no",
    ]


def test_further_ones_are_counted_with_what_clients_got(place: Place) -> None:
    for _ in range(1001):
        place.fails()
    place.fails(got="next-target", why="end")
    assert len(place.take()) == 1
    place.pass_time(LINES_EVERY - 1)
    assert place.take() == []
    place.pass_time(2)
    assert place.take() == [
        "backend failed: target=one:80 kind=refused count=1001 total=1002 clients_got=502:1000,next-target:1 why=end"
    ]
    place.pass_time(100)
    assert place.take() == []


def test_that_go_on_are_a_line_every_so_often(place: Place) -> None:
    for _ in range(100):
        place.fails()
        place.pass_time(1)
    lines = place.take()
    assert len(lines) == 1 + 100 // LINES_EVERY
    assert [line.split("total=")[1].split()[0] for line in lines[1:]] == [str(n) for n in range(10, 101, 10)], lines


def test_it_is_well_again_with_the_first_answer(place: Place) -> None:
    place.fails()
    place.pass_time(5)
    place.fails("reset")
    place.take()
    place.pass_time(3)
    assert place.take() == []
    place.pool.answers()
    place.pass_time(1)
    assert place.take() == ["backend well again: target=one:80 seconds=5 failures=refused:1,reset:1"]
    place.pass_time(2 * LINES_EVERY)
    assert place.take() == []
    assert len(place.outages) == 0


def test_an_answer_between_failures_is_not(place: Place) -> None:
    place.fails()
    place.pool.answers()
    place.fails()
    place.pass_time(WELL_AFTER + 1)
    assert len(place.take()) == 1


def test_one_that_fails_now_and_then_does_not_fill_the_log(place: Place) -> None:
    for _ in range(100):
        place.fails()
        place.pool.answers()
        place.pass_time(3)
    # One that it failed, and one that it is well again, in each period.
    assert 2 < len(place.take()) <= 2 * (300 / LINES_EVERY + 1)


def test_a_new_outage_is_told_anew(place: Place) -> None:
    place.fails()
    place.pool.answers()
    place.pass_time(2 * LINES_EVERY)
    place.take()
    place.fails()
    assert place.take() == ["backend failed: target=one:80 kind=refused client_got=502 why=no"]
    place.pool.answers()
    place.pass_time(2)
    assert place.take() == ["backend well again: target=one:80 seconds=0 failures=refused:1"]


def test_one_that_is_not_asked_any_more_is_forgotten(place: Place) -> None:
    place.fails()
    place.pass_time(FORGOTTEN_AFTER - 1)
    assert len(place.outages) == 1
    place.pass_time(1)
    assert len(place.outages) == 0


def test_only_so_many_targets_are_told_apart(place: Place) -> None:
    for number in range(TARGETS_MAX + 50):
        place.fails(target=f"host{number}:80")
    lines = place.take()
    assert len(lines) == TARGETS_MAX + 1
    assert lines[-1] == f'backend failed: target=others kind=refused client_got=502 why="host{TARGETS_MAX}:80: no"'
    assert len(place.outages) == TARGETS_MAX + 1


def test_what_the_backend_said_is_cut(place: Place) -> None:
    place.fails("bad-answer", why="x" * 100_000)
    assert len(place.take()[0]) < WHY_MAX + 100


def test_all_are_counted_by_kind(place: Place) -> None:
    for number, kind in enumerate(FAILURES):
        for _ in range(number + 1):
            place.fails(kind)
    assert place.outages.counts == {kind: number + 1 for number, kind in enumerate(FAILURES)}
