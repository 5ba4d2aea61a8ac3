"""Turns at addresses: bounded, and shared by owners."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from griphub.callbacks.address_turns import AddressTurns


def test_requests_beyond_the_bound_wait_and_owners_have_turns() -> None:
    turns: AddressTurns[str] = AddressTurns(1, 1)
    assert turns.add("first", "a", "192.0.2.1")
    assert turns.add("elsewhere", "a", "192.0.2.2")
    waiting = ["a1", "a2", "a3", "b1", "c1"]
    for name in waiting:
        assert not turns.add(name, name[0], "192.0.2.1")
    assert len(turns) == 5
    got: list[str | None] = ["a"]
    while (last := got[-1]) is not None:
        got.append(turns.finished(last[0], "192.0.2.1"))
    assert got == ["a", "a1", "b1", "c1", "a2", "a3", None]
    assert len(turns) == 0
    # All were given back.
    assert turns.add("again", "a", "192.0.2.1")


def test_a_request_that_waits_no_more_gets_no_turn() -> None:
    turns: AddressTurns[str] = AddressTurns(1, 1)
    turns.add("first", "a", "192.0.2.1")
    turns.add("second", "a", "192.0.2.1")
    turns.add("third", "b", "192.0.2.1")
    turns.remove("second", "a", "192.0.2.1")
    assert turns.finished("a", "192.0.2.1") == "third"
    assert turns.finished("b", "192.0.2.1") is None
    with pytest.raises(KeyError):
        turns.finished("b", "192.0.2.1")


def test_an_owner_has_a_share_of_an_address() -> None:
    turns: AddressTurns[str] = AddressTurns(4, 3)
    assert [turns.add(f"a{number}", "a", "192.0.2.1") for number in range(5)] == [True] * 3 + [False] * 2
    # One that all its requests hang at leaves the others a turn.
    assert turns.add("b", "b", "192.0.2.1")
    assert not turns.add("c", "c", "192.0.2.1")
    assert turns.finished("b", "192.0.2.1") == "c"
    assert turns.finished("c", "192.0.2.1") is None
    assert len(turns) == 2
    assert turns.finished("a", "192.0.2.1") == "a3"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)), max_size=60))
def test_turns_are_never_lost_nor_more_than_the_bound(steps: list[tuple[int, int, int]]) -> None:
    turns: AddressTurns[int] = AddressTurns(3, 2)
    running: dict[int, tuple[str, str]] = {}
    waiting: dict[int, tuple[str, str]] = {}

    def end(request: int) -> None:
        following = turns.finished(*running.pop(request))
        if following is not None:
            running[following] = waiting.pop(following)

    for number, (kind, owner, address) in enumerate(steps):
        where = (str(owner), str(address))
        if kind == 0:
            (running if turns.add(number, *where) else waiting)[number] = where
        elif kind == 1 and running:
            end(next(iter(running)))
        elif kind == 2 and waiting:
            request, where = waiting.popitem()
            turns.remove(request, *where)
        for name, place in {*running.values(), *waiting.values()}:
            at_place = [one for one in running.values() if one[1] == place]
            assert len(at_place) <= 3
            assert at_place.count((name, place)) <= 2
            assert (name, place) not in waiting.values() or len(at_place) == 3 or at_place.count((name, place)) == 2
        assert len(turns) == len(waiting)
    while running:
        end(next(iter(running)))
    assert not waiting
