"""Connects that wait for a descriptor: who goes on, in which order, and which failures mean a shortage."""

from __future__ import annotations

import asyncio
import errno
import heapq
import itertools
import socket
from collections.abc import Callable

import pytest

from gripproxy.backend.descriptor_shortage import AT_ONCE, PAUSE, DescriptorShortage
from gripproxy.process.log import WARNING
from tests.support.log_lines import LogLines


class House:
    """A process with 100 descriptors, of which 6 are its own; time passes when told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.count = itertools.count()
        self.used = 50
        self.shortage = DescriptorShortage(self.later, lambda: self.now, 100, lambda: self.used)

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self.timers, (self.now + seconds, next(self.count), callback))

    async def pass_time(self, seconds: float = PAUSE) -> None:
        end = self.now + seconds + 1e-6
        while self.timers and self.timers[0][0] <= end:
            self.now, _, callback = heapq.heappop(self.timers)
            callback()
        self.now = end
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture(autouse=True)
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return LogLines(monkeypatch, WARNING).lines


def test_a_few_are_left_for_the_process(house: House) -> None:
    assert not house.shortage.short
    house.used = 94
    assert house.shortage.short
    house.shortage.watch(False)
    assert not house.shortage.short


@pytest.mark.parametrize(
    ("error", "used", "means"),
    [
        (OSError(errno.EMFILE, "too many"), 50, True),
        (OSError(errno.ENFILE, "too many"), 50, True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), 100, False),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), 50, False),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), 100, True),
        (OSError("Multiple exceptions: refused, too many"), 50, False),
        (OSError("Multiple exceptions: refused, too many"), 100, True),
    ],
)
def test_what_a_shortage_is(house: House, error: OSError, used: int, means: bool) -> None:
    house.used = used
    assert house.shortage.means(error) is means


async def test_they_go_on_in_the_order_of_their_tickets(house: House) -> None:
    order: list[int] = []
    house.used = 94

    async def connect(ticket: int) -> None:
        await house.shortage.wait(ticket)
        order.append(ticket)

    tickets = [house.shortage.ticket() for _ in range(4)]
    tasks = [asyncio.create_task(connect(ticket)) for ticket in reversed(tickets)]
    await house.pass_time()
    assert order == []
    assert house.shortage.queue
    house.used = 92
    await house.pass_time()
    assert order == tickets[:2]
    house.used = 50
    # Behind those that wait, also when there is room.
    assert house.shortage.short
    await house.pass_time()
    assert order == tickets
    assert not house.shortage.queue
    assert not house.timers
    await asyncio.gather(*tasks)


async def test_not_all_at_once(house: House) -> None:
    tasks = [asyncio.create_task(house.shortage.wait(house.shortage.ticket())) for _ in range(2 * AT_ONCE)]
    await asyncio.sleep(0)
    await house.pass_time()
    assert sum(task.done() for task in tasks) == AT_ONCE
    await house.pass_time()
    await asyncio.gather(*tasks)


async def test_those_that_have_left_take_no_place(house: House) -> None:
    house.used = 93
    gone = asyncio.create_task(house.shortage.wait(house.shortage.ticket()))
    stays = asyncio.create_task(house.shortage.wait(house.shortage.ticket()))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    await house.pass_time()
    await stays
    assert not house.shortage.queue


def test_it_is_counted_and_one_line_a_second(house: House, lines: list[str]) -> None:
    for _ in range(3):
        house.shortage.note()
    house.now += 1
    house.shortage.note()
    assert house.shortage.waits == 4
    start = "no descriptor free, connects to backends wait: waiting=1 files_max=100"
    assert lines == [f"{start} waits={n}; raise LimitNOFILE= or ulimit -n" for n in (1, 4)]
