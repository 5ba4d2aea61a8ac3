"""Saver of backlogs: states of deliveries to the store, many in a commit, and the wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from griphub.api import backlog_saver
from griphub.api.backlog_saver import SAVE_MAX, BacklogSaver, with_message
from griphub.backlog.intervals import Intervals
from griphub.processes.pubsub_commands import PubsubCommands
from griphub.store.errors import StoreBusy, StoreError
from griphub.store.plain_records import PlainProgress


def state(number: int, position: int = 1) -> PlainProgress:
    return (number, 0, position, b"", "{}", 0)


class Writer:
    """Writer whose commits the test ends."""

    def __init__(self) -> None:
        self.commits: list[tuple[Sequence[PlainProgress], asyncio.Future[None]]] = []

    async def save_backlogs(self, progress: Sequence[PlainProgress]) -> None:
        future = asyncio.get_running_loop().create_future()
        self.commits.append((list(progress), future))
        await future

    async def ends(self, error: StoreError | None = None) -> None:
        """End the last commit."""
        future = self.commits[-1][1]
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
        await turns()

    @property
    def positions(self) -> list[list[tuple[int, int]]]:
        return [[(each[0], each[2]) for each in states] for states, _ in self.commits]


class House:
    """Saver and its writer."""

    def __init__(self) -> None:
        self.writer = Writer()
        self.deleted: set[int] = set()
        self.saver = BacklogSaver(cast(PubsubCommands, self.writer), lambda number: number not in self.deleted)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_saver, "SAVE_PAUSE", 0.0)


async def test_states_that_arrive_during_a_commit_form_the_next() -> None:
    house = House()
    house.saver.save([state(1, 1)])
    await turns()
    house.saver.save([state(1, 2), state(2, 1)])
    house.saver.save([state(1, 3)])
    await house.writer.ends()
    await house.writer.ends()
    assert house.writer.positions == [[(1, 1)], [(1, 3), (2, 1)]]


async def test_a_commit_has_a_bounded_number_of_states() -> None:
    house = House()
    house.saver.save([state(number) for number in range(SAVE_MAX + 1)])
    await turns()
    await house.writer.ends()
    assert [len(states) for states, _ in house.writer.commits] == [SAVE_MAX, 1]


async def test_an_acknowledgement_waits_for_the_commit_with_it() -> None:
    house = House()
    house.saver.save([state(1, 1)])
    await turns()
    house.saver.save([state(1, 2)])
    later = asyncio.create_task(house.saver.saved(1))
    await turns()
    await house.writer.ends()
    assert not later.done()
    under_way = asyncio.create_task(house.saver.saved(1))
    await turns()
    assert not under_way.done()
    await house.writer.ends()
    assert later.done()
    assert under_way.done()
    await house.saver.saved(1)


async def test_a_commit_that_fails_is_told_and_repeated_with_the_newest_state() -> None:
    house = House()
    house.saver.save([state(1, 1), state(2, 5)])
    waiting = asyncio.create_task(house.saver.saved(1))
    await turns()
    house.saver.save([state(1, 2)])
    await house.writer.ends(StoreBusy("away"))
    with pytest.raises(StoreBusy):
        await waiting
    again = asyncio.create_task(house.saver.saved(2))
    await turns()
    await house.writer.ends()
    await again
    assert house.writer.positions == [[(1, 1), (2, 5)], [(1, 2), (2, 5)]]


async def test_states_wait_while_a_dead_letter_is_under_way() -> None:
    house = House()
    house.saver.save([state(1, 1)])
    await turns()
    holding = asyncio.create_task(house.saver.hold(1))
    await turns()
    # One of before is being written.
    assert not holding.done()
    await house.writer.ends()
    await holding
    house.saver.save([state(1, 2), state(2, 2)])
    await turns()
    assert house.writer.positions == [[(1, 1)], [(2, 2)]]
    await house.writer.ends()
    house.saver.release(1, (3, 4))
    await turns()
    [number, _, position, acked, _, _] = house.writer.commits[-1][0][0]
    assert (number, position) == (1, 2)
    assert 4 in Intervals.decode(2, acked)
    await house.writer.ends()


async def test_a_dead_letter_that_was_not_published_changes_nothing() -> None:
    house = House()
    await house.saver.hold(1)
    house.saver.save([state(1, 2)])
    house.saver.release(1, None)
    await turns()
    assert house.writer.positions == [[(1, 2)]]
    await house.writer.ends()


async def test_a_deleted_subscription_is_not_written_and_waits_for_it_end() -> None:
    house = House()
    await house.saver.hold(1)
    house.saver.save([state(1)])
    waiting = asyncio.create_task(house.saver.saved(1))
    await turns()
    house.deleted.add(1)
    house.saver.forget(1)
    await waiting
    house.saver.save([state(1)])
    await turns()
    assert house.writer.commits == []


async def test_the_end_writes_the_last_states() -> None:
    house = House()
    await house.saver.hold(1)
    house.saver.save([state(1, 7)])
    closing = asyncio.create_task(house.saver.close())
    await turns()
    await house.writer.ends()
    await closing
    assert house.writer.positions == [[(1, 7)]]


async def test_the_end_tells_those_who_wait_if_the_store_is_away() -> None:
    house = House()
    await house.saver.hold(1)
    house.saver.save([state(1, 7)])
    waiting = asyncio.create_task(house.saver.saved(1))
    await turns()
    closing = asyncio.create_task(house.saver.close())
    await turns()
    await house.writer.ends(StoreBusy("away"))
    await closing
    with pytest.raises(StoreBusy):
        await waiting


def test_a_message_is_added_to_a_state() -> None:
    assert with_message((1, 2, 5, b"", '{"9":5,"11":2}', 3), 5, 9) == (1, 2, 9, b"", '{"11":2}', 3)
