"""Stats sockets to listen to, with real publishers: what is told of them, in which order; when they are made anew."""

from __future__ import annotations

import contextlib
import errno
import pathlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq

from gripproxy.stats.subscriber import REOPEN, REOPEN_LOST, TAKE, StatsSubscriber, StatsSubscriberError, reachable
from tests.support.ports import free_port

PATIENCE = 40.0
"""Seconds for anything that has to happen."""


class Ear:
    """A listener that keeps what it is told, with a source of its own and a clock that only a test moves."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.poller = zmq.Poller()
        self.now = 0.0
        self.heard: list[Any] = []
        self.source: StatsSubscriber

    def open(self, endpoint: str, max_message: int = 1000, queue: int = 1000) -> None:
        self.source = StatsSubscriber(self.context, endpoint, self, self.poller, self.now, max_message, queue)

    def taken(self, endpoint: str, messages: list[bytes]) -> None:
        assert endpoint == self.source.endpoint
        assert messages
        self.heard += messages

    def connected(self, endpoint: str) -> None:
        self.heard.append("connected")

    def disconnected(self, endpoint: str) -> None:
        self.heard.append("disconnected")

    def hindered(self, endpoint: str, why: str) -> None:
        self.heard.append(why)

    def overrun(self, endpoint: str) -> None:
        self.heard.append("overrun")

    def turn(self) -> int:
        return self.source.turn(dict(self.poller.poll(10)), self.now)

    def until(self, what: Any) -> list[Any]:
        """Turn until this is heard, and return what was, up to it."""
        deadline = time.monotonic() + PATIENCE
        while what not in self.heard:
            assert time.monotonic() < deadline, self.heard
            self.turn()
        end = self.heard.index(what) + 1
        heard, self.heard = self.heard[:end], self.heard[end:]
        return heard


@pytest.fixture
def ear() -> Iterator[Ear]:
    """A listener; its source is closed at the end, and nothing is left of it."""
    ear = Ear()
    yield ear
    if hasattr(ear, "source"):
        ear.source.close()
    assert ear.poller.sockets == []
    ear.context.term()


@pytest.fixture
def publish(tmp_path: pathlib.Path) -> Iterator[Callable[..., zmq.Socket[bytes]]]:
    """A function that opens a publisher, by default on the address ``ipc://<tmp_path>/stats``."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    opened = []

    def publish(endpoint: str = f"ipc://{tmp_path}/stats") -> zmq.Socket[bytes]:
        sock = context.socket(zmq.XPUB)
        sock.linger = 0
        sock.setsockopt(zmq.IPV6, 1)
        opened.append(sock)
        sock.bind(endpoint)
        return sock

    yield publish
    for sock in opened:
        sock.close(linger=0)
    context.term()


def wait_for_subscriber(publisher: zmq.Socket[bytes]) -> None:
    while True:
        assert publisher.poll(int(PATIENCE * 1000)), "nobody subscribes"
        if publisher.recv() == b"\x01":
            return


@pytest.mark.parametrize(
    ("spec", "address"),
    [
        ("tcp://*:5564", "tcp://127.0.0.1:5564"),
        ("tcp://0.0.0.0:5564", "tcp://127.0.0.1:5564"),
        ("tcp://[::]:5564", "tcp://[::1]:5564"),
        ("tcp://10.0.0.1:5564", "tcp://10.0.0.1:5564"),
        ("ipc:///run/stats", "ipc:///run/stats"),
    ],
)
def test_who_binds_everywhere_is_on_this_machine(spec: str, address: str) -> None:
    assert reachable(spec) == address


@pytest.mark.parametrize("endpoint", ["nonsense", "tcp://here", "tcp://*:5564", "udp://127.0.0.1:1"])
def test_an_address_that_is_none_is_an_error(ear: Ear, endpoint: str) -> None:
    with pytest.raises(StatsSubscriberError, match=r"cannot connect to '.*; an address is for example ipc://"):
        ear.open(endpoint)


def test_what_is_told_is_in_order_and_the_last_messages_come_before_the_end(
    ear: Ear, publish: Callable[..., zmq.Socket[bytes]], tmp_path: pathlib.Path
) -> None:
    ear.open(f"ipc://{tmp_path}/stats")
    first = publish()
    wait_for_subscriber(first)
    assert ear.until("connected") == ["connected"]
    assert ear.source.connected
    messages = [b"%d" % number for number in range(300)]
    for message in messages:
        first.send(message)
    # All there before anything is looked at.
    assert ear.poller.poll(int(PATIENCE * 1000))
    first.close(linger=10_000)
    assert ear.until("disconnected") == [*messages, "disconnected"]
    assert not ear.source.connected
    second = publish()
    wait_for_subscriber(second)
    second.send(b"again")
    assert ear.until(b"again") == ["connected", b"again"]


