"""Turns of work: they end by time, and no work holds back the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gripproxy.delivery.turns import SLICE_TIME, TURN_TIME, Turns
from tests.support.session_doubles import Clock
from tests.support.session_doubles import Turns as Loop


class Bench:
    """A loop and the turns of work in it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.loop = Loop()
        self.turns = Turns(self.loop, self.clock)
        self.log: list[str] = []

    def work(self, name: str, steps: int, seconds: float) -> Callable[[], bool]:
        """A work of so many steps that take so long."""
        left = [steps]

        def act() -> bool:
            while left[0]:
                left[0] -= 1
                self.clock.now += seconds
                self.log.append(name)
                if self.turns.late():
                    break
            return not left[0]

        return act


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_first_look_begins_the_turn(bench: Bench) -> None:
    bench.clock.now += 10
    assert not bench.turns.late()
    bench.clock.now += TURN_TIME * 0.9
    assert not bench.turns.late()
    bench.clock.now += TURN_TIME * 0.2
    assert bench.turns.late()
    assert bench.loop.run()
    assert not bench.turns.late()


def test_works_are_done_a_slice_each(bench: Bench) -> None:
    bench.turns.add(bench.work("a", 8, SLICE_TIME / 2))
    bench.turns.add(bench.work("b", 2, SLICE_TIME / 2))
    assert bench.loop.run()
    assert bench.log == ["a", "a", "b", "b"]
    bench.loop.run_all()
    assert bench.log == ["a", "a", "b", "b", *"aaaaaa"]
    assert not bench.loop.waiting


def test_a_turn_of_works_ends_by_time(bench: Bench) -> None:
    for number in range(10):
        bench.turns.add(bench.work(str(number), 1, SLICE_TIME))
    begin = bench.clock.now
    assert bench.loop.run()
    assert TURN_TIME <= bench.clock.now - begin < TURN_TIME + SLICE_TIME * 1.5
    bench.loop.run_all()
    assert bench.log == [str(number) for number in range(10)]


def test_one_step_longer_than_a_turn_is_done_all_the_same(bench: Bench) -> None:
    bench.turns.add(bench.work("a", 3, 10 * TURN_TIME))
    turns = 0
    while bench.loop.run():
        turns += 1
    assert (bench.log, turns) == (["a", "a", "a"], 3)


def test_a_work_that_fails_does_not_stop_the_others(bench: Bench) -> None:
    def fails() -> bool:
        raise ValueError("a bug")

    bench.turns.add(fails)
    bench.turns.add(bench.work("a", 1, 0.0))
    with pytest.raises(ValueError, match="a bug"):
        bench.loop.run()
    bench.loop.run_all()
    assert bench.log == ["a"]


def test_new_works_go_before_those_that_have_had_a_slice(bench: Bench) -> None:
    for name in "abcdefgh":
        bench.turns.again(bench.work(name, 100, SLICE_TIME))
    bench.loop.run()
    bench.log.clear()
    bench.turns.add(bench.work("new", 1, 0.0))
    bench.loop.run()
    assert bench.log[0] == "new"
    assert "".join(bench.log[1:]) == "def"


def test_new_works_do_not_stop_the_others(bench: Bench) -> None:
    bench.turns.again(bench.work("old", 20, SLICE_TIME))
    for number in range(20):
        bench.turns.add(bench.work(f"new{number}", 1, TURN_TIME))
        bench.log.clear()
        bench.loop.run()
        assert bench.log == [f"new{number}", "old"]


def test_a_new_work_with_more_to_do_is_one_of_the_others_then(bench: Bench) -> None:
    bench.turns.again(bench.work("old", 10, SLICE_TIME))
    bench.turns.add(bench.work("new", 10, SLICE_TIME))
    while bench.loop.run():
        pass
    assert [bench.log.count(name) for name in ("old", "new")] == [10, 10]
    assert bench.log.index("old") < 3
