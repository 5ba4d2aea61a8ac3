"""Connections to callbacks: which request gets which, and when they are closed. The loop opens those of memory."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest

from griphub.callbacks.connections import CallbackConnection, Connections
from griphub.callbacks.idle_connections import Place
from griphub.callbacks.request_limits import RequestLimits
from gripproxy.backend.connection import BackendConnection
from tests.support.doubles import Transport

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
PLAIN = Place("a.example", "192.0.2.1", 8080, False)
SECURE = Place("a.example", "192.0.2.1", 443, True)
TLS = ssl.create_default_context()


class Task:
    """Coroutine that is run by the test."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        self.cancelled = False

    def run(self) -> None:
        """Run it to its end; it waits for nothing."""
        with pytest.raises(StopIteration):
            self._coroutine.send(None)

    def cancel(self) -> None:
        self.cancelled = True
        self._coroutine.close()


class Loop:
    """Loop that opens connections, or fails as the test has it; time stands still."""

    def __init__(self) -> None:
        self.now = 100.0
        self.tasks: list[Task] = []
        self.opened: list[tuple[str, int, object, str | None]] = []
        self.transports: list[Transport] = []
        self.error: BaseException | None = None
        self.closed_early = False

    def time(self) -> float:
        return self.now

    def create_task(self, coroutine: Coroutine[Any, Any, None], name: str) -> Task:
        self.tasks.append(Task(coroutine))
        return self.tasks[-1]

    async def create_connection(
        self, factory: Callable[[], CallbackConnection], host: str, port: int, ssl: object, server_hostname: str | None
    ) -> tuple[Transport, CallbackConnection]:
        self.opened.append((host, port, ssl, server_hostname))
        if self.error is not None:
            raise self.error
        protocol = factory()
        transport = Transport(protocol)
        self.transports.append(transport)
        protocol.connection_made(cast(asyncio.BaseTransport, transport))
        if self.closed_early:
            protocol.connection_lost(None)
        return transport, protocol


class Request:
    """Sink that sends a line, and keeps its answer."""

    changing = True

    def __init__(self) -> None:
        self.connection: CallbackConnection | None = None
        self.error: Exception | None = None
        self.body = b""
        self.ended = False
        self.failed: list[tuple[str, bool]] = []

    def on_connected(self, connection: BackendConnection) -> None:
        self.connection = cast(CallbackConnection, connection)
        connection.send(b"POST", False)

    def on_connect_failed(self, error: Exception) -> None:
        self.error = error

    def on_interim(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None: ...

    def on_head(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None: ...

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_complete(self) -> None:
        self.ended = True

    def on_batch(self) -> None: ...

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = "") -> None:
        self.failed.append((why, stale))

    def on_request_blocked(self, blocked: bool) -> None: ...


class House:
    """Connections over that loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
        self.loop = Loop()
        self.connections = Connections(RequestLimits(**limits), TLS, cast(asyncio.AbstractEventLoop, self.loop))
        monkeypatch.setattr(asyncio, "timeout", Timeout)

    def acquire(self, place: Place = PLAIN, *, fresh: bool = False, run: bool = True) -> Request:
        """Begin a request."""
        request = Request()
        tasks = len(self.loop.tasks)
        self.connections.acquire(place, request, fresh=fresh)
        if run and len(self.loop.tasks) > tasks:
            self.loop.tasks[-1].run()
        return request

    def answer(self, request: Request, data: bytes = ANSWER) -> CallbackConnection:
        """Answer a request, and release its connection."""
        connection = request.connection
        assert connection is not None
        connection.data_received(data)
        self.connections.release(connection)
        return connection


class Timeout:
    """Stands for ``asyncio.timeout``, which needs a loop."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    house = House(monkeypatch, idle=10.0)
    yield house
    for task in house.loop.tasks:
        task.cancel()


def test_a_connection_is_made_to_the_address_and_its_certificate_is_that_of_the_host(house: House) -> None:
    house.acquire()
    house.acquire(SECURE)
    assert house.loop.opened == [("192.0.2.1", 8080, None, None), ("192.0.2.1", 443, TLS, "a.example")]
    assert len(house.connections) == 2


def test_the_next_request_gets_the_connection_at_once(house: House) -> None:
    first = house.acquire()
    connection = house.answer(first)
    assert first.body == b"hi"
    second = house.acquire(run=False)
    assert second.connection is connection
    assert connection.reused
    # Its count is that of this request.
    assert connection.received == 0
    house.acquire(SECURE)
    house.acquire(fresh=True)
    assert len(house.loop.opened) == 3


def test_a_connection_that_may_not_be_kept_is_closed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (ANSWER.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), ANSWER + b"more"):
        house.answer(house.acquire(), answer)
        assert house.loop.transports[-1].aborted
    # It has not sent all of its request.
    request = house.acquire()
    house.loop.transports[-1].buffered = 1
    house.answer(request)
    assert house.loop.transports[-1].aborted
    # Its address has enough.
    full = House(monkeypatch, idle_per_address=1)
    first, second = full.acquire(), full.acquire()
    full.answer(first)
    full.answer(second)
    assert [transport.aborted for transport in full.loop.transports] == [False, True]
    # All addresses together have enough: the oldest goes.
    few = House(monkeypatch, idle_max=1)
    first, second = few.acquire(), few.acquire(SECURE)
    few.answer(first)
    few.answer(second)
    assert [transport.aborted for transport in few.loop.transports] == [True, False]


