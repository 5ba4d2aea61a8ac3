"""Windows of all topics: bounds by owner and in total."""

from __future__ import annotations

from itertools import count

import pytest

from griphub.windows.bounds import WindowBounds, WindowLimit
from griphub.windows.ingest_lines import Progress
from griphub.windows.span import ALL
from griphub.windows.window_table import WindowTable
from tests.support.soft_world import event, settle


def made(**bounds: int) -> WindowTable:
    numbers = count(1)
    return WindowTable(lambda: f"e{next(numbers)}", WindowBounds(**bounds))


def test_a_window_is_made_once_and_forgotten_with_its_topic() -> None:
    table = made()
    window = table.open(7, "o")
    assert table.open(7, "o") is table.get(7) is window
    table.close(7)
    assert table.get(7) is None
    assert table.open(7, "o").epoch == "e2"
    assert table.make_room() == {}


def test_windows_are_bounded_by_owner_and_in_total() -> None:
    table = made(windows_each=1, windows_total=2)
    table.open(1, "a")
    with pytest.raises(WindowLimit, match="1 soft topics per owner"):
        table.open(2, "a")
    table.open(2, "b")
    with pytest.raises(WindowLimit, match="2 soft topics in total"):
        table.open(3, "c")
    assert len(table) == 2


def test_the_largest_window_of_the_largest_owner_makes_room() -> None:
    table = made(bytes_each=40_000, bytes_total=50_000)
    assert table.make_room() == {}
    for number, owner, events in ((1, "a", 20), (2, "a", 40), (3, "b", 45)):
        window = table.open(number, owner)
        settle(window, Progress(ALL, 1), *[event("a", v) for v in range(2, events + 2)], Progress(ALL, 99))
        window.follow(ALL)
    before = table.size
    assert table.make_room() == {2: []}
    assert table.size < before
    assert len(table.open(3, "b")) == 45
    while table.size > 50_000:
        table.make_room()
    assert min(len(table.open(number, "")) for number in (1, 2, 3)) > 5
