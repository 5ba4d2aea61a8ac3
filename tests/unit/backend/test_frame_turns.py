"""Turns of the loop and their budget."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gripproxy.backend.frame_turns import BUDGET, SHARE, FrameTurns


class Loop:
    """Takes a turn when told."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.turns = FrameTurns(self.soon.append)

    def turn(self) -> None:
        soon, self.soon[:] = list(self.soon), []
        for callback in soon:
            callback()


class Member:
    """Has so many shares of work."""

    def __init__(self, loop: Loop, shares: int, log: list[Member]) -> None:
        self.turns = loop.turns
        self.shares = shares
        self.log = log

    def work(self) -> bool:
        self.log.append(self)
        self.shares -= 1
        self.turns.spend(SHARE)
        return self.shares > 0


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_a_turn_has_a_budget_and_the_next_one_has_another(loop: Loop) -> None:
    assert loop.turns.spend(BUDGET - 1)
    assert not loop.turns.spent
    assert not loop.turns.spend(1)
    assert loop.turns.spent
    loop.turn()
    assert not loop.turns.spent
    assert not loop.soon


def test_members_have_a_share_each_in_turn(loop: Loop) -> None:
    log: list[Member] = []
    one, two = Member(loop, 3, log), Member(loop, 2, log)
    loop.turns.wait(one)
    loop.turns.wait(two)
    assert log == []
    loop.turn()
    # Four shares are a budget.
    assert log == [one, two, one, two]
    loop.turn()
    assert log[4:] == [one]
    if loop.soon:
        loop.turn()
    assert len(log) == 5


def test_a_turn_is_over_when_its_budget_is(loop: Loop) -> None:
    log: list[Member] = []
    for _ in range(10):
        loop.turns.wait(Member(loop, 1, log))
    loop.turn()
    assert len(log) == BUDGET // SHARE
    loop.turn()
    assert len(log) == 2 * BUDGET // SHARE
    loop.turn()
    assert len(log) == 10
