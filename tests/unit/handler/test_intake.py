"""What is done with messages of the PULL and SUB sockets. Real sockets are in tests/e2e/test_handler_intake.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zmq

from gripproxy import pipe
from gripproxy.grip import tnet
from gripproxy.grip.item import Item
from gripproxy.log import log
from handler.exchange import Exchange
from handler.intake import LEAST, MAX_PULLED, MAX_WAITING, Intake, kept
from handler.refusals import INTERVAL


class Socket:
    """Holds messages as lists of parts; its descriptor is never readable, so each look is asked for."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.options: list[tuple[int, object]] = []
        self.places: list[str] = []
        self.waiting: list[list[bytes]] = []
        self.more: list[bytes] = []
        self.closed = False
        self._fds = os.pipe()

    def fileno(self) -> int:
        return self._fds[0]

    def bind(self, place: str) -> None:
        self.places.append(f"bind {place}")

    def unbind(self, place: str) -> None:
        self.places.remove(f"bind {place}")

    def connect(self, place: str) -> None:
        self.places.append(f"connect {place}")

    def setsockopt(self, option: int, value: object) -> None:
        self.options.append((option, value))

    def getsockopt(self, option: int) -> int:
        if option == zmq.EVENTS:
            return int(zmq.POLLIN) if self.waiting else 0
        assert option == zmq.RCVMORE
        return int(bool(self.more))

    def getsockopt_string(self, option: int) -> str:
        assert option == zmq.LAST_ENDPOINT
        return self.places[-1].removeprefix("bind ")

    def recv(self, flags: int, copy: bool = True) -> Any:
        assert flags == zmq.NOBLOCK
        if not self.more:
            if not self.waiting:
                raise zmq.Again
            self.more = self.waiting.pop(0)
        data = self.more.pop(0)
        return data if copy else SimpleNamespace(bytes=data, more=bool(self.more))

    def recv_multipart(self, flags: int) -> list[bytes]:
        parts = [self.recv(flags)]
        while self.more:
            parts.append(self.recv(flags))
        return parts

    def close(self, linger: int) -> None:
        self.closed = True
        for fd in self._fds:
            os.close(fd)


class Context:
    def __init__(self) -> None:
        self.sockets: list[Socket] = []

    def socket(self, kind: int) -> Socket:
        self.sockets.append(Socket(kind))
        return self.sockets[-1]


class Worker:
    def __init__(self) -> None:
        self.contents: list[bytes] = []

    def send(self, message: pipe.Message) -> None:
        if message[0] == pipe.ITEM:
            stream = Item.unpack(message[1]).stream
            assert stream is not None
            self.contents.append(stream.content)


