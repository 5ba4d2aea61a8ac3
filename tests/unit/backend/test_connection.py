"""Connections to backends: who gets which, how long they are kept, which addresses may be had.

The loop opens nothing: a connection is there when the test says so.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest

from gripproxy.backend.connection import BackendConnection
from gripproxy.backend.descriptor_shortage import DescriptorShortage
from gripproxy.backend.outages import DESCRIPTORS, RESET, Outage
from gripproxy.backend.pool import BackendPool, Blocked, HostPool, kind_of
from gripproxy.config import AccessPolicy
from gripproxy.routing.route import Target
from tests.support.doubles import Transport

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Task:
    """A coroutine that is run a step at a time: to its end, or to where it waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.coroutine = coroutine
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        self.coroutine.close()


class Loop:
    """Resolves names from a table and opens connections of memory, or fails as told.

    Unrealistic: nothing takes time, so a task is over when ``run`` has begun it.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.tasks: list[Task] = []
        self.opened: list[tuple[str, int, object, str | None]] = []
        self.addresses: dict[str, list[str]] = {}
        self.error: Exception | None = None
        self.later: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def create_task(self, coroutine: Coroutine[Any, Any, None], name: str) -> Task:
        self.tasks.append(Task(coroutine))
        return self.tasks[-1]

    async def getaddrinfo(self, host: str, port: int, type: int) -> list[tuple[Any, ...]]:
        return [(0, 0, 0, "", (address, port)) for address in self.addresses[host]]

    async def create_connection(
        self,
        factory: Callable[[], BackendConnection],
        host: str,
        port: int,
        ssl: object,
        server_hostname: str | None,
    ) -> tuple[Transport, BackendConnection]:
        self.opened.append((host, port, ssl, server_hostname))
        if self.error is not None:
            raise self.error
        protocol = factory()
        transport = Transport(protocol)
        protocol.connection_made(cast(asyncio.BaseTransport, transport))
        return transport, protocol

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.later.append((self.now + seconds, callback))

    def run(self) -> None:
        """Let every task that is not cancelled run to its end."""
        tasks, self.tasks = self.tasks, []

        async def run() -> None:
            for task in tasks:
                if not task.cancelled:
                    await task.coroutine

        asyncio.run(run())


class User:
    """A sink that notes what it hears."""

    changing = False

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.connection: BackendConnection | None = None

    def on_connected(self, connection: BackendConnection) -> None:
        self.connection = connection
        self.log.append("connected")

    def on_connect_failed(self, error: Exception) -> None:
        self.log.append(error)

    def on_head(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.log.append(code)

    def on_interim(self, code: int, reason: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.log.append(("interim", code))

    def on_body(self, data: bytes) -> None:
        self.log.append(data)

    def on_complete(self) -> None:
        self.log.append("complete")

    def on_batch(self) -> None:
        """Nothing is gathered here."""

    def on_failed(self, why: str, stale: bool, clean: bool = True, kind: str = RESET) -> None:
        self.log.append(("failed", stale, clean))

    def on_request_blocked(self, blocked: bool) -> None:
        self.log.append(("blocked", blocked))

    def take(self) -> list[Any]:
        log, self.log = self.log, []
        return log


class Place:
    """A pool of one worker, with a loop that opens nothing."""

    def __init__(self, deny: tuple[str, ...] = ()) -> None:
        self.loop = Loop()
        self.contexts: list[Target] = []
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.used = 0
        """Descriptors in use, of 100."""
        self.shortage = DescriptorShortage(self.loop.call_later, self.loop.time, 100, lambda: self.used)
        self.shortage.watch(False)
        self.pool = BackendPool(loop, 10, 15, self.context, AccessPolicy((), deny), self.shortage)

    def context(self, target: Target) -> ssl.SSLContext:
        self.contexts.append(target)
        return ssl.create_default_context()

    def host(self, name: str = "one", server_name: str = "", **more: Any) -> HostPool:
        return cast(HostPool, self.pool.host(Target("host", name, 80, **more), server_name))

    def connected(self, host: HostPool) -> tuple[User, Transport]:
        """Somebody with a new connection, and that."""
        user = User()
        host.acquire(user, fresh=True)
        self.loop.run()
        assert user.take() == ["connected"]
        return user, transport_of(user)

    def idle(self, host: HostPool) -> Transport:
        """A connection that is kept for others."""
        user, transport = self.connected(host)
        exchange(user, transport)
        return transport


def transport_of(user: User) -> Transport:
    assert user.connection is not None
    return cast(Transport, user.connection._transport)


def exchange(user: User, transport: Transport, answer: bytes = ANSWER) -> None:
    """A request, its answer, and the connection given back."""
    connection = user.connection
    assert connection is not None
    connection.send(b"GET / HTTP/1.1\r\n\r\n", False)
    connection.data_received(answer)
    connection.release()


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    for task in place.loop.tasks:
        task.cancel()


class TestReuse:
    def test_a_connection_is_opened_if_none_is_idle(self, place: Place) -> None:
        user = User()
        place.host().acquire(user)
        assert user.log == []
        place.loop.run()
        assert user.log == ["connected"]
        assert place.loop.opened == [("one", 80, None, None)]

    def test_an_idle_one_is_had_at_once(self, place: Place) -> None:
        host = place.host()
        transport = place.idle(host)
        user = User()
        host.acquire(user)
        assert user.log == ["connected"]
        assert transport_of(user) is transport

    def test_by_one_at_a_time(self, place: Place) -> None:
        host = place.host()
        place.idle(host)
        first, second = User(), User()
        host.acquire(first)
        host.acquire(second)
        assert (first.log, second.log) == (["connected"], [])

    def test_the_one_used_last_comes_first(self, place: Place) -> None:
        host = place.host()
        (first, one), (second, two) = place.connected(host), place.connected(host)
        exchange(second, two)
        exchange(first, one)
        user = User()
        host.acquire(user)
        assert transport_of(user) is one

    def test_who_wants_a_new_one_gets_it(self, place: Place) -> None:
        host = place.host()
        place.idle(host)
        place.connected(host)
        assert len(place.loop.opened) == 2

    @pytest.mark.parametrize(
        "answer",
        [
            ANSWER.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"),
            ANSWER.replace(b"1.1", b"1.0"),
            ANSWER[:-1],
            b"HTTP/1.1 200 OK\r\n\r\nhi",
        ],
    )
    def test_what_cannot_be_used_again_is_closed(self, place: Place, answer: bytes) -> None:
        host = place.host()
        user, transport = place.connected(host)
        exchange(user, transport, answer)
        assert transport.closing
        host.acquire(User())
        place.loop.run()
        assert len(place.loop.opened) == 2

    def test_one_that_was_paused_is_read_again(self, place: Place) -> None:
        user, transport = place.connected(place.host())
        assert user.connection is not None
        user.connection.pause()
        assert not transport.reading
        exchange(user, transport)
        assert transport.reading

    def test_one_that_ends_while_it_is_idle_is_forgotten(self, place: Place) -> None:
        host = place.host()
        place.idle(host).lose()
        host.acquire(User())
        place.loop.run()
        assert len(place.loop.opened) == 2

    def test_one_that_says_something_while_it_is_idle_is_dropped(self, place: Place) -> None:
        host = place.host()
        transport = place.idle(host)
        transport.protocol.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
        assert transport.aborted


class TestIdleTime:
    def test_ends_by_and_by(self, place: Place) -> None:
        host = place.host()
        first = place.idle(host)
        place.loop.now += 10
        second = place.idle(host)
        place.pool.sweep(place.loop.now)
        assert not first.closing
        place.loop.now += 6
        place.pool.sweep(place.loop.now)
        assert (first.aborted, second.aborted) == (True, False)

    def test_does_not_count_while_it_is_used(self, place: Place) -> None:
        _, transport = place.connected(place.host())
        place.pool.sweep(place.loop.now + 1000)
        assert not transport.closing

    def test_ends_with_the_pool(self, place: Place) -> None:
        transports = [place.idle(place.host(name)) for name in ("one", "two")]
        place.pool.close()
        assert [transport.aborted for transport in transports] == [True, True]


class TestWhoShares:
    @pytest.mark.parametrize(
        "more",
        [
            {"name": "two"},
            {"ssl": True},
            {"ssl": True, "insecure": True},
            {"untrusted": True},
            {"ssl": True, "client_cert": "a", "client_key": "b"},
        ],
    )
    def test_what_differs_is_not_shared(self, place: Place, more: dict[str, Any]) -> None:
        assert place.host(**more) is not place.host()

    def test_what_only_the_exchange_looks_at_is(self, place: Place) -> None:
        assert place.host(over_http=True, subs=(b"x",)) is place.host()

    def test_certificates_are_checked_for_the_name_that_was_asked_for(self, place: Place) -> None:
        host = place.host(ssl=True, server_name="public")
        assert host is not place.host(ssl=True, server_name="other")
        place.connected(host)
        assert [opened[3] for opened in place.loop.opened] == ["public"]
        assert len(place.contexts) == 2

    def test_or_for_the_targets(self, place: Place) -> None:
        host = place.host(ssl=True, trust_connect_host=True, server_name="public")
        assert host is place.host(ssl=True, trust_connect_host=True, server_name="other")
        place.connected(host)
        assert [opened[3] for opened in place.loop.opened] == ["one"]

    def test_names_of_clients_do_not_add_up(self, place: Place) -> None:
        # Made by the names alone, not by TLS contexts of their own: those take long.
        context = ssl.create_default_context()
        place.pool._tls = lambda target: context
        busy = place.host(ssl=True, server_name="busy")
        place.idle(busy)
        for n in range(5000):
            place.host(ssl=True, server_name=f"name{n}")
        assert len(place.pool._hosts) <= 4097
        assert place.host(ssl=True, server_name="busy") is busy


class TestNoConnection:
    @pytest.mark.parametrize("error", [ConnectionRefusedError("no"), ssl.SSLError("bad"), UnicodeError("name")])
    def test_is_told(self, place: Place, error: Exception) -> None:
        place.loop.error = error
        user = User()
        place.host().acquire(user)
        place.loop.run()
        assert user.log == [error]

    def test_in_time_is_told_with_the_time(self, place: Place) -> None:
        place.loop.error = TimeoutError()
        user = User()
        place.host().acquire(user)
        place.loop.run()
        [error] = user.log
        assert str(error) == "no connection within 10 s"

    def test_is_wanted_any_more(self, place: Place) -> None:
        host, user = place.host(), User()
        host.acquire(user)
        host.forget(user)
        host.forget(user)
        place.loop.run()
        assert user.log == []
        assert place.loop.opened == []


class Scarce:
    """A pool whose loop opens connections only while there are descriptors; its tasks are those of the test's loop."""

    def __init__(self, free: int, timeout: float = 20) -> None:
        self.free = free
        self.later: list[Callable[[], None]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.tried = 0
        loop = cast(asyncio.AbstractEventLoop, self)
        self.shortage = DescriptorShortage(
            lambda seconds, callback: self.later.append(callback), self.time, 100, lambda: 94 - self.free
        )
        self.shortage.watch(False)

        def context(target: Target) -> ssl.SSLContext:
            raise AssertionError

        self.pool = BackendPool(loop, timeout, 15, context, AccessPolicy((), ()), self.shortage)

    def time(self) -> float:
        return 1000.0

    def create_task(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self.tasks.append(asyncio.get_running_loop().create_task(coroutine, name=name))
        return self.tasks[-1]

    async def create_connection(
        self, factory: Callable[[], BackendConnection], host: str, port: int, ssl: object, server_hostname: str | None
    ) -> tuple[Transport, BackendConnection]:
        self.tried += 1
        if not self.free:
            raise OSError(errno.EMFILE, "too many open files")
        self.free -= 1
        protocol = factory()
        transport = Transport(protocol)
        protocol.connection_made(cast(asyncio.BaseTransport, transport))
        return transport, protocol

    async def turn(self) -> None:
        """The look for a free descriptor, and what comes of it."""
        for _ in range(5):
            await asyncio.sleep(0)
        later, self.later = self.later, []
        for callback in later:
            callback()
        for _ in range(5):
            await asyncio.sleep(0)

    def ask(self, host: str = "one", fresh: bool = False) -> User:
        user = User()
        self.pool.host(Target("host", host, 80), "").acquire(user, fresh)
        return user


class TestWithoutDescriptors:
    async def test_a_connect_waits_and_is_tried_again(self) -> None:
        scarce = Scarce(0)
        one, two = scarce.ask(), scarce.ask("two")
        await scarce.turn()
        assert (one.log, two.log) == ([], [])
        assert scarce.pool.connecting == 2
        assert scarce.shortage.waits == 2
        scarce.free = 1
        await scarce.turn()
        assert (one.log, two.log) == (["connected"], [])
        scarce.free = 1
        await scarce.turn()
        assert two.log == ["connected"]
        assert scarce.pool.connecting == 0

    async def test_a_new_one_does_not_overtake(self) -> None:
        scarce = Scarce(0)
        one = scarce.ask()
        await scarce.turn()
        tried = scarce.tried
        scarce.free = 1
        late = scarce.ask()
        await asyncio.sleep(0)
        assert scarce.tried == tried
        await scarce.turn()
        assert (one.log, late.log) == (["connected"], [])
        scarce.pool.host(Target("host", "one", 80), "").forget(late)

    async def test_a_connection_that_is_given_back_is_for_the_first_that_waits(self) -> None:
        scarce = Scarce(1)
        user = scarce.ask()
        await scarce.turn()
        fresh, waiting = scarce.ask(fresh=True), scarce.ask()
        await scarce.turn()
        exchange(user, transport_of(user))
        # Not for who wants a new one.
        assert (fresh.log, waiting.log) == ([], ["connected"])
        assert waiting.connection is user.connection
        assert scarce.pool.connecting == 1
        scarce.pool.host(Target("host", "one", 80), "").forget(fresh)
        assert scarce.pool.connecting == 0

    async def test_one_of_another_target_is_closed_for_its_descriptor(self) -> None:
        scarce = Scarce(1)
        user = scarce.ask("other")
        await scarce.turn()
        waiting = scarce.ask()
        await scarce.turn()
        transport = transport_of(user)
        exchange(user, transport)
        assert transport.aborted
        scarce.free = 1
        await scarce.turn()
        assert waiting.log == ["connected"]

    async def test_so_is_an_idle_one(self) -> None:
        scarce = Scarce(1)
        user = scarce.ask("other")
        await scarce.turn()
        transport = transport_of(user)
        exchange(user, transport)
        assert not transport.aborted
        waiting = scarce.ask()
        await scarce.turn()
        assert transport.aborted
        scarce.pool.host(Target("host", "one", 80), "").forget(waiting)

    async def test_the_time_for_connecting_counts(self) -> None:
        scarce = Scarce(0, timeout=0.05)
        user = scarce.ask()
        await asyncio.wait_for(scarce.tasks[0], 20)
        [error] = user.log
        assert kind_of(error) == DESCRIPTORS
        assert "no descriptor within 0.05 s" in str(error)
        assert scarce.pool.connecting == 0

    async def test_who_leaves_waits_no_more(self) -> None:
        scarce = Scarce(0)
        user = scarce.ask()
        await scarce.turn()
        scarce.pool.host(Target("host", "one", 80), "").forget(user)
        scarce.free = 1
        await scarce.turn()
        await scarce.turn()
        assert user.log == []
        assert not scarce.shortage.queue
        assert scarce.free == 1


class Local:
    """A pool with a Unix socket that takes connections at once, unless it is full."""

    def __init__(self, most: int = 0, timeout: float = 10) -> None:
        self.full = 0
        """Connects that find the queue of the socket full."""
        loop = asyncio.get_running_loop()
        self.loop = loop
        self.opened: list[Transport] = []
        shortage = DescriptorShortage(loop.call_later, loop.time, 1000, lambda: 0)
        shortage.watch(False)

        def context(target: Target) -> ssl.SSLContext:
            raise AssertionError

        pool = BackendPool(cast(Any, self), timeout, 15, context, AccessPolicy((), ()), shortage, workers=2)
        self.host = cast(HostPool, pool.host(Target("unix", path="/run/x", connections_max=most), ""))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    async def create_unix_connection(
        self, factory: Callable[[], BackendConnection], path: str, ssl: object, server_hostname: str | None
    ) -> tuple[Transport, BackendConnection]:
        if self.full:
            self.full -= 1
            raise BlockingIOError(errno.EAGAIN, "full")
        protocol = factory()
        transport = Transport(protocol)
        protocol.connection_made(cast(asyncio.BaseTransport, transport))
        self.opened.append(transport)
        return transport, protocol

    def ask(self, *, changing: bool = False) -> User:
        user = User()
        user.changing = changing
        self.host.acquire(user)
        return user

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.001)


class TestLocalTargets:
    async def test_a_burst_opens_some_connections_and_uses_them_again(self) -> None:
        local = Local()
        users = [local.ask() for _ in range(300)]
        left = set(users)
        while left:
            await local.until(lambda: any(user.log for user in left))
            for user in [user for user in left if user.log]:
                left.remove(user)
                assert user.take() == ["connected"]
                exchange(user, transport_of(user))
        assert len(local.opened) < 100

    async def test_one_that_keeps_its_connections_gets_more(self) -> None:
        local = Local()
        users = [local.ask() for _ in range(300)]
        await local.until(lambda: all(user.log for user in users))
        assert len(local.opened) == 300

    async def test_up_to_the_share_of_the_worker(self) -> None:
        local = Local(most=20)
        users = [local.ask() for _ in range(12)]
        await local.until(lambda: len(local.opened) == 10)
        exchange(users[0], transport_of(users[0]))
        assert [user.log for user in users[10:]] == [["connected"], []]
        transport_of(users[1]).lose()
        await local.until(lambda: users[11].log)
        assert len(local.opened) == 11

    async def test_a_publisher_does_not_wait_for_all_readers(self) -> None:
        local = Local(most=2)
        first, *readers = [local.ask() for _ in range(5)]
        await local.until(lambda: first.log)
        publisher = local.ask(changing=True)
        exchange(first, transport_of(first))
        assert publisher.log == ["connected"]
        for user in readers:
            local.host.forget(user)

    async def test_a_full_socket_is_tried_again(self) -> None:
        local = Local()
        local.full = 3
        user = local.ask()
        await local.until(lambda: user.log)
        assert user.log == ["connected"]

    async def test_a_request_that_waits_gives_up_in_time(self) -> None:
        local = Local(most=2, timeout=0.05)
        users = [local.ask() for _ in range(2)]
        await local.until(lambda: all(user.log for user in users))
        assert users[0].log == ["connected"]
        assert str(users[1].log[0]) == "no connection within 0.05 s"

    async def test_one_that_leaves_gets_none(self) -> None:
        local = Local(most=2)
        first, second, third = [local.ask() for _ in range(3)]
        await local.until(lambda: first.log)
        local.host.forget(second)
        exchange(first, transport_of(first))
        assert (second.log, third.log) == ([], ["connected"])

    async def test_a_connection_that_is_handed_over_is_none_of_the_target_any_more(self) -> None:
        local = Local(most=2)
        first = local.ask()
        await local.until(lambda: first.log)
        second = local.ask()
        assert first.connection is not None
        first.connection.detach()
        await local.until(lambda: second.log)
        assert second.log == ["connected"]


class TestPolicy:
    def test_untrusted_targets_may_not_have_every_address(self) -> None:
        place = Place(deny=("127.0.0.0/8", "10.0.0.0/8"))
        place.loop.addresses = {"one": ["127.0.0.1", "::ffff:10.0.0.1"]}
        user = User()
        place.host(untrusted=True).acquire(user)
        place.loop.run()
        [error] = user.log
        assert isinstance(error, Blocked)
        assert place.loop.opened == []

    def test_the_first_that_is_allowed_is_connected_to(self) -> None:
        # To the address, not to the name: it could be resolved otherwise the next moment.
        place = Place(deny=("127.0.0.0/8",))
        place.loop.addresses = {"one": ["127.0.0.1", "192.0.2.7", "192.0.2.8"]}
        place.connected(place.host(untrusted=True))
        assert place.loop.opened == [("192.0.2.7", 80, None, None)]

    def test_trusted_targets_are_not_looked_at(self) -> None:
        place = Place(deny=("0.0.0.0/0",))
        place.connected(place.host())
        assert place.loop.opened == [("one", 80, None, None)]


class TestOneResponse:
    def asking(self, place: Place) -> tuple[User, Transport]:
        user, transport = place.connected(place.host())
        assert user.connection is not None
        user.connection.send(b"GET / HTTP/1.1\r\n\r\n", False)
        assert transport.take() == b"GET / HTTP/1.1\r\n\r\n"
        return user, transport

    def test_is_told_as_it_comes(self, place: Place) -> None:
        user, transport = self.asking(place)
        for piece in (b"HTTP/1.1 103 Early\r\n\r\n", ANSWER[:-1], ANSWER[-1:]):
            transport.protocol.data_received(piece)
        assert user.take() == [("interim", 103), 200, b"h", b"i", "complete"]

    def test_may_end_with_the_connection(self, place: Place) -> None:
        user, transport = self.asking(place)
        transport.protocol.data_received(b"HTTP/1.1 200 OK\r\n\r\nhi")
        transport.lose()
        assert user.take()[:3] == [200, b"hi", "complete"]

    @pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh"])
    def test_may_not_come(self, place: Place, begun: bytes) -> None:
        user, transport = self.asking(place)
        if begun:
            transport.protocol.data_received(begun)
        transport.lose()
        assert user.take()[-1] == ("failed", False, True)

    @pytest.mark.parametrize(("error", "clean"), [(None, True), (ConnectionResetError(), False)])
    def test_may_not_come_on_a_connection_that_was_idle(
        self, place: Place, error: Exception | None, clean: bool
    ) -> None:
        host = place.host()
        transport = place.idle(host)
        user = User()
        host.acquire(user)
        assert user.connection is not None
        user.connection.send(b"GET / HTTP/1.1\r\n\r\n", False)
        transport.protocol.connection_lost(error)
        assert user.take() == ["connected", ("failed", True, clean)]

    def test_that_is_none_breaks_the_connection(self, place: Place) -> None:
        user, transport = self.asking(place)
        transport.protocol.data_received(b"SSH-2.0\r\n\r\n")
        assert user.take() == [("failed", False, True)]
        assert transport.aborted

    def test_is_not_told_to_one_that_has_left(self, place: Place) -> None:
        user, transport = self.asking(place)
        assert user.connection is not None
        user.connection.abort()
        transport.lose()
        assert user.take() == []
        assert transport.aborted

    def test_the_request_is_not_taken_as_fast_as_it_comes(self, place: Place) -> None:
        user, transport = self.asking(place)
        transport.protocol.pause_writing()
        transport.protocol.resume_writing()
        assert user.take() == [("blocked", True), ("blocked", False)]

    def test_a_101_gives_the_transport_away_with_what_came_behind_it(self, place: Place) -> None:
        user, transport = place.connected(place.host())
        connection = user.connection
        assert connection is not None
        connection.send(b"GET / HTTP/1.1\r\n\r\n", False, upgrade=True)
        connection.data_received(b"HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nrest")
        assert user.take()[0] == 101
        given, rest = connection.detach()
        assert cast(Any, given) is transport
        assert rest == b"rest"


class TestKinds:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (ConnectionRefusedError(), "refused"),
            (TimeoutError(), "timed-out"),
            (ssl.SSLError(), "tls"),
            (ssl.SSLCertVerificationError(), "tls"),
            (socket.gaierror(-2, "no such name"), "unresolved"),
            (UnicodeError(), "unresolved"),
            (Blocked(), "blocked"),
            (OSError(errno.EMFILE, "too many"), "no-descriptors"),
            (OSError(errno.ENFILE, "too many"), "no-descriptors"),
            (ConnectionResetError(), "reset"),
            (OSError(errno.EHOSTUNREACH, "no route"), "unreachable"),
        ],
    )
    def test_of_failures_to_connect(self, error: Exception, kind: str) -> None:
        assert kind_of(error) == kind

    def test_an_answer_ends_an_outage(self, place: Place) -> None:
        host = place.host()
        outage = host.outage = Outage("one:80", 0)
        user, transport = place.connected(host)
        assert not outage.answered
        exchange(user, transport)
        assert outage.answered

    def test_so_does_a_protocol_that_begins(self, place: Place) -> None:
        host = place.host()
        outage = host.outage = Outage("one:80", 0)
        user, _ = place.connected(host)
        assert user.connection is not None
        user.connection.detach()
        assert outage.answered
