"""A worker without sockets.

The real worker, client connections, exchanges and backend connections, on a loop, transports and a pool that are only
memory.

Unrealistic: time stands still unless ``House.pass_time`` moves it; a transport takes any amount of data, and blocks at
the test's command; the pool opens connections at the test's command, and never by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast
from unittest import mock

from gripproxy.backend.connection import BackendConnection, Sink
from gripproxy.backend.outages import Outage
from gripproxy.backend.test_target import TestPool
from gripproxy.client.http_connection import HttpConnection
from gripproxy.config import Config, load_config
from gripproxy.grip.item import Item
from gripproxy.grip.item_pack import pack_item
from gripproxy.pipe import ITEM, SUBSCRIBE, SUBSCRIBED, Message
from gripproxy.routing.route import Target
from gripproxy.worker import worker
from gripproxy.worker.worker import Worker


class Timer:
    """A handle of ``call_later``."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """The part of an event loop that the worker uses, with a clock set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Callable[..., Any], tuple[Any, ...], Timer]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> Timer:
        timer = Timer()
        heapq.heappush(self._timers, (self.now + seconds, next(self._order), callback, args, timer))
        return timer

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Timer:
        return self.call_later(0, callback, *args)

    def create_future(self) -> asyncio.Future[Any]:
        return cast("asyncio.Future[Any]", Future())

    def run(self, seconds: float = 0) -> None:
        """Let ``seconds`` pass, and run due timers in order."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, callback, args, timer = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            if not timer.cancelled:
                callback(*args)
        self.now = end


class Future:
    """A future without a waiter."""

    def __init__(self) -> None:
        self.result: Any = None
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any) -> None:
        assert not self._done
        self._done, self.result = True, result


class Socket:
    """A socket without a descriptor: the kernel cannot be asked about it."""

    family = socket.AF_INET

    def fileno(self) -> int:
        return -1


class Transport:
    """One end of a TCP connection that keeps written bytes. ``protocol`` is notified of its end by the test."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.out: list[bytes] = []
        self.reading = True
        self.closing = self.aborted = self.eof_written = False
        self.lost = False
        self.buffered = 0
        """Number of unwritten bytes to report; a test sets it."""

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        if not self.closing and data:
            self.out.append(data)

    def take(self) -> bytes:
        out = b"".join(self.out)
        self.out.clear()
        return out

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof_written = True

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("192.0.2.1", 4000), "socket": Socket()}.get(name)

    def lose(self) -> None:
        """The connection is gone."""
        if not self.lost:
            self.lost = self.closing = True
            self.protocol.connection_lost(None)


class Browser:
    """A client: sends bytes, and keeps the proxy's answers."""

    def __init__(self, house: House, secure: bool = False) -> None:
        self.connection = HttpConnection(house.worker.context, secure)
        self.transport = Transport(self.connection)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def says(self, data: bytes) -> Browser:
        """Bytes arrive; while the proxy does not read, none may."""
        assert self.transport.reading, "the proxy does not read"
        self.connection.data_received(data)
        return self

    def take(self) -> bytes:
        return self.transport.take()

    def blocks(self, blocked: bool = True) -> None:
        if blocked:
            self.connection.pause_writing()
        else:
            self.connection.resume_writing()


class Backend:
    """One connection to a backend: the real protocol on a transport of memory."""

    def __init__(self, pool: Pool, target: Target) -> None:
        self.target = target
        self.connection = BackendConnection(pool)
        self.transport = Transport(self.connection)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def says(self, data: bytes) -> None:
        assert self.transport.reading, "the proxy does not read"
        self.connection.data_received(data)

    def take(self) -> bytes:
        return self.transport.take()

    def leaves(self) -> None:
        self.transport.lose()

    @property
    def free(self) -> bool:
        """True if the connection may be used again."""
        return not self.transport.closing and self.connection.sink is None