class House:
    """An intake, its exchange with a worker that has the channel ``ch``, and the log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        monkeypatch.setattr(log, "write", lambda level, text, *args, **more: self.lines.append(text % args))
        self.context = Context()
        self.exchange = Exchange(linger=0)
        self.worker = Worker()
        self.exchange.joined(self.worker, [(b"ch", 0, 1, 0, None)], 0)
        self.intake = Intake(cast("zmq.Context[Any]", self.context), self.exchange, lambda: False)

    def close(self) -> None:
        self.intake.close()


@pytest.fixture
async def house(monkeypatch: pytest.MonkeyPatch) -> Any:
    house = House(monkeypatch)
    yield house
    house.close()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    level, log.level = log.level, 1
    yield
    log.level = level


def item(content: bytes, channel: bytes = b"ch") -> bytes:
    return tnet.dumps({b"channel": channel, b"http-stream": {b"content": content}})


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_pull(house: House) -> None:
    assert house.intake.open_pull("tcp://127.0.0.1:5560") == "tcp://127.0.0.1:5560"
    (sock,) = house.context.sockets
    assert sock.places == ["bind tcp://127.0.0.1:5560"]
    sock.waiting = [[item(b"a")], [b"T" + item(b"b")], [b""], [item(b"two"), item(b"parts")], [item(b"c")]]
    await turn()
    assert house.worker.contents == [b"a", b"b", b"c"]
    assert house.exchange.counters.invalid == 2
    assert house.lines[0].startswith("PULL: item skipped: message is empty")
    house.exchange.tick(asyncio.get_running_loop().time() + INTERVAL)
    assert house.lines[1:] == ["PULL: items skipped: 1 more, the last one: message has 2 parts, expected 1"]
    assert house.exchange.refusals.totals() == {"pull": 2, "sub": 0, "http": 0, "command": 0}


async def test_an_item_over_a_bound_is_skipped(house: House) -> None:
    house.intake.open_pull("tcp://127.0.0.1:5560")
    sock = house.context.sockets[0]
    long = [item(b"x", b"c" * 1025), item(b"x" * (16 * 1024 * 1024)), b"x" * (16 * 1024 * 1024 + 1)]
    sock.waiting = [*([each] for each in long), [item(b"x" * 100_000)], [item(b"y", b"c" * 1024)]]
    await turn()
    assert house.worker.contents == [b"x" * 100_000]
    assert house.exchange.counters.pull == 2
    assert house.exchange.counters.invalid == 3
    expected = "publish item object contains 'channel' of 1025 bytes, at most 1024 are allowed (channel_max)"
    assert house.lines[0].startswith(f"PULL: item skipped: {expected}: ")


async def test_a_topic_over_a_bound_is_skipped(house: House) -> None:
    house.intake.open_sub(("tcp://127.0.0.1:5562",), False)
    sock = house.context.sockets[0]
    sock.waiting = [[b"ch" * 513, item(b"a")], [b"ch", item(b"b")]]
    await turn()
    assert house.worker.contents == [b"b"]
    assert "SUB: item skipped: publish item object contains 'channel' of 1026 bytes" in house.lines[0]


async def test_an_error_without_text_is_explained(house: House) -> None:
    house.intake.open_pull("tcp://127.0.0.1:5560")
    house.context.sockets[0].waiting = [[b'J{"channel":"a","http-stream":{"action":"zz"}}']]
    await turn()
    assert "PULL: item skipped: unknown action: " in house.lines[0]


async def test_a_long_bad_item_is_shown_in_part(house: House) -> None:
    house.intake.open_pull("tcp://127.0.0.1:5560")
    house.context.sockets[0].waiting = [[b"x" * 100_000]]
    await turn()
    assert len(house.lines[0]) < 1000


async def test_sub_takes_the_topic_for_the_channel(house: House) -> None:
    house.intake.open_sub(("tcp://127.0.0.1:5562", "tcp://127.0.0.1:9"), connect=False)
    (sock,) = house.context.sockets
    assert sock.places == ["bind tcp://127.0.0.1:5562"], "only the first is bound"
    sock.waiting = [[b"ch", item(b"a", b"other")], [b"chX", item(b"b")], [b"ch"], [b"ch", b"T3:ab"]]
    await turn()
    assert house.worker.contents == [b"a"]
    assert (house.exchange.counters.unheard, house.exchange.counters.invalid) == (1, 2)


async def test_sub_connects_to_all(house: House) -> None:
    assert house.intake.open_sub(("tcp://a:1", "tcp://b:2"), connect=True) is None
    (sock,) = house.context.sockets
    assert sock.places == ["connect tcp://a:1", "connect tcp://b:2"]
    assert [option for option in sock.options if option[0] in (zmq.TCP_KEEPALIVE, zmq.TCP_KEEPALIVE_IDLE)] == [
        (zmq.TCP_KEEPALIVE, 1),
        (zmq.TCP_KEEPALIVE_IDLE, 30),
    ]


async def test_sub_follows_the_channels_before_and_after(house: House) -> None:
    house.intake.open_sub(("tcp://127.0.0.1:5562",), connect=False)
    (sock,) = house.context.sockets
    house.exchange.told(house.worker, (pipe.SUBSCRIBE, b"new", 1), 0)
    house.exchange.told(house.worker, (pipe.UNSUBSCRIBE, b"new", False), 0)
    house.exchange.left(house.worker, 0)
    assert [option for option in sock.options if option[0] in (zmq.SUBSCRIBE, zmq.UNSUBSCRIBE)] == [
        (zmq.SUBSCRIBE, b"ch"),
        (zmq.SUBSCRIBE, b"new"),
        (zmq.UNSUBSCRIBE, b"new"),
        (zmq.UNSUBSCRIBE, b"ch"),
    ]


async def test_a_changed_subscription_looks_for_messages(house: House) -> None:
    """The edge may have gone by while the subscription was changed."""
    house.intake.open_sub(("tcp://127.0.0.1:5562",), connect=False)
    await turn()
    house.context.sockets[0].waiting = [[b"ch", item(b"a")]]
    await turn()
    assert house.worker.contents == []
    house.exchange.told(house.worker, (pipe.SUBSCRIBE, b"new", 1), 0)
    await turn()
    assert house.worker.contents == [b"a"]


async def test_closing_takes_what_is_there(house: House) -> None:
    house.intake.open_pull("tcp://127.0.0.1:5560")
    await turn()
    (sock,) = house.context.sockets
    sock.waiting = [[item(b"a")]]
    house.intake.close()
    assert house.worker.contents == [b"a"]
    assert sock.closed


async def test_retiring_takes_what_comes_from_those_that_are_connected(house: House) -> None:
    house.intake.open_pull("tcp://127.0.0.1:5560")
    house.intake.open_sub(("tcp://127.0.0.1:5562",), connect=False)
    await turn()
    pull, sub = house.context.sockets
    assert not house.intake.unread
    house.intake.retire()
    assert pull.places == sub.places == []
    pull.waiting = [[item(b"a")]]
    assert house.intake.unread
    await turn()
    assert house.worker.contents == [b"a"]
    assert not house.intake.unread
    house.intake.close()
    assert not house.intake.unread


class TestKept:
    def test_a_number_of_messages_unless_bytes_are_bounded(self) -> None:
        assert kept(MAX_PULLED, 0, 64_000_000) == MAX_PULLED
        assert kept(MAX_WAITING, 0, 64_000_000) == MAX_WAITING

    def test_as_many_of_the_longest_as_fit(self) -> None:
        assert kept(2000, 64_000_000, 1_000_000) == 64

    def test_never_more_than_the_number_and_never_too_few_to_go_on(self) -> None:
        assert kept(2000, 64_000_000, 1000) == 2000
        assert kept(2000, 65_536, 1_000_000) == LEAST
