"""Receiver of callbacks on loopback: keeps the requests, and answers as the test has it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

__all__ = ["NO_CONTENT", "PATIENCE", "Received", "Receiver", "answered", "receiver", "until"]

PATIENCE = 30.0
"""Seconds for which a test waits for something that must happen."""

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


def answered(status: int, body: bytes = b"", *lines: bytes) -> bytes:
    """Return an answer with a content and further header lines."""
    head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n" % (status, len(body))
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


async def until(true: Callable[[], object], sentence: str) -> None:
    """Wait for something that must happen; ``sentence`` is for the failure."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while not true():
        assert asyncio.get_running_loop().time() < end, f"not in {PATIENCE:g} s: {sentence}"
        await asyncio.sleep(0.005)


class Received:
    """Request that has arrived."""

    def __init__(self, connection: Connection, number: int, head: bytes, body: bytes) -> None:
        self.connection = connection
        self.number = number
        """Number of its connection."""
        self.line, *lines = head.decode("ascii").split("\r\n")
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        self.body = body

    @property
    def document(self) -> dict[str, Any]:
        """Its content, JSON."""
        return cast(dict[str, Any], json.loads(self.body))

    def write(self, data: bytes) -> None:
        """Write a part of the answer."""
        self.connection.write(data)

    def close(self) -> None:
        """Close its connection."""
        self.connection.close()


class Connection(asyncio.Protocol):
    """Connection of the hub."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        receiver.connections += 1
        self.number = receiver.connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._receiver.open[self.number] = self
        secure = transport.get_extra_info("ssl_object")
        if secure is not None:
            self._receiver.names.append(self._receiver.asked_name)
        if self._receiver.deaf:
            # uvloop begins to read behind this call.
            asyncio.get_running_loop().call_soon(self._transport.pause_reading)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._receiver.open.pop(self.number, None)

    def data_received(self, data: bytes) -> None:
        self._data += data
        for request in self._requests():
            self._receiver.requests.append(request)
            self._receiver.answer(request)

    def _requests(self) -> Iterator[Received]:
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            request = Received(self, self.number, bytes(self._data[:end]), b"")
            size = end + 4 + int(request.headers.get("content-length", "0"))
            if len(self._data) < size:
                return
            request.body = bytes(self._data[end + 4 : size])
            del self._data[:size]
            yield request

    def write(self, data: bytes) -> None:
        """Write bytes, if it is open."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()


class Receiver:
    """Server that is called back.

    Attributes:
        requests: all that have arrived.
        answer: called with each of them; answers 204 unless the test sets another.
        open: open connections by number.
        names: names that TLS asked for, by connection.
    """

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.answer: Callable[[Received], None] = lambda request: request.write(NO_CONTENT)
        self.connections = 0
        self.open: dict[int, Connection] = {}
        self.names: list[str | None] = []
        self.asked_name: str | None = None
        self.deaf = False
        """Connections are accepted, and never read."""
        self.port = 0

    def url(self, path: str = "/hook", host: str = "127.0.0.1", scheme: str = "http") -> str:
        """Return a URL that leads here."""
        return f"{scheme}://{host}:{self.port}{path}"

    def answers(self, *data: bytes) -> None:
        """Answer each request with these bytes, the last of them again and again."""
        left = list(data)
        self.answer = lambda request: request.write(left.pop(0) if len(left) > 1 else left[0])

    def note_name(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Note the name that a TLS handshake asks for."""
        self.asked_name = name


@asynccontextmanager
async def receiver(tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    """Run a receiver on a free port of an address, with TLS or without."""
    found = Receiver()
    if tls is not None:
        tls.sni_callback = cast(Any, found.note_name)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(found), host, 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for connection in list(found.open.values()):
            connection.close()
        await until(lambda: not found.open, "all connections of the receiver are closed")
        await server.wait_closed()
