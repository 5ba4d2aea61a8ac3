"""The dispatcher gets its time."""

from __future__ import annotations

import asyncio
import time

from gripproxy import pipe
from handler.dispatch.dispatcher import Dispatcher
from handler.dispatch.timers import Timers


class Worker:
    def __init__(self) -> None:
        self.got: list[pipe.Message] = []
        self.news = asyncio.Event()

    def send(self, message: pipe.Message) -> None:
        self.got.append(message)
        self.news.set()


async def test_what_becomes_due_is_done_in_time() -> None:
    loop = asyncio.get_running_loop()
    dispatcher, worker = Dispatcher(), Worker()
    clock = Timers(dispatcher)
    dispatcher.joined(worker, [], loop.time())
    # Subscribed almost a second ago, so that the test need not wait.
    dispatcher.received(worker, (pipe.SUBSCRIBE, b"late", 1), loop.time() - 0.9)
    clock.schedule()
    dispatcher.received(worker, (pipe.SUBSCRIBE, b"ch", 1), loop.time() - 0.95)
    clock.schedule()
    worker.got.clear()
    async with asyncio.timeout(10):
        while len(worker.got) < 2:
            worker.news.clear()
            await worker.news.wait()
    assert worker.got[0] == (pipe.COMMAND, 0, "update", {"channel": b"late"})
    clock.close()


async def test_nothing_happens_after_close() -> None:
    dispatcher, worker = Dispatcher(), Worker()
    clock = Timers(dispatcher)
    dispatcher.joined(worker, [], 0)
    dispatcher.received(worker, (pipe.SUBSCRIBE, b"ch", 1), asyncio.get_running_loop().time() - 0.999)
    clock.schedule()
    worker.got.clear()
    clock.close()
    await asyncio.sleep(0.01)
    assert worker.got == []


async def test_it_notices_a_loop_that_hangs() -> None:
    clock = Timers(Dispatcher())
    await asyncio.sleep(0)
    time.sleep(0.2)  # noqa: ASYNC251 - that is what it is about
    async with asyncio.timeout(10):
        while clock.late() < 0.1:  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(0.01)
    clock.close()