def test_an_idle_connection_is_closed_in_time_or_by_its_peer(house: House) -> None:
    house.answer(house.acquire())
    connection = house.answer(house.acquire(SECURE))
    connection.connection_lost(None)
    assert len(house.connections) == 1
    house.connections.sweep(house.loop.now + 9.9)
    assert not house.loop.transports[0].aborted
    house.connections.sweep(house.loop.now + 10.0)
    assert house.loop.transports[0].aborted
    assert house.acquire(run=False).connection is None


def test_bytes_without_a_request_close_the_connection(house: House) -> None:
    connection = house.answer(house.acquire())
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    assert house.loop.transports[0].aborted
    assert house.acquire(run=False).connection is None


def test_a_connection_that_ends_is_reported_to_its_request(house: House) -> None:
    request = house.acquire()
    assert request.connection is not None
    request.connection.connection_lost(ConnectionResetError("reset"))
    assert [stale for _, stale in request.failed] == [False]
    assert len(house.connections) == 0
    connection = house.answer(house.acquire())
    again = house.acquire()
    connection.connection_lost(None)
    assert [stale for _, stale in again.failed] == [True]


def test_a_failure_to_connect_is_reported(house: House) -> None:
    for error in (ConnectionRefusedError("refused"), ssl.SSLError("bad"), UnicodeError("label"), TimeoutError()):
        house.loop.error = error
        request = house.acquire()
        assert type(request.error) is type(error)
    assert str(request.error) == "no connection within 5 s"
    assert len(house.connections) == 0


def test_an_unexpected_error_is_reported_and_logged(house: House, capfd: pytest.CaptureFixture[str]) -> None:
    house.loop.error = LookupError("of the loop")
    assert isinstance(house.acquire().error, LookupError)
    assert len(house.connections) == 0
    assert "unexpected error of a connection: address=192.0.2.1 port=8080" in capfd.readouterr().out


def test_a_connection_that_is_closed_as_soon_as_it_is_open(house: House) -> None:
    house.loop.closed_early = True
    request = house.acquire()
    assert isinstance(request.error, ConnectionResetError)
    assert len(house.connections) == 0


def test_without_descriptors_an_idle_connection_is_closed(house: House) -> None:
    house.answer(house.acquire())
    house.answer(house.acquire(SECURE))
    house.loop.error = OSError(errno.EMFILE, "Too many open files")
    request = house.acquire(PLAIN._replace(port=9999))
    assert request.error is house.loop.error
    assert [transport.aborted for transport in house.loop.transports] == [True, False]


def test_a_forgotten_request_is_not_called(house: House) -> None:
    request = house.acquire(run=False)
    assert len(house.connections) == 1
    house.connections.forget(request)
    house.connections.forget(request)
    assert house.loop.tasks[0].cancelled
    assert len(house.connections) == 0
    assert (request.connection, request.error) == (None, None)


def test_all_connections_end_with_the_client(house: House) -> None:
    house.answer(house.acquire())
    house.acquire(SECURE)
    house.acquire(SECURE, run=False)
    house.connections.close()
    assert [transport.aborted for transport in house.loop.transports] == [True, True]
    assert house.loop.tasks[-1].cancelled


def test_a_place_is_a_pool_as_connections_expect_it(house: House) -> None:
    connection = house.answer(house.acquire(SECURE))
    pool = connection._place_pool
    assert (pool.target.host, pool.target.port, pool.target.ssl) == ("192.0.2.1", 443, True)
    assert pool.outage is None
    request = Request()
    pool.acquire(request)
    assert request.connection is connection
    other = Request()
    pool.acquire(other, fresh=True)
    pool.forget(other)
    assert house.loop.tasks[-1].cancelled
