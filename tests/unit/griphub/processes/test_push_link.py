"""Link to the sender about subscriptions of the push API: orders out, answers to those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from griphub.processes.push_commands import (
    ACKNOWLEDGE,
    ACKNOWLEDGED,
    BACKLOGS,
    BURIED,
    BURY,
    IDENTITY,
    MODIFIED,
    MODIFY,
    PULL,
    PULLED,
    PUSH_ADD,
    PUSH_CHANGE,
    PUSH_FIGURES,
    PUSH_MOVE,
    PUSH_READY,
    PUSH_REMOVE,
    PUSH_REMOVED,
    TOPIC_GONE,
    PlainFigures,
    PlainPushed,
)
from griphub.processes.push_link import PushLink
from griphub.store.errors import StoreBusy
from griphub.store.plain_records import PlainProgress, Row

KEYS = ("https://hub.example", "k1", "pem", {"a": "whsec_x"})


def plain(number: int) -> PlainPushed:
    return (number, 1, "o", {}, 0, b"", {}, 0)


class Listener:
    """Subscriptions, and all that they were told."""

    def __init__(self, *numbers: int) -> None:
        self.all = list(numbers)
        self.told: list[tuple[Any, ...]] = []

    def numbers(self) -> Iterable[int]:
        return self.all

    def plain(self, number: int) -> PlainPushed | None:
        return plain(number) if number in self.all else None

    def ready(self, number: int) -> None:
        self.told.append(("ready", number))

    def bury(self, number: int, topic: str, row: Row, attempts: int, progress: PlainProgress) -> None:
        self.told.append(("bury", number, topic, row, attempts, progress))

    def reported(self, progress: Sequence[PlainProgress]) -> None:
        self.told.append(("reported", progress))

    def measured(self, figures: Sequence[PlainFigures]) -> None:
        self.told.append(("measured", figures))

    def returned(self) -> None:
        self.told.append(("returned",))


class House:
    """Link of a hub with some subscriptions."""

    def __init__(self, *numbers: int) -> None:
        self.listener = Listener(*numbers)
        self.link = PushLink(self.listener, lambda: 9, lambda: KEYS)
        self.orders: list[tuple[Any, ...]] = []
        self.succession: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        self.link.began(self.orders.append)

    def taken(self) -> list[tuple[Any, ...]]:
        orders, self.orders[:] = [*self.orders], []
        return orders


async def test_a_process_that_begins_is_told_the_keys_and_pulls_are_repeated() -> None:
    house = House(1, 2)
    assert not house.link.working
    house.begin()
    assert house.link.working
    assert house.taken() == [(IDENTITY, *KEYS)]
    assert house.listener.told == [("returned",)]
    assert list(house.link.numbers()) == [1, 2]
    assert house.link.additions((1, 2, 3)) == (PUSH_ADD, [plain(1), plain(2)], 9)
    assert house.link.additions((3,)) is None


async def test_each_process_has_a_life_of_its_own() -> None:
    house = House()
    lives = set()
    for _ in range(3):
        house.begin()
        lives.add(house.link.life)
        house.link.ended()
    assert len(lives) == 3


async def test_calls_wait_for_their_answers() -> None:
    house = House(1)
    house.begin()
    house.taken()
    calls = [
        asyncio.create_task(house.link.pull(1, 10)),
        asyncio.create_task(house.link.acknowledge(1, [(5, 1)])),
        asyncio.create_task(house.link.modify(1, [(5, 1)], 3.0)),
    ]
    await asyncio.sleep(0)
    assert house.taken() == [(PULL, 1, 1, 10), (ACKNOWLEDGE, 2, 1, [(5, 1)]), (MODIFY, 3, 1, [(5, 1)], 3.0)]
    # Answers in another order than the calls.
    assert house.link.received(MODIFIED, (3,))
    assert house.link.received(ACKNOWLEDGED, (2, (1, 0, 5, b"", "{}", 0)))
    assert house.link.received(PULLED, (1, [(5, 1, 1, ())]))
    assert await asyncio.gather(*calls) == [[(5, 1, 1, ())], (1, 0, 5, b"", "{}", 0), None]


async def test_calls_are_refused_while_no_process_takes_orders_and_fail_at_its_end() -> None:
    house = House(1)
    with pytest.raises(StoreBusy):
        await house.link.pull(1, 1)
    house.begin()
    call = asyncio.create_task(house.link.pull(1, 1))
    await asyncio.sleep(0)
    house.link.ended()
    with pytest.raises(StoreBusy):
        await call
    # An answer that comes too late is for none.
    assert house.link.received(PULLED, (1, []))


async def test_a_call_whose_client_has_left_takes_no_memory() -> None:
    house = House(1)
    house.begin()
    call = asyncio.create_task(house.link.pull(1, 1))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    assert house.link.received(PULLED, (1, []))
    house.link.ended()


async def test_what_the_process_says_reaches_the_subscriptions() -> None:
    house = House(1)
    house.begin()
    house.listener.told.clear()
    for kind, arguments in (
        (PUSH_READY, (1,)),
        (BURY, (1, "p/dead", (5,), 5, (1,))),
        (BACKLOGS, ([(1,)],)),
        (PUSH_FIGURES, ([(1,)],)),
    ):
        assert house.link.received(kind, arguments)
    assert house.listener.told == [
        ("ready", 1),
        ("bury", 1, "p/dead", (5,), 5, (1,)),
        ("reported", [(1,)]),
        ("measured", [(1,)]),
    ]
    assert not house.link.received(0, ())


async def test_orders_go_to_the_process_and_to_none_while_there_is_none() -> None:
    house = House(1)

    def give() -> None:
        house.link.add(1)
        house.link.add(2)
        house.link.change(1, {"ackDeadlineSeconds": 10})
        house.link.move(1, 2, 7, b"x")
        house.link.topic_gone(4)
        house.link.buried(1, 5, published=True)

    give()
    house.begin()
    house.taken()
    give()
    assert house.taken() == [
        (PUSH_ADD, [plain(1)], 9),
        (PUSH_CHANGE, 1, {"ackDeadlineSeconds": 10}),
        (PUSH_MOVE, 1, 2, 7, b"x"),
        (TOPIC_GONE, 4),
        (BURIED, 1, 5, True),
    ]


async def test_a_removal_is_done_when_the_process_says_so() -> None:
    house = House()
    house.begin()
    house.taken()
    ended = house.link.remove(1, house.succession)
    assert house.link.remove(1, house.succession) is ended
    assert house.taken() == [(PUSH_REMOVE, [1])]
    assert not ended.done()
    house.link.received(PUSH_REMOVED, ([1],))
    assert ended.done()


async def test_a_removal_is_done_when_the_process_has_ended() -> None:
    house = House()
    house.begin()
    ended = house.link.remove(1, house.succession)
    house.link.ended()
    assert ended.done()


async def test_a_removal_waits_for_the_process_of_an_earlier_hub() -> None:
    house = House()
    ended = house.link.remove(1, house.succession)
    assert not ended.done()
    house.link.released()
    assert ended.done()
    house.succession.set_result(None)
    assert house.link.remove(2, house.succession).done()
