"""Workloads: the proxy's most frequent operations, repeated without sockets, for counting and timing.

Everything between the bytes that arrive and the bytes that leave is real. Transports, the ZeroMQ socket and the loop
are doubles in memory. Clocks stand still, so that no timer of a second fires. The one module of bench that imports the
project: all others start it as programs.
``tests/unit/test_work.py`` counts the errands' work, ``bench/work.py`` times them and counts the processor's
instructions.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest import mock

import tnetstring
import zmq

from gripproxy.backend.connection import BackendConnection
from gripproxy.client import access_log, exchange
from gripproxy.client.http_connection import HttpConnection
from gripproxy.grip.frames import TEXT, serialise
from gripproxy.grip.item import Item, MessageFormat, StreamFormat
from gripproxy.grip.item_pack import pack_item
from gripproxy.pipe import HELLO, ITEM, SUBSCRIBE, VERSION, PipeConnection, encode
from gripproxy.process.log import INFO, WARNING, Log, log
from gripproxy.worker import worker as worker_module
from handler.control.api import Api
from handler.control.authenticator import Authenticator
from handler.control.http_server import HttpServer, HttpServerConnection, Limits
from handler.dispatch.dispatcher import Dispatcher
from handler.dispatch.worker_links import WorkerLinks
from handler.sources.zmq_pull import ZmqPull
from tests.support.doubles import House, Loop
from tests.support.doubles import Transport as Recorder

__all__ = ["ERRANDS", "Errand", "Wire", "at_work"]

CHANNELS: Final = 100
"""Channels of an errand with an own channel per client."""

PAGES: Final = 100
"""Different pages that are asked for in turn."""

SMALL: Final = b"GET /hello HTTP/1.1\r\nHost: bench.example\r\n\r\n"

BROWSER: Final = (
    b"GET /hello HTTP/1.1\r\n"
    b"Host: bench.example\r\n"
    b"Connection: keep-alive\r\n"
    b"Cache-Control: max-age=0\r\n"
    b'sec-ch-ua: "Chromium";v="126", "Google Chrome";v="126", "Not-A.Brand";v="99"\r\n'
    b"sec-ch-ua-mobile: ?0\r\n"
    b'sec-ch-ua-platform: "Linux"\r\n'
    b"Upgrade-Insecure-Requests: 1\r\n"
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
    b"Chrome/126.0.0.0 Safari/537.36\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n"
    b"Sec-Fetch-Site: same-origin\r\n"
    b"Sec-Fetch-Mode: navigate\r\n"
    b"Sec-Fetch-User: ?1\r\n"
    b"Sec-Fetch-Dest: document\r\n"
    b"Referer: https://bench.example/start\r\n"
    b"Accept-Encoding: gzip, deflate, br, zstd\r\n"
    b"Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n"
    b"Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; _ga=GA1.1.123456789.1700000000\r\n"
    b"\r\n"
)

HELLO_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n"

PAGE_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\n"
    b"Server: backend\r\n"
    b"Date: Mon, 01 Jan 2024 00:00:00 GMT\r\n"
    b"Content-Type: text/html; charset=utf-8\r\n"
    b"Vary: Cookie\r\n"
    b"X-Frame-Options: DENY\r\n"
    b"Cache-Control: no-store\r\n"
    b"Content-Length: 6\r\n\r\nhello\n"
)

UPGRADE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: bench.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Wire(Recorder):
    """One end of a connection that counts what is written, and keeps the last of it."""

    writes = 0
    """Writes of all wires: each is a system call where the socket takes it at once."""

    def __init__(self, protocol: Any) -> None:
        super().__init__(protocol)
        self.last = b""

    def write(self, data: bytes) -> None:
        Wire.writes += 1
        self.last = data

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.1", 4000) if name == "peername" else None


class _Loop(Loop):
    """With descriptors, which are never readable."""

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        pass

    def remove_reader(self, fd: int) -> None:
        pass


@contextlib.contextmanager
def _running(loop: Any) -> Iterator[None]:
    """Within it, ``loop`` is the one that asyncio says is running."""
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


class Errand:
    """One of the things that are done most. ``run(times)`` does it; what it needs is there before."""

    unit = "request"
    """What one of them is."""

    least = 1
    """They are done so many at a time."""

    most = 2000
    """So many are done in one run, at most; a multiple of ``least``."""

    logged = False
    """With the log lines of the default level."""

    def run(self, times: int) -> None:
        """Do it so many times, one after the other."""
        raise NotImplementedError

    def after(self) -> None:
        """Check that what was done was that, and put everything back that the next run needs."""


class _Site(Errand):
    """A worker, and a backend's connection that is idle."""

    routes: tuple[str, ...] = ("* one:80",)

    def __init__(self) -> None:
        self.house = House(*self.routes, real=True)
        worker = self.worker = self.house.worker
        pool = worker.pool
        [route] = worker.router.routes.routes
        worker.router.forwarder(route, 0)._clock = lambda: 1_700_000_000.0
        host = pool.host(route.targets[0], "")
        self.backend = BackendConnection(host)
        self.asked = Wire(self.backend)
        self.backend.connection_made(self.asked)  # type: ignore[arg-type]
        host.put(self.backend)
        self.clients: list[tuple[HttpConnection, Wire]] = []

    def connect(self) -> tuple[HttpConnection, Wire]:
        client = HttpConnection(self.worker.context, False)
        wire = Wire(client)
        client.connection_made(wire)  # type: ignore[arg-type]
        return client, wire

    def hold(self, request: bytes, answer: bytes) -> None:
        client, wire = self.connect()
        client.data_received(request)
        self.backend.data_received(answer)
        self.clients.append((client, wire))

    def link(self) -> PipeConnection:
        """The worker's end of the pipe, as it is connected."""
        link = PipeConnection(self.worker.messages.deliver, lambda _: None)
        with _running(self.house.loop):
            link.connection_made(Wire(link))  # type: ignore[arg-type]
        return link

    def after(self) -> None:
        clients, self.clients = self.clients, []
        for _, wire in clients:
            wire.lose()
        self.house.pipe.take()
        self.house.pass_time(0)