def test_a_publisher_that_breaks_the_protocol_is_connected_to_again(
    ear: Ear, publish: Callable[..., zmq.Socket[bytes]], tmp_path: pathlib.Path
) -> None:
    publisher = publish()
    ear.open(f"ipc://{tmp_path}/stats", max_message=1000)
    wait_for_subscriber(publisher)
    publisher.send(b"x" * 1000)
    # Only then: ZeroMQ may drop it with the connection of the message behind it.
    assert ear.until(b"x" * 1000) == ["connected", b"x" * 1000]
    publisher.send(b"x" * 1001)
    assert ear.until("disconnected") == ["disconnected"]
    # ZeroMQ itself would never try again; before its time neither do we.
    ear.now += REOPEN_LOST - 0.1
    ear.turn()
    assert not publisher.poll(300) or publisher.recv() == b"\x00"
    ear.now += 0.2
    ear.turn()
    wait_for_subscriber(publisher)
    publisher.send(b"next")
    assert ear.until(b"next") == ["connected", b"next"]


@pytest.mark.parametrize("kind", [zmq.REP, zmq.PULL, None], ids=["REP", "PULL", "HTTP"])
def test_who_is_no_publisher_is_told_and_tried_again(
    ear: Ear, publish: Callable[..., zmq.Socket[bytes]], kind: int | None
) -> None:
    with contextlib.ExitStack() as strangers:
        if kind is None:
            server = strangers.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = server.getsockname()[1]
        else:
            context = strangers.enter_context(zmq.Context())
            sock = strangers.enter_context(context.socket(kind))
            port = sock.bind_to_random_port("tcp://127.0.0.1")
        ear.open(f"tcp://127.0.0.1:{port}")
        if kind is None:
            server.settimeout(PATIENCE)
            client, _ = server.accept()
            assert client.recv(10) == b"\xff" + bytes(7) + b"\x01\x7f"
            client.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            client.close()
        assert ear.until("no ZeroMQ publisher answers there") == ["no ZeroMQ publisher answers there"]
    assert not ear.source.connected
    publisher = publish(f"tcp://127.0.0.1:{port}")
    ear.now += REOPEN
    ear.turn()
    wait_for_subscriber(publisher)
    assert ear.until("connected")[-1] == "connected"


class Flood:
    """Stands for the socket with so many messages waiting in it; a real one is filled and emptied at the same time."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting

    def recv(self, flags: int) -> bytes:
        assert flags == zmq.NOBLOCK
        if not self.waiting:
            raise zmq.Again
        self.waiting -= 1
        return b"x"


def test_a_queue_that_may_have_been_full_is_told_once_until_it_is_empty(ear: Ear, tmp_path: pathlib.Path) -> None:
    ear.open(f"ipc://{tmp_path}/stats", queue=10)
    assert ear.source.limit == 10
    sock: Any = ear.source._socket
    flood: Any = Flood(0)
    ear.source._socket = flood
    for waiting, overruns in ((9, 0), (10, 1), (35, 1)):
        flood.waiting = waiting
        while ear.source.take() == ear.source.limit:
            pass
        assert (ear.heard.count(b"x"), ear.heard.count("overrun")) == (waiting, overruns)
        # Right behind the messages that filled it.
        assert not overruns or ear.heard.index("overrun") == 10
        ear.heard.clear()
    ear.source._socket = sock


def test_a_queue_larger_than_a_turn_takes_several(ear: Ear, tmp_path: pathlib.Path) -> None:
    ear.open(f"ipc://{tmp_path}/stats", queue=TAKE * 3)
    sock: Any = ear.source._socket
    flood: Any = Flood(TAKE * 3)
    ear.source._socket = flood
    for overruns in (0, 0, 1):
        assert ear.source.take() == TAKE
        assert ear.heard.count("overrun") == overruns
    assert ear.source.take() == 0
    ear.source._socket = sock


def test_without_descriptors_for_a_new_socket_the_old_address_is_tried_later(
    ear: Ear, publish: Callable[..., zmq.Socket[bytes]], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear.open(f"ipc://{tmp_path}/stats")

    def none_left(_: int) -> None:
        raise zmq.ZMQError(errno.EMFILE)

    with monkeypatch.context() as bent:
        bent.setattr(ear.context, "socket", none_left)
        ear.now += REOPEN
        ear.turn()
        assert ear.heard == [zmq.strerror(errno.EMFILE)]
        ear.turn()
        assert ear.source.take() == 0
        assert len(ear.heard) == 1
    publisher = publish()
    ear.now += REOPEN
    ear.turn()
    wait_for_subscriber(publisher)
    assert ear.until("connected")[-1] == "connected"


def test_a_name_is_tried_as_ipv4_and_as_ipv6_in_turn(ear: Ear) -> None:
    families = []
    make = ear.context.socket

    def watched(kind: int) -> zmq.Socket[bytes]:
        sock = make(kind)
        if kind == zmq.SUB:
            families.append(sock)
        return sock

    ear.context.socket = watched  # type: ignore[method-assign,assignment]
    ear.open(f"tcp://localhost:{free_port()}")
    seen = []
    for _ in range(3):
        seen.append(families[-1].getsockopt(zmq.IPV6))
        ear.now += REOPEN
        ear.turn()
    assert seen == [0, 1, 0]


def test_an_ipv6_address(ear: Ear, publish: Callable[..., zmq.Socket[bytes]]) -> None:
    publisher = publish("tcp://[::1]:*")
    ear.open(publisher.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0"))
    wait_for_subscriber(publisher)
    assert ear.until("connected") == ["connected"]
