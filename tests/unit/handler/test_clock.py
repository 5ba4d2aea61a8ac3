"""The exchange gets its time."""

from __future__ import annotations

import asyncio
import time

from gripproxy import pipe
from handler.clock import Clock
from handler.exchange import Exchange


class Worker:
    def __init__(self) -> None:
        self.got: list[pipe.Message] = []
        self.news = asyncio.Event()

    def send(self, message: pipe.Message) -> None:
        self.got.append(message)
        self.news.set()


async def test_what_becomes_due_is_done_in_time() -> None:
    loop = asyncio.get_running_loop()
    exchange, worker = Exchange(), Worker()
    clock = Clock(exchange)
    exchange.joined(worker, [], loop.time())
    # Subscribed almost a second ago, so that the test need not wait.
    exchange.told(worker, (pipe.SUBSCRIBE, b"late", 1), loop.time() - 0.9)
    clock.look()
    exchange.told(worker, (pipe.SUBSCRIBE, b"ch", 1), loop.time() - 0.95)
    clock.look()
    worker.got.clear()
    async with asyncio.timeout(10):
        while len(worker.got) < 2:
            worker.news.clear()
            await worker.news.wait()
    assert worker.got[0] == (pipe.COMMAND, 0, "update", {"channel": b"late"})
    clock.close()


async def test_nothing_happens_after_close() -> None:
    exchange, worker = Exchange(), Worker()
    clock = Clock(exchange)
    exchange.joined(worker, [], 0)
    exchange.told(worker, (pipe.SUBSCRIBE, b"ch", 1), asyncio.get_running_loop().time() - 0.999)
    clock.look()
    worker.got.clear()
    clock.close()
    await asyncio.sleep(0.01)
    assert worker.got == []


async def test_it_notices_a_loop_that_hangs() -> None:
    clock = Clock(Exchange())
    await asyncio.sleep(0)
    time.sleep(0.2)  # noqa: ASYNC251 - that is what it is about
    async with asyncio.timeout(10):
        while clock.late() < 0.1:  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(0.01)
    clock.close()
