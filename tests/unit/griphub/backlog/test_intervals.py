"""Sets of ids as intervals, compared with sets."""

from __future__ import annotations

import itertools
import random

import pytest

from griphub.backlog.intervals import Intervals


def of(position: int, *intervals: tuple[int, int]) -> Intervals:
    found = Intervals(position)
    for after, last in intervals:
        found.add(after, last)
    return found


@pytest.mark.parametrize(
    ("intervals", "expected", "position"),
    [
        ([(2, 3)], [(2, 3)], 1),
        ([(1, 3)], [], 3),
        ([(0, 3)], [], 3),
        ([(0, 1)], [], 1),
        ([(4, 5), (2, 3)], [(2, 3), (4, 5)], 1),
        ([(4, 5), (2, 4)], [(2, 5)], 1),
        ([(2, 4), (4, 5)], [(2, 5)], 1),
        ([(2, 9), (4, 5)], [(2, 9)], 1),
        ([(4, 5), (7, 8), (2, 9)], [(2, 9)], 1),
        ([(4, 5), (7, 8), (1, 4)], [(7, 8)], 5),
        ([(4, 5), (7, 8), (1, 20)], [], 20),
        ([(5, 5)], [], 1),
    ],
)
def test_intervals_that_touch_are_one(
    intervals: list[tuple[int, int]], expected: list[tuple[int, int]], position: int
) -> None:
    found = of(1, *intervals)
    assert [*found] == expected
    assert found.position == position


def test_chance_finds_no_difference_to_a_set() -> None:
    chance = random.Random(5)
    for _ in range(300):
        found, ids = Intervals(0), set[int]()
        for _ in range(40):
            after = chance.randrange(60)
            last = after + chance.randrange(6)
            found.add(after, last)
            ids |= set(range(after + 1, last + 1))
            assert [id in found for id in range(70)] == [True] + [
                id in ids or id <= found.position for id in range(1, 70)
            ]
        assert all(id in ids for id in range(1, found.position + 1))
        assert found.position + 1 not in ids
        pairs = [*found]
        assert all(before[1] < later[0] for before, later in itertools.pairwise(pairs))
        assert Intervals.decode(found.position, found.encode()) == found


def test_neighbours_take_no_space() -> None:
    found = Intervals(0)
    for id in range(1000, 100_000, 10):
        found.add(id, id + 10)
    assert len(found) == 1
    assert len(found.encode()) <= 10


def test_a_copy_is_one_of_its_own() -> None:
    found = of(0, (4, 5))
    copy = found.copy()
    found.add(7, 8)
    assert [*copy] == [(4, 5)]


@pytest.mark.parametrize("data", [b"\x80", b"\x01", b"\x01\x00", b"\x00\x01", b"\xff" * 11, b"\x01\x01\x01"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="the intervals"):
        Intervals.decode(0, data)
