"""Collector: which objects it visits after the start of a process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from griphub.processes.collector import KEEPING, PASSING, Thresholds, settle_collector


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.parametrize("thresholds", [KEEPING, PASSING])
def test_objects_of_the_start_are_visited_no_more(thresholds: Thresholds) -> None:
    kept = [[number] for number in range(1000)]
    settle_collector(thresholds)
    assert gc.get_threshold() == thresholds
    assert gc.get_freeze_count() >= 1000
    later: list[object] = []
    later.append(later)
    visited = {id(each) for each in gc.get_objects()}
    assert id(later) in visited
    assert not visited.intersection(map(id, kept))


def test_garbage_of_the_start_is_not_kept() -> None:
    class Node:
        found = 0

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            Node.found += 1

    Node()
    settle_collector(KEEPING)
    assert Node.found == 1


def test_many_objects_that_are_kept_are_not_visited_all_together() -> None:
    settle_collector(KEEPING)
    full: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append(len(gc.get_objects()))

    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(300_000)]
    finally:
        gc.callbacks.remove(note)
    assert full == []
    assert len(kept) == 300_000
