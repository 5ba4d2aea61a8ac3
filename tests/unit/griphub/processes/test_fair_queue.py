"""Turns: one for each owner, in the order of their first items."""

from __future__ import annotations

from griphub.processes.fair_queue import FairQueue


def taken(queue: FairQueue[str]) -> list[str]:
    """Take all that may run, one after the other."""
    items = []
    while (next_one := queue.take()) is not None:
        owner, item = next_one
        items.append(item)
        queue.finished(owner)
    return items


def filled(*items: str, running_max: int = 9) -> FairQueue[str]:
    queue: FairQueue[str] = FairQueue(100, 100, running_max)
    for item in items:
        queue.add(item[0], item)
    return queue


def test_each_owner_has_its_turn() -> None:
    queue = filled("a1", "a2", "a3", "a4", "b1", "c1", "c2")
    assert (len(queue), queue.waiting("a"), queue.waiting("z")) == (7, 4, 0)
    assert taken(queue) == ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]
    assert (len(queue), queue.waiting("a")) == (0, 0)


def test_an_owner_that_returns_is_last() -> None:
    queue = filled("a1", "b1", "b2")
    assert queue.take() == ("a", "a1")
    queue.add("a", "a2")
    assert taken(queue) == ["b1", "a2", "b2"]


def test_no_owner_has_more_running_than_its_share() -> None:
    queue = filled("a1", "a2", "a3", "b1", running_max=1)
    assert queue.take() == ("a", "a1")
    assert queue.take() == ("b", "b1")
    assert queue.take() is None
    assert len(queue) == 2
    queue.finished("b")
    assert queue.take() is None
    queue.finished("a")
    assert queue.take() == ("a", "a2")


def test_a_repetition_is_before_the_others() -> None:
    queue = filled("a1", "a2")
    queue.add("a", "a0", first=True)
    assert taken(queue) == ["a0", "a1", "a2"]


def test_items_can_be_removed() -> None:
    queue = filled("a1", "a2", "b1")
    assert queue.remove("a", "a1")
    assert not queue.remove("a", "a1")
    assert queue.remove("b", "b1")
    assert not queue.remove("c", "c1")
    assert (len(queue), taken(queue)) == (1, ["a2"])


def test_what_is_not_ready_waits_and_keeps_its_place() -> None:
    queue = filled("a-", "a1", "b-", "c1", "c2")
    asked: list[str] = []

    def ready(owner: str, item: str) -> bool:
        asked.append(owner)
        return item != f"{owner}-"

    assert queue.take(ready) == ("c", "c1")
    assert asked == ["a", "b", "c"]
    assert queue.take(ready) == ("c", "c2")
    assert queue.take(ready) is None
    assert taken(queue) == ["a-", "b-", "a1"]