class Proxied(_Site):
    """A request with few headers, on a connection that stays; each for another page than the one before."""

    request, answer = SMALL, HELLO_ANSWER

    def __init__(self) -> None:
        super().__init__()
        self.client, self.wire = self.connect()
        self.requests = [self.request.replace(b"/hello", b"/hello/%d?n=%d" % (n, 7 * n)) for n in range(PAGES)]

    def run(self, times: int) -> None:
        client, backend, requests, answer = self.client, self.backend, self.requests, self.answer
        for number in range(times):
            client.data_received(requests[number % PAGES])
            backend.data_received(answer)

    def after(self) -> None:
        assert self.wire.last.endswith(b"hello\n")
        self.wire.last = b""


class ProxiedBrowser(Proxied):
    """The same with a browser's headers, and some more of the backend."""

    request, answer = BROWSER, PAGE_ANSWER


class ProxiedLogged(ProxiedBrowser):
    """The same with its line in the log."""

    logged = True


class ProxiedNew(Proxied):
    """The same with headers that never came before, in the request as in the response."""

    number = 0

    def run(self, times: int) -> None:
        client, backend, requests, answer = self.client, self.backend, self.requests, self.answer
        for number in range(self.number, self.number + times):
            client.data_received(requests[number % PAGES][:-2] + b"X-Request-Id: %d\r\n\r\n" % number)
            backend.data_received(answer[:17] + b"ETag: %d\r\n" % number + answer[17:])
        self.number += times


class _Held(_Site):
    """New clients, each held by what the backend answers; the channel is subscribed to already."""

    unit = "hold"
    request = b"GET /stream?c=ch HTTP/1.1\r\nHost: bench.example\r\n\r\n"
    answer = b""
    held = 0

    def __init__(self) -> None:
        super().__init__()
        client, _ = self.connect()
        client.data_received(self.request)
        self.backend.data_received(self.answer)
        self.house.confirm()
        assert self.sessions == 1

    @property
    def sessions(self) -> int:
        return len(self.worker.registry.held)

    def run(self, times: int) -> None:
        for _ in range(times):
            self.hold(self.request, self.answer)
        self.held = times

    def after(self) -> None:
        assert self.sessions == self.held + 1
        super().after()
        assert self.sessions == 1


