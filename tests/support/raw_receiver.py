"""Receiver of push requests that answers with any bytes, at any time; it records what it is sent."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.hub import until

__all__ = ["RawReceiver", "RawRequest", "Way", "answer", "raw_receiver", "silence"]

Way = Callable[["RawRequest", asyncio.StreamWriter], Awaitable[None]]
"""Way of answering; the connection is closed when it raises."""


@dataclass(frozen=True, slots=True)
class RawRequest:
    """Request.

    Attributes:
        method: its method.
        target: path and query.
        headers: values by name in lower case.
        body: its content.
        began: monotonic time in seconds at which all of it was there.
        connection: number of its connection, from 0 on.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    began: float
    connection: int

    @property
    def message(self) -> dict[str, Any]:
        """Message of a wrapped request."""
        found: dict[str, Any] = json.loads(self.body)["message"]
        return found

    @property
    def text(self) -> str:
        """Data of the message of a wrapped request."""
        return base64.b64decode(self.message.get("data", "")).decode()


def answer(status: int = 204, headers: str = "", body: bytes = b"") -> Way:
    """Return the way that answers with a status.

    Args:
        status: its code.
        headers: lines, each with CR LF.
        body: content.
    """

    async def way(request: RawRequest, writer: asyncio.StreamWriter) -> None:
        length = "" if status < 200 or status == 204 else f"Content-Length: {len(body)}\r\n"
        writer.write(f"HTTP/1.1 {status} Text\r\n{length}{headers}\r\n".encode() + body)
        await writer.drain()

    return way


async def silence(request: RawRequest, writer: asyncio.StreamWriter) -> None:
    """Answer nothing until the connection is closed."""
    await asyncio.get_running_loop().create_future()


@dataclass(eq=False)
class RawReceiver:
    """Server on a port of its own.

    Attributes:
        port: of the server.
        way: answers requests for paths that ``ways`` does not have.
        ways: by path.
        requests: all requests, in the order of their arrival.
    """

    port: int = 0
    way: Way = field(default_factory=answer)
    ways: dict[str, Way] = field(default_factory=dict)
    requests: list[RawRequest] = field(default_factory=list)
    scheme: str = "http"
    _connections: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def url(self, path: str = "/push", host: str = "127.0.0.1") -> str:
        """Return the URL of a ``path``."""
        return f"{self.scheme}://{host}:{self.port}{path}"

    def at(self, path: str = "/push", method: str = "POST") -> list[RawRequest]:
        """Return the requests of a method for a ``path``, in order."""
        return [each for each in self.requests if each.target.partition("?")[0] == path and each.method == method]

    async def wait(self, count: int, path: str = "/push") -> list[RawRequest]:
        """Wait until there were ``count`` requests for a ``path``; return them."""
        await until(lambda: len(self.at(path)) >= count, f"{count} requests for {path}")
        return self.at(path)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number, self._connections = self._connections, self._connections + 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                line, *lines = head.decode("latin-1").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, target, _ = line.split(" ")
                request = RawRequest(method, target, headers, body, time.monotonic(), number)
                self.requests.append(request)
                await self.ways.get(target.partition("?")[0], self.way)(request, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The sender has closed it, or the test has ended.
            return
        finally:
            self._tasks.discard(task)
            writer.close()

    async def stop(self) -> None:
        """End all connections."""
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait([*self._tasks])


@contextlib.asynccontextmanager
async def raw_receiver(tls: ssl.SSLContext | None = None) -> AsyncIterator[RawReceiver]:
    """Run a receiver.

    Args:
        tls: configuration of TLS; None for plain connections.
    """
    receiver = RawReceiver(scheme="http" if tls is None else "https")
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls, limit=16_000_000)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await receiver.stop()
