"""Counts of unread events: which are made, in which slices, and where they go."""

from __future__ import annotations

from typing import Any, cast

import pytest

from griphub.api import backlog_counts
from griphub.api.backlog_counts import COUNTED_MAX, SLICE, BacklogCounts
from griphub.api.pubsub_figures import PubsubFigures
from griphub.processes.readers import ReaderPool
from griphub.store.pubsub_subscription import PubsubSubscription
from griphub.topics.pubsub_table import PubsubTable


class House:
    """Subscriptions with a store whose every id up to the newest is an event of every topic."""

    def __init__(self, newest: int = 5000) -> None:
        self.table = PubsubTable()
        self.figures = PubsubFigures()
        self.newest = newest
        self.calls: list[tuple[int, int]] = []
        self.counts = BacklogCounts(self.table, self.figures, cast(ReaderPool, self), lambda: newest)

    async def count_after(self, number: int, after: int, most: int) -> tuple[int, int]:
        self.calls.append((number, after))
        count = min(most, self.newest - after)
        return count, after + count

    def add(self, number: int, read: int, position: int = 0, topic: int = 7) -> None:
        settings: dict[str, Any] = {"pushConfig": {}}
        self.table.set(PubsubSubscription(number, "p", f"s{number}", topic, "o", settings, position))
        self.figures.take([(number, 0, 0, 0, 0, 0.0, {}, 0.0, 0, read, "")], lambda number: True)
        self._figures(number).unread = 9

    def _figures(self, number: int) -> Any:
        return self.figures.of(number)

    def unread(self, number: int) -> int:
        return int(self._figures(number).unread)


async def test_each_is_counted_from_its_place() -> None:
    house = House()
    house.add(1, read=10)
    house.add(2, read=10, position=20)
    await house.counts.round()
    assert house.calls == [(7, 10), (7, 20)]
    assert [house.unread(1), house.unread(2)] == [4990, 4980]


async def test_those_that_have_read_all_need_no_count() -> None:
    house = House()
    house.add(1, read=5000)
    house.add(2, read=0, position=2**62)
    house.add(3, read=0, topic=0)
    await house.counts.round()
    assert (house.calls, [house.unread(number) for number in (1, 2, 3)]) == ([], [0, 0, 0])


async def test_a_long_backlog_is_counted_in_slices_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_counts, "SHARE", 0.0)
    house = House(newest=10 * COUNTED_MAX)
    house.add(1, read=0)
    house.add(2, read=house.newest - SLICE - 5)
    await house.counts.round()
    assert [after for _, after in house.calls[: COUNTED_MAX // SLICE]] == [*range(0, COUNTED_MAX, SLICE)]
    assert len(house.calls) == COUNTED_MAX // SLICE + 2
    assert [house.unread(1), house.unread(2)] == [COUNTED_MAX, SLICE + 5]


async def test_a_subscription_that_ended_is_left_out() -> None:
    house = House()
    house.add(1, read=10)
    house.table.remove(1)
    await house.counts.round()
    assert house.calls == []