def _instruct(hold: bytes, more: bytes = b"") -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
        b"Grip-Hold: %b\r\nGrip-Channel: ch%b\r\nContent-Length: 6\r\n\r\nhello\n" % (hold, more)
    )


class HeldStream(_Held):
    """A stream."""

    answer = _instruct(b"stream")


class HeldReliable(_Held):
    """A stream with ids and a next link."""

    answer = _instruct(b"stream", b"; prev-id=1\r\nGrip-Link: </stream?c=ch&after=1>; rel=next")


class HeldPoll(_Held):
    """A long-poll."""

    answer = _instruct(b"response")


def _events(body: bytes, *lines: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/websocket-events\r\n%bContent-Length: %d\r\n\r\n%b" % (
        b"".join(lines),
        len(body),
        body,
    )


class HeldSocket(_Held):
    """A WebSocket over HTTP, subscribed by the answer to its opening."""

    routes = ("* one:80,over_http",)
    request = UPGRADE
    _control = b'c:{"type": "subscribe", "channel": "ch"}'
    answer = _events(b"OPEN\r\nTEXT %x\r\n%b\r\n" % (len(_control), _control), b"Sec-WebSocket-Extensions: grip\r\n")

    @property
    def sessions(self) -> int:
        return len(self.worker.registry.sockets)

    def after(self) -> None:
        assert self.sessions == self.held + 1
        clients, self.clients = self.clients, []
        for _, wire in clients:
            wire.lose()
            # Each tells the backend that it is gone.
            self.backend.data_received(_events(b""))
        self.house.pipe.take()
        self.house.pass_time(0)
        assert self.sessions == 1


class HeldReliableSocket(HeldSocket):
    """The same with an id."""

    _control = b'c:{"type": "subscribe", "channel": "ch", "prev-id": "1"}'
    answer = _events(b"OPEN\r\nTEXT %x\r\n%b\r\n" % (len(_control), _control), b"Sec-WebSocket-Extensions: grip\r\n")


class SocketMessage(HeldSocket):
    """A message of a WebSocket's client, posted to the backend, and the backend's message back."""

    unit = "round trip"

    def __init__(self) -> None:
        super().__init__()
        self.hold(UPGRADE, self.answer)
        [(_, self.wire)] = self.clients
        self._message = serialise(TEXT, b"hello", mask=True)
        self._echo = _events(b"TEXT 7\r\nm:hello\r\n")

    def run(self, times: int) -> None:
        socket, backend, message, echo = self.wire.protocol, self.backend, self._message, self._echo
        for _ in range(times):
            socket.data_received(message)
            backend.data_received(echo)

    def after(self) -> None:
        assert self.wire.last == serialise(TEXT, b"hello")
        self.wire.last = b""


