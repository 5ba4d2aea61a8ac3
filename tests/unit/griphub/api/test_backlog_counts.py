"""Counts of unread events: which are made, in which parts, and where they go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from griphub.api import backlog_counts
from griphub.api.backlog_counts import BacklogCounts
from griphub.api.pubsub_figures import PubsubFigures
from griphub.processes.readers import ReaderPool
from griphub.store.pubsub_subscription import PubsubSubscription
from griphub.topics.pubsub_table import PubsubTable


class House:
    """Subscriptions with a store that has 1,000 events behind each place, and counts 2,500 of them by a call."""

    def __init__(self) -> None:
        self.table = PubsubTable()
        self.figures = PubsubFigures()
        self.calls: list[Sequence[tuple[int, int]]] = []
        self.counts = BacklogCounts(self.table, self.figures, cast(ReaderPool, self), lambda: 5000)

    async def counts_after(self, places: Sequence[tuple[int, int]], most: int) -> list[int | None]:
        self.calls.append(places)
        found: list[int | None] = []
        left = 2500
        for _ in places:
            found.append(min(1000, left) if left else None)
            left -= min(1000, left)
        return found

    def add(self, number: int, read: int, position: int = 0, topic: int = 7) -> None:
        settings: dict[str, Any] = {"pushConfig": {}}
        self.table.set(PubsubSubscription(number, "p", f"s{number}", topic, "o", settings, position))
        self.figures.take([(number, 0, 0, 0, 0, 0.0, {}, 0.0, 0, read, "")], lambda number: True)

    def unread(self, number: int) -> int:
        figures = self.figures.of(number)
        assert figures is not None
        return figures.unread


async def test_each_is_counted_from_its_place() -> None:
    house = House()
    house.add(1, read=10)
    house.add(2, read=10, position=20)
    await house.counts.round()
    assert house.calls == [[(7, 10), (7, 20)]]
    assert [house.unread(1), house.unread(2)] == [1000, 1000]


async def test_those_that_have_read_all_need_no_count() -> None:
    house = House()
    house.add(1, read=5000)
    house.add(2, read=0, position=2**62)
    house.add(3, read=0, topic=0)
    house.figures.counted([1, 2, 3], [9, 9, 9])
    await house.counts.round()
    assert (house.calls, [house.unread(number) for number in (1, 2, 3)]) == ([], [0, 0, 0])


async def test_what_one_call_does_not_count_the_next_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_counts, "SHARE", 0.0)
    house = House()
    for number in range(1, 8):
        house.add(number, read=number)
    await house.counts.round()
    assert [[read for _, read in call] for call in house.calls] == [[1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7], [7]]
    assert [house.unread(number) for number in range(1, 8)] == [1000, 1000, 500, 1000, 1000, 500, 1000]


async def test_a_subscription_that_ended_is_left_out() -> None:
    house = House()
    house.add(1, read=10)
    house.table.remove(1)
    await house.counts.round()
    assert house.calls == []
