"""The stats socket, with real subscribers on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import tnetstring
import zmq
import zmq.asyncio

from gripproxy import pipe
from gripproxy.grip.item import Item, StreamFormat
from gripproxy.grip.stats_format import FIGURES
from handler.dispatch.dispatcher import Dispatcher
from handler.stats.aggregator import KINDS, StatsAggregator, StatsSettings
from handler.stats.socket import StatsFeed, StatsSocket, kinds_of

PATIENCE = 20.0


@pytest.mark.parametrize(
    ("prefixes", "kinds"),
    [
        (set(), set()),
        ({b""}, set(KINDS)),
        ({b"conn "}, {"conn"}),
        ({b"c"}, {"conn", "counts"}),
        ({b"report T"}, {"report"}),
        ({b"nothing", b"sub", b"message J"}, {"sub", "message"}),
    ],
)
def test_subscriptions_mean_kinds_of_events(prefixes: set[bytes], kinds: set[str]) -> None:
    assert kinds_of(prefixes) == kinds


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it is so."""
    for _ in range(round(PATIENCE / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not happen")


class Worker:
    def __init__(self) -> None:
        self.got: list[pipe.Message] = []

    def send(self, message: pipe.Message) -> None:
        self.got.append(message)


class House:
    def __init__(self, json: bool) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        sink = StatsSocket(self.context, json)
        stats: StatsAggregator[Any] = StatsAggregator(StatsSettings(b"me", report_interval=1), sink)
        self.dispatcher = Dispatcher(stats=stats, update=False)
        self.feed = StatsFeed(sink, self.dispatcher)
        self.address = self.feed.open("tcp://127.0.0.1:*")
        self.worker = Worker()
        self.dispatcher.joined(self.worker, [], 0)
        self._subscribers: list[zmq.asyncio.Socket] = []
        self._context = zmq.asyncio.Context.shadow(self.context)

    def subscriber(self, *prefixes: bytes) -> zmq.asyncio.Socket:
        sock = self._context.socket(zmq.SUB)
        for prefix in prefixes:
            sock.setsockopt(zmq.SUBSCRIBE, prefix)
        sock.connect(self.address)
        self._subscribers.append(sock)
        return sock

    async def until(self, wanted: set[str]) -> None:
        await eventually(lambda: self.dispatcher.stats.wanted == wanted)

    def close(self) -> None:
        for sock in self._subscribers:
            sock.close(0)
        self.feed.close()
        self.context.term()


@pytest.fixture(params=[False, True], ids=["tnetstring", "json"])
async def house(request: pytest.FixtureRequest) -> AsyncIterator[House]:
    place = House(request.param)
    yield place
    place.close()


def plain(body: bytes) -> dict[str, Any]:
    """Names and whatever they have, of an event of either format."""
    if body[:1] == b"J":
        found: dict[str, Any] = json.loads(body[1:])
        return found
    return {name.decode(): value for name, value in tnetstring.loads(body[1:]).items()}


async def next_of(sock: zmq.asyncio.Socket, kind: bytes) -> bytes:
    async with asyncio.timeout(PATIENCE):
        while True:
            name, _, body = (await sock.recv()).partition(b" ")
            if name == kind:
                return body


async def test_workers_are_asked_only_while_somebody_listens(house: House) -> None:
    sock = house.subscriber(b"conn ")
    await house.until({"conn"})
    assert house.worker.got == [(pipe.WATCH, True, False)]
    other = Worker()
    house.dispatcher.joined(other, [], 0)
    assert other.got == [(pipe.WATCH, True, False)]
    sock.close(0)
    await house.until(set())
    assert house.worker.got[-1] == (pipe.WATCH, False, False)


async def test_a_second_subscriber_has_all_told_again(house: House) -> None:
    house.subscriber(b"")
    await house.until(set(KINDS))
    before = len(house.worker.got)
    house.subscriber(b"")
    await eventually(lambda: len(house.worker.got) > before)
    assert house.worker.got[-1] == (pipe.WATCH, True, True)


async def test_an_item_is_told_with_what_the_directory_knows(house: House) -> None:
    sock = house.subscriber(b"message ")
    await house.until({"message"})
    house.dispatcher.received(house.worker, (pipe.SUBSCRIBE, b"ch", 1), 0)
    house.dispatcher.received(house.worker, (pipe.COUNT, b"ch", pipe.STREAM, 3), 0)
    house.dispatcher.accept(Item(b"ch", stream=StreamFormat(content=b"x")), 0)
    body = await next_of(sock, b"message")
    if body[:1] == b"J":
        assert body == b'J{"from":"me","channel":"ch","transport":"http-stream","count":3}'
    else:
        assert tnetstring.loads(body[1:]) == {
            b"from": b"me",
            b"channel": b"ch",
            b"transport": b"http-stream",
            b"count": 3,
        }


async def test_reports_come_by_themselves(house: House) -> None:
    sock = house.subscriber(b"")
    await house.until(set(KINDS))
    house.dispatcher.accept(Item(b"ch", stream=StreamFormat(content=b"x")), 0)
    house.dispatcher.counters.add({"deliveries": 1})
    assert await next_of(sock, b"delivery")
    assert await next_of(sock, b"report")


async def test_the_last_report_tells_how_many_events_were_sent(house: House) -> None:
    sock = house.subscriber(b"")
    await house.until(set(KINDS))
    house.dispatcher.received(house.worker, (pipe.FIGURES, b"named", 1, 1, *range(len(FIGURES))), 0)
    house.feed.close()
    kinds = []
    async with asyncio.timeout(PATIENCE):
        while True:
            name, _, body = (await sock.recv()).partition(b" ")
            kinds.append(name)
            fields = plain(body)
            if name == b"report" and "route" not in fields:
                break
    assert kinds[-2:] == [b"report", b"report"]
    assert fields["events-sent"] == len(kinds)