class _Fanned(_Site):
    """Items for one channel with many clients; what is counted is a delivery."""

    unit = "delivery"
    members = 400
    """Fewer than give the loop a turn in between."""

    hold_class: type[_Held] = HeldStream

    def __init__(self) -> None:
        self.routes = self.hold_class.routes
        self.least = self.members
        super().__init__()
        for number in range(self.members):
            self.hold(self.hold_class.request, self.hold_class.answer)
            if not number:
                self.house.confirm()
        self.pipe = self.link()
        self.number = 1

    def item(self) -> Item:
        return Item(b"ch", stream=StreamFormat("send", b"hello\n"))

    def run(self, times: int) -> None:
        # In the same batch they would go out in one write.
        for _ in range(times // self.members):
            self.pipe.data_received(encode([(ITEM, pack_item(self.item()))]))
            self.house.loop.run(0)

    def after(self) -> None:
        assert all(b"hello" in wire.last for _, wire in self.clients)
        for _, wire in self.clients:
            wire.last = b""


class Delivered(_Fanned):
    """An item to one of many streams."""


class DeliveredManyTurns(_Fanned):
    """The same, with so many that a fan-out takes several turns of the loop."""

    members = 4000
    most = 20_000


class DeliveredReliable(_Fanned):
    """The same with ids, each checked against the last one that the client has."""

    hold_class = HeldReliable

    def item(self) -> Item:
        self.number += 1
        return Item(b"ch", b"%d" % self.number, b"%d" % (self.number - 1), stream=StreamFormat("send", b"hello\n"))


class DeliveredSocket(_Fanned):
    """A message to one of many WebSockets."""

    hold_class = HeldSocket

    def item(self) -> Item:
        return Item(b"ch", message=MessageFormat("send", "text", b"hello"))


class DeliveredReliableSocket(_Fanned):
    """The same with ids, each checked against the last one that the client has."""

    hold_class = HeldReliableSocket

    def item(self) -> Item:
        self.number += 1
        message = MessageFormat("send", "text", b"hello")
        return Item(b"ch", b"%d" % self.number, b"%d" % (self.number - 1), message=message)


class Unicast(_Site):
    """In the worker: an item of the pipe to a channel with one stream."""

    unit = "item"
    least = CHANNELS

    def __init__(self) -> None:
        super().__init__()
        for number in range(CHANNELS):
            channel = b"Grip-Channel: %d" % number
            self.hold(HeldStream.request, HeldStream.answer.replace(b"Grip-Channel: ch", channel))
            self.house.confirm()
        self.pipe = self.link()
        items = [Item(b"%d" % number, stream=StreamFormat("send", b"hello\n")) for number in range(CHANNELS)]
        self.frame = encode([(ITEM, pack_item(item)) for item in items])

    def run(self, times: int) -> None:
        for _ in range(times // CHANNELS):
            self.pipe.data_received(self.frame)

    def after(self) -> None:
        assert all(b"hello" in wire.last for _, wire in self.clients)
        for _, wire in self.clients:
            wire.last = b""


class _Handler(Errand):
    """A handler with one worker, which has CHANNELS channels."""

    unit = "item"

    def __init__(self) -> None:
        self.loop: Any = _Loop()
        with _running(self.loop):
            self.dispatcher = Dispatcher()
            self.links = WorkerLinks(self.dispatcher, lambda: None)
            link = self.links.accept()
            self.wire = Wire(link)
            link.connection_made(self.wire)  # type: ignore[arg-type]
            link.data_received(encode([(HELLO, VERSION, 1, "1", [])]))
            link.data_received(encode([(SUBSCRIBE, b"%d" % number, number) for number in range(CHANNELS)]))
            self.loop.run(0)

    def after(self) -> None:
        assert self.dispatcher.counters.passed, "no item has gone to the worker"
        assert b"hello" in self.wire.last
        self.wire.last = b""
        self.dispatcher.tick(self.loop.time())


class _Frame:
    """One message of one part."""

    __slots__ = ("bytes", "more")

    def __init__(self, data: bytes) -> None:
        self.bytes = data
        self.more = False


class _Queue:
    """A ZeroMQ socket with messages of one part in it."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []

    def recv(self, flags: int = 0, copy: bool = True) -> Any:
        if not self.waiting:
            raise zmq.Again
        data = self.waiting.pop()
        return data if copy else _Frame(data)

    def getsockopt(self, option: int) -> int:
        if option == zmq.EVENTS:
            return zmq.POLLIN if self.waiting else 0
        return 0

    get = getsockopt

    def fileno(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        return lambda *args: ""


class Pulled(_Handler):
    """In the handler: an item by ZeroMQ PULL, to a channel that one worker has."""

    ids = False

    def __init__(self) -> None:
        super().__init__()
        self.queue = _Queue()

        class Context:
            def socket(_, kind: int) -> Any:
                return self.queue

        context: Any = Context()
        with _running(self.loop):
            self.source = ZmqPull(context, self.dispatcher, self.links.congested, "inproc://pull")
            self.source.open(())
            self.loop.run(0)
        self.number = 0
        self.stock: list[bytes] = []
        self.refill()

    def refill(self) -> None:
        """Have as many messages as one run may need."""
        while len(self.stock) < self.most:
            self.stock.append(self.message(self.number))
            self.number += 1

    def message(self, number: int) -> bytes:
        item: dict[bytes, Any] = {
            b"channel": b"%d" % (number % CHANNELS),
            b"formats": {b"http-stream": {b"content": b"hello\n"}},
        }
        if self.ids:
            item[b"id"] = b"%d" % (number + CHANNELS)
            item[b"prev-id"] = b"%d" % number
        text: bytes = tnetstring.dumps(item)
        return b"T" + text

    def run(self, times: int) -> None:
        self.queue.waiting = self.stock[times - 1 :: -1] if times else []
        del self.stock[:times]
        self.source.look()
        while self.queue.waiting:
            self.loop.run(0)

    def after(self) -> None:
        self.refill()
        super().after()


class PulledIds(Pulled):
    """The same with id and prev-id."""

    ids = True


class Posted(_Handler):
    """In the handler: an item by HTTP, one a request."""

    unit = "request"

    def __init__(self) -> None:
        super().__init__()
        with _running(self.loop):
            api = Api(self.dispatcher, Authenticator(None), self.loop.time, self.loop.time)
            self.connection = HttpServerConnection(HttpServer(api, Limits()))
            self.client = Wire(self.connection)
            self.connection.connection_made(self.client)  # type: ignore[arg-type]
        body = b'{"items":[{"channel":"7","formats":{"http-stream":{"content":"hello\\n"}}}]}'
        self.request = (
            b"POST /publish/ HTTP/1.1\r\nHost: bench.example\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )

    def run(self, times: int) -> None:
        for _ in range(times):
            self.connection.data_received(self.request)
            self.loop.run(0)

    def after(self) -> None:
        assert self.client.last.endswith(b"Published\n")
        super().after()


ERRANDS: Final[dict[str, type[Errand]]] = {
    "request": Proxied,
    "request of a browser": ProxiedBrowser,
    "request with new headers": ProxiedNew,
    "request with its log line": ProxiedLogged,
    "stream held": HeldStream,
    "stream with ids held": HeldReliable,
    "long-poll held": HeldPoll,
    "WebSocket held": HeldSocket,
    "stream delivery": Delivered,
    "stream delivery, 4,000": DeliveredManyTurns,
    "stream delivery with ids": DeliveredReliable,
    "WebSocket delivery": DeliveredSocket,
    "WebSocket delivery with ids": DeliveredReliableSocket,
    "WebSocket round trip": SocketMessage,
    "item in the worker": Unicast,
    "item by PULL": Pulled,
    "item with ids by PULL": PulledIds,
    "item by HTTP": Posted,
}


LOGGING: Final = (exchange, access_log, worker_module)
"""Modules that log requests, and the one that gives its log to them."""


@contextlib.contextmanager
def _log(logged: bool) -> Iterator[None]:
    """Within it, workers write no lines, or (``logged``) those of the default level to nowhere."""
    own = Log()
    own._use(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), os.devnull)
    own._regular, own._poll = True, None
    loop: Any = Loop()
    own.attach(loop)
    own.level = INFO if logged else WARNING
    try:
        with contextlib.ExitStack() as stack:
            for module in LOGGING:
                stack.enter_context(mock.patch.object(module, "log", own))
            yield
    finally:
        os.close(own._fd)


@contextlib.contextmanager
def at_work(name: str) -> Iterator[Errand]:
    """The errand of that name, warm: what is made at the first use is there."""
    kind = ERRANDS[name]
    level, log.level = log.level, WARNING
    try:
        with _log(kind.logged):
            errand = kind()
            for _ in range(2):
                errand.run(errand.most // 2)
                errand.after()
            yield errand
    finally:
        log.level = level
