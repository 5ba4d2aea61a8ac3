"""Thousands of clients of every kind, and their backend: all in this process, and they count what they send and get."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import httptools

from tests.wire.wirekit.events import GRIP, event, events, opened, subscribe
from tests.wire.wirekit.frames import CLOSE_FRAME, TEXT, closing, frame, take_frame
from tests.wire.wirekit.messages import response
from tests.wire.wirekit.websocket import handshake

__all__ = ["Backend", "Crowd", "Listener", "Poller", "Talker"]

PATIENCE = 90.0
"""Seconds for anything that all clients are waited for with."""
AT_ONCE = 100
"""Connections that are opened at the same time."""
WELCOME = b"welcome\n"


class Crowd:
    """The clients, and ``counts`` of what happened to them; each has its own of what it did."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.counts: Counter[str] = Counter()
        """``requests``; ``lines`` pushed, of streams, answers and messages together; ``lost`` connections; ``bytes``
        and ``messages`` got, and sent as ``bytes sent`` and ``messages sent``."""
        self._changed = asyncio.Event()

    def count(self, what: str, number: int = 1) -> None:
        """So much more has happened."""
        self.counts[what] += number
        self._changed.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Return when it is so."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not done():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"it does not come: {self.counts}") from None

    async def join(self, made: list[Client]) -> None:
        """Open their connections, a few at a time."""
        loop = asyncio.get_running_loop()
        for start in range(0, len(made), AT_ONCE):
            some = made[start : start + AT_ONCE]
            connecting = [
                loop.create_connection(lambda one=one: one, "127.0.0.1", self.port)  # type: ignore[misc]
                for one in some
            ]
            await asyncio.gather(*connecting)
            await self.until(lambda some=some: all(one.there for one in some))  # type: ignore[misc]

    async def leave(self, some: list[Client]) -> None:
        """Close their connections."""
        before = self.counts["lost"]
        for one in some:
            one.leave()
        await self.until(lambda: self.counts["lost"] == before + len(some))


class Client(asyncio.Protocol):
    """One client on ``path`` of ``host``."""

    transport: asyncio.Transport

    def __init__(self, crowd: Crowd, host: str, path: str) -> None:
        self.crowd = crowd
        self.host = host
        self.path = path
        self.there = False
        """It was answered, or at least has asked."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.ask()

    def ask(self, *headers: str) -> None:
        """Send the request."""
        lines = [f"GET {self.path} HTTP/1.1", f"Host: {self.host}", *headers, "", ""]
        self.crowd.count("requests")
        self.transport.write("\r\n".join(lines).encode())

    def leave(self) -> None:
        """Close the connection."""
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.crowd.count("lost")


class Listener(Client):
    """A stream. Its lines are those behind the opening."""

    def __init__(self, crowd: Crowd, host: str, path: str) -> None:
        super().__init__(crowd, host, path)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Some content, without its framing."""
        lines = body.count(b"\n")
        if not self.there and lines:
            self.there = True
            lines -= 1
        self.crowd.counts["bytes"] += len(body)
        self.crowd.count("lines", lines)


