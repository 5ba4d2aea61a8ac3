"""Turns of the loop: one at a time, owners one after the other."""

from __future__ import annotations

import asyncio

import pytest

from griphub.api.problem import Problem
from griphub.api.turns import Turns


def test_owners_have_their_turns_one_after_the_other() -> None:
    async def case() -> None:
        turns, order = Turns("pages", 10, 10), list[str]()

        async def work(owner: str, name: str) -> None:
            await turns.next(owner)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            for owner, name in (("greedy", "g1"), ("greedy", "g2"), ("greedy", "g3"), ("other", "o1")):
                group.create_task(work(owner, name))
        assert order == ["g1", "o1", "g2", "g3"]

    asyncio.run(case())


def test_each_turn_of_the_loop_has_one() -> None:
    async def case() -> None:
        turns, seen, rounds = Turns("pages", 10, 10), list[int](), 0

        async def work() -> None:
            await turns.next("owner")
            seen.append(rounds)

        tasks = [asyncio.create_task(work()) for _ in range(4)]
        while not all(task.done() for task in tasks):
            rounds += 1
            await asyncio.sleep(0)
        assert len(set(seen)) == 4

    asyncio.run(case())


def test_one_that_has_left_takes_no_turn() -> None:
    async def case() -> None:
        turns = Turns("pages", 10, 10)
        gone = asyncio.create_task(turns.next("a"))
        await asyncio.sleep(0)
        gone.cancel()
        await turns.next("a")
        assert len(turns) == 0

    asyncio.run(case())


def test_too_many_are_refused() -> None:
    async def case() -> None:
        turns = Turns("pages", 3, 2)
        waiting = [asyncio.create_task(turns.next(owner)) for owner in ("a", "a", "b")]
        await asyncio.sleep(0)
        for owner, status in (("a", 429), ("c", 503)):
            with pytest.raises(Problem) as caught:
                await turns.next(owner)
            assert caught.value.status == status
            assert ("Retry-After", "1") in caught.value.headers
        await asyncio.gather(*waiting)

    asyncio.run(case())
