"""Reading an edge-triggered socket: a turn has a bound, and what is left is not forgotten."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any, cast

import pytest
import zmq

from gripproxy.process.zmq_reader import TURN_BYTES, ZmqReader


class Queue:
    """Stands for a ZeroMQ socket: its descriptor tells of the first message only, as an edge does."""

    def __init__(self) -> None:
        self.waiting = 0
        self.taken = 0
        self.size = 1
        """Bytes of each message."""
        self.looked_at: list[int] = []
        """Messages taken before each look at the events, which admits peers that had nothing."""
        self.trouble: Exception | None = None
        self._fd, self._signal = os.pipe()

    def fileno(self) -> int:
        return self._fd

    def getsockopt(self, option: int) -> int:
        assert option == zmq.EVENTS
        self.looked_at.append(self.taken)
        return int(zmq.POLLIN) if self.waiting else 0

    def arrive(self, count: int) -> None:
        self.waiting += count
        os.write(self._signal, b"x")

    def take(self) -> int:
        if not self.waiting:
            os.set_blocking(self._fd, False)
            try:
                os.read(self._fd, 100)
            except BlockingIOError:
                pass
            raise zmq.Again
        self.waiting -= 1
        self.taken += 1
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble
        return self.size

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._signal)


@pytest.fixture
def queue() -> Iterator[Queue]:
    queue = Queue()
    yield queue
    queue.close()


def drain(queue: Queue, **more: Any) -> ZmqReader:
    return ZmqReader(cast("zmq.Socket[bytes]", queue), queue.take, turn=10, **more)


async def until_taken(queue: Queue, count: int) -> None:
    for _ in range(1000):
        if queue.taken >= count:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"{queue.taken} of {count} messages were read")


async def test_what_was_there_before_is_read(queue: Queue) -> None:
    queue.waiting = 3
    reader = drain(queue)
    await until_taken(queue, 3)
    reader.close()


async def test_one_edge_is_enough_for_many_turns(queue: Queue) -> None:
    reader = drain(queue)
    await asyncio.sleep(0)
    queue.arrive(35)
    await until_taken(queue, 35)
    reader.close()


async def test_a_turn_leaves_room_for_others(queue: Queue) -> None:
    queue.waiting = 100
    reader = drain(queue)
    await asyncio.sleep(0)
    assert queue.taken == 10
    reader.close()


async def test_an_error_in_one_message_does_not_stop_the_rest(queue: Queue) -> None:
    loop = asyncio.get_running_loop()
    seen: list[Any] = []
    loop.set_exception_handler(lambda loop, context: seen.append(context["exception"]))
    queue.waiting = 5
    queue.trouble = KeyError("a bug")
    reader = drain(queue)
    await until_taken(queue, 5)
    assert [type(error) for error in seen] == [KeyError]
    reader.close()


async def test_it_waits_when_told_and_goes_on_by_itself(queue: Queue) -> None:
    wait = [True]
    queue.waiting = 5
    reader = drain(queue, wait=lambda: wait[0])
    for _ in range(5):
        await asyncio.sleep(0)
    assert queue.taken == 0
    wait[0] = False
    await until_taken(queue, 5)
    reader.close()


async def test_finishing_reads_once_more(queue: Queue) -> None:
    reader = drain(queue)
    queue.waiting = 15
    reader.finish()
    assert queue.taken == 10
    reader.look()
    await asyncio.sleep(0)
    assert queue.taken == 10, "closed is closed"


async def test_what_is_unread_is_read_although_the_edge_was_taken(queue: Queue) -> None:
    one = drain(queue)
    await until_taken(queue, 0)
    assert not one.unread
    queue.waiting = 3  # without an edge
    assert one.unread
    await until_taken(queue, 3)
    assert not one.unread
    one.close()
    queue.waiting = 1
    assert not one.unread


async def test_a_turn_ends_after_so_many_bytes(queue: Queue) -> None:
    queue.waiting, queue.size = 8, TURN_BYTES // 2
    turns: list[int] = []
    loop = asyncio.get_running_loop()
    reader = drain(queue)

    def look() -> None:
        turns.append(queue.taken)
        if queue.waiting:
            loop.call_soon(look)

    loop.call_soon(look)
    await until_taken(queue, 8)
    # Three are more than the bound, two are not.
    assert [count for count in dict.fromkeys(turns) if count] == [3, 6, 8]
    reader.close()


async def test_a_message_longer_than_a_turn_is_read_alone(queue: Queue) -> None:
    queue.waiting, queue.size = 2, 10 * TURN_BYTES
    reader = drain(queue)
    await asyncio.sleep(0)
    assert queue.taken == 1
    await until_taken(queue, 2)
    reader.close()


async def test_each_turn_admits_peers_whose_queue_was_empty(queue: Queue) -> None:
    queue.waiting, queue.size = 3, 10 * TURN_BYTES
    reader = drain(queue)
    await until_taken(queue, 3)
    assert queue.looked_at[:3] == [0, 1, 2]
    reader.close()
