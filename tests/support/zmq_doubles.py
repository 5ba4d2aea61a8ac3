"""ZeroMQ sockets in memory, and the sources of a handler around them."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zmq

from gripproxy import pipe
from gripproxy.grip import tnetstring
from gripproxy.grip.item_pack import unpack_item
from handler.dispatch.dispatcher import Dispatcher
from handler.sources.source import Source, Sources
from handler.sources.zmq_pull import ZmqPull
from handler.sources.zmq_sub import ZmqSub
from tests.support.log_lines import LogLines

__all__ = ["Context", "House", "Socket", "Worker", "item", "turn"]


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
            stream = unpack_item(message[1]).stream
            assert stream is not None
            self.contents.append(stream.content)


class House:
    """An intake, its dispatcher with a worker that has the channel ``ch``, and the log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines = LogLines(monkeypatch, None).lines
        self.context = Context()
        self.sources = Sources()
        self.dispatcher = Dispatcher(linger=0, follow=self.sources.follow)
        self.worker = Worker()
        self.dispatcher.joined(self.worker, [(b"ch", 0, 1, 0, None)], 0)

    def pull(self, reserved: bytes = b"") -> str | None:
        spec = "tcp://127.0.0.1:5560"
        return self.open(ZmqPull(self._context, self.dispatcher, lambda: False, spec, reserved=reserved))

    def sub(
        self, specs: tuple[str, ...] = ("tcp://127.0.0.1:5562",), connect: bool = False, reserved: bytes = b""
    ) -> str | None:
        return self.open(ZmqSub(self._context, self.dispatcher, specs, connect, reserved=reserved))

    def open(self, source: Source) -> str | None:
        return self.sources.open(source, self.dispatcher.subscriptions.channels)

    @property
    def _context(self) -> zmq.Context[Any]:
        return cast("zmq.Context[Any]", self.context)

    def close(self) -> None:
        self.sources.close()


def item(content: bytes, channel: bytes = b"ch") -> bytes:
    return tnetstring.dumps({b"channel": channel, b"http-stream": {b"content": content}})


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