class Poller(Client):
    """A long-poll, again and again."""

    def __init__(self, crowd: Crowd, host: str, path: str) -> None:
        super().__init__(crowd, host, path)
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.there = True

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Some of the answer."""
        self.crowd.counts["bytes"] += len(body)

    def on_message_complete(self) -> None:
        """It is whole: ask again."""
        self.crowd.count("lines")
        self._parser = httptools.HttpResponseParser(self)
        self.ask()


class Talker(Client):
    """A WebSocket."""

    def __init__(self, crowd: Crowd, host: str, path: str) -> None:
        super().__init__(crowd, host, path)
        self._buffer = b""

    def ask(self, *headers: str) -> None:
        """Send the handshake."""
        super().ask(*handshake(), *headers)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self.there:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self.there, self._buffer = True, rest
            self.crowd.count("opened")
        while (taken := take_frame(self._buffer)) is not None:
            got, self._buffer = taken
            if got.opcode == CLOSE_FRAME:
                self.transport.close()
                return
            assert got.opcode == TEXT, got
            self.crowd.counts["bytes"] += len(got.payload)
            self.crowd.counts["messages"] += 1
            self.crowd.count("answers" if got.payload == b"pong" else "lines")

    def say(self, content: bytes) -> None:
        """Send a message, which is answered with ``pong``."""
        self.crowd.counts["bytes sent"] += len(content)
        self.crowd.counts["messages sent"] += 1
        self.transport.write(frame(TEXT, content, mask=True))

    def leave(self) -> None:
        """Close the WebSocket; the connection ends when that is answered."""
        self.transport.write(frame(CLOSE_FRAME, closing(1000), mask=True))


class Backend(asyncio.Protocol):
    """What the proxy asks: holds by path, ``/live/CHANNEL`` and so on.

    ``/sure/CHANNEL`` is a stream with ids: its items are the numbers 1 to ``last``, a line each.
    """

    last = 0
    counts: ClassVar[Counter[str]] = Counter()
    """``requests`` by the first part of the path, ``links``, and content: ``bytes`` got, ``bytes sent``, ``messages``
    and ``messages sent``, those of WebSockets without their framing."""
    everyone: ClassVar[set[Backend]] = set()

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body = b""
        self._last: int | None = None
        """What the request says that the client had last."""
        self.left = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.everyone.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.everyone.discard(self)
        self.left.set()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """A part of it."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of them."""
        if name.lower() == b"grip-last":
            self._last = int(value.rpartition(b"=")[2])

    def on_body(self, body: bytes) -> None:
        """A part of it."""
        self._body += body

    def on_message_complete(self) -> None:
        """A request is whole."""
        url, body = self._url.decode(), self._body
        self._url = self._body = b""
        path, _, query = url.partition("?")
        kind, channel = path.split("/")[1:]
        self.counts[f"requests {kind}"] += 1
        self.transport.write(getattr(self, f"_{kind}")(channel, query, body))

    def _live(self, channel: str, query: str, body: bytes) -> bytes:
        self.counts["bytes sent"] += len(WELCOME)
        return response("200 OK", "Grip-Hold: stream", f"Grip-Channel: {channel}", body=WELCOME)

    def _poll(self, channel: str, query: str, body: bytes) -> bytes:
        self.counts["bytes sent"] += 2
        return response("200 OK", "Grip-Hold: response", f"Grip-Channel: {channel}", "Grip-Timeout: 3600", body="{}")

    def _sure(self, channel: str, query: str, body: bytes) -> bytes:
        content = WELCOME
        if query:
            self.counts["links"] += 1
            last, self._last = int(query) if self._last is None else self._last, None
            content = b"".join(b"%d\n" % number for number in range(last + 1, self.last + 1))
        self.counts["bytes sent"] += len(content)
        lines = (f"Grip-Channel: {channel}; prev-id={self.last}", f"Grip-Link: </sure/{channel}?{self.last}>; rel=next")
        return response("200 OK", "Grip-Hold: stream", *lines, body=content)

    def _chat(self, channel: str, query: str, body: bytes) -> bytes:
        if body.startswith(b"OPEN"):
            made = subscribe(channel)
            self._said(made)
            return opened(made, headers=(GRIP,))
        parts = []
        for size in re.findall(rb"TEXT ([0-9a-f]+)\r\n", body):
            self.counts["bytes"] += int(size, 16)
            self.counts["messages"] += 1
            parts.append(event("TEXT", "m:pong"))
            self._said(parts[-1])
        if b"CLOSE" in body:
            parts.append(event("CLOSE", (1000).to_bytes(2, "big")))
        return events(*parts)

    def _said(self, made: bytes) -> None:
        self.counts["bytes sent"] += int(made.split(b"\r\n")[0].split()[1], 16)
        self.counts["messages sent"] += 1

    @classmethod
    async def close_all(cls, server: asyncio.Server) -> None:
        """Close the server and all its connections."""
        server.close()
        for one in (open_ones := list(cls.everyone)):
            one.transport.abort()
        for one in open_ones:
            await one.left.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 5)