class Pool:
    """The backend pool: connections are opened, refused and handed out by the test. One list of idle ones for all."""

    def __init__(self, loop: Loop | None = None) -> None:
        self._loop = loop
        self.wanted: list[tuple[Sink, Target]] = []
        self.idle: list[Backend] = []
        self.opened: list[Backend] = []
        self.forgotten: list[Sink] = []
        self._target: Target | None = None
        self.outage: Outage | None = None

    @property
    def target(self) -> Target:
        """The one asked for last."""
        assert self._target is not None
        return self._target

    def host(self, target: Target, server_name: str) -> Pool | TestPool:
        if target.kind == "test":
            loop: Any = self._loop
            return TestPool(target, loop)
        self._target = target
        return self

    def acquire(self, sink: Sink, fresh: bool = False) -> None:
        assert self._target is not None
        if self.idle and not fresh:
            backend = self.idle.pop()
            backend.connection.sink = sink
            sink.on_connected(backend.connection)
        else:
            self.wanted.append((sink, self._target))

    def connect(self) -> Backend:
        """The connection that was asked for first is open."""
        sink, target = self.wanted.pop(0)
        backend = Backend(self, target)
        self.opened.append(backend)
        backend.connection.sink = sink
        sink.on_connected(backend.connection)
        return backend

    def refuse(self, error: Exception | None = None) -> Target:
        """The connection that was asked for first cannot be opened."""
        sink, target = self.wanted.pop(0)
        sink.on_connect_failed(error or ConnectionRefusedError("refused"))
        return target

    # called by connections and the worker

    def forget(self, sink: Sink) -> None:
        self.forgotten.append(sink)
        self.wanted = [wanted for wanted in self.wanted if wanted[0] is not sink]

    def put(self, connection: BackendConnection) -> None:
        self.idle.append(next(backend for backend in self.opened if backend.connection is connection))

    def discard(self, connection: BackendConnection) -> None:
        self.idle = [backend for backend in self.idle if backend.connection is not connection]

    def sweep(self, now: float) -> None:
        pass

    def close(self) -> None:
        self.idle.clear()


def pooled(pool: Pool) -> contextlib.AbstractContextManager[object]:
    """Within it, workers are made with this backend pool."""
    return mock.patch.object(worker, "BackendPool", return_value=pool)


class Pipe:
    """The link to the handler: keeps sent messages."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.reading = True
        self.queued = 0

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        pass

    def take(self) -> list[Message]:
        sent, self.sent = self.sent, []
        return sent


def config(routes: tuple[str, ...] = ("* one:80",), **changes: Any) -> Config:
    """The built-in configuration with these routes; ``changes`` are values of the section that has the key."""
    loaded = load_config(None, routes=routes)
    for key, value in changes.items():
        for section in ("proxy", "runner", "handler", "globals"):
            if hasattr(getattr(loaded, section), key):
                loaded = replace(loaded, **{section: replace(getattr(loaded, section), **{key: value})})
                break
        else:
            raise KeyError(key)
    return loaded


class House:
    """A worker with its surroundings."""

    def __init__(self, *routes: str, real: bool = False, **changes: Any) -> None:
        """``real``: the worker has a BackendPool."""
        self.loop = Loop()
        changes.setdefault("workers", 1)
        changes.setdefault("update_on_first_subscription", False)
        loop: Any = self.loop
        self.pool = Pool(self.loop)
        """The backend pool, unless the worker has a real one."""
        settings = config(routes or ("* one:80",), **changes)
        with contextlib.nullcontext() if real else pooled(self.pool):
            self.worker = Worker(settings, 1, loop)
        self.pipe = Pipe()
        link: Any = self.pipe
        self.worker.link._link = link
        self.worker.routes.load()
        self.worker.table.announce(1, "1")
        self.worker._tick()
        self.worker._sweep()
        self.pipe.take()

    def browser(self, secure: bool = False) -> Browser:
        return Browser(self, secure)

    def pass_time(self, seconds: float) -> None:
        self.loop.run(seconds)

    def hears(self, *messages: Message) -> None:
        """Messages of the handler."""
        self.worker.messages.deliver(self.pipe, list(messages))  # type: ignore[arg-type]

    def confirm(self, recent: bytes | None = None) -> None:
        """Answer all open SUBSCRIBE messages, as the handler does."""
        for message in self.pipe.take():
            if message[0] == SUBSCRIBE:
                self.hears((SUBSCRIBED, message[1], message[2], recent))

    def publish(self, *items: Item) -> None:
        self.hears(*((ITEM, pack_item(item)) for item in items))


class Parsed:
    """A response taken apart, and the bytes after it; raises if the bytes are not a response."""

    def __init__(self, data: bytes) -> None:
        head, mark, rest = data.partition(b"\r\n\r\n")
        assert mark, data
        line, *lines = head.split(b"\r\n")
        self.version, code, self.reason = line.split(b" ", 2)
        self.code = int(code)
        self.headers = [tuple(entry.split(b": ", 1)) for entry in lines]
        self.rest = rest

    def get(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def body(self) -> bytes:
        """The body: by its length, by its chunks, or all there is."""
        length = self.get(b"Content-Length")
        if length is not None:
            return self.rest[: int(length)]
        if self.get(b"Transfer-Encoding") == b"chunked":
            return unchunk(self.rest)[0]
        return self.rest


def unchunk(data: bytes) -> tuple[bytes, bool]:
    """Return the content of the chunks, and whether the last one was there."""
    content = b""
    while data:
        size, mark, data = data.partition(b"\r\n")
        assert mark
        count = int(size, 16)
        if not count:
            assert data == b"\r\n", data
            return content, True
        content += data[:count]
        assert data[count : count + 2] == b"\r\n"
        data = data[count + 2 :]
    return content, False
