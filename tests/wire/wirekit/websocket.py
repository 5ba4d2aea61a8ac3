"""WebSockets for cases: a client, and a backend that speaks WebSocket itself. Neither answers anything by itself."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import queue
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from tests.wire.wirekit.backend import Exchange
from tests.wire.wirekit.client import PATIENCE, Aborted, Client, Silence
from tests.wire.wirekit.frames import (
    BINARY,
    CLOSE_FRAME,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Frame,
    closing,
    frame,
    take_frame,
)
from tests.wire.wirekit.messages import Request, Response, response
from tests.wire.wirekit.site import Site

__all__ = ["KEY", "Accept", "Socket", "accept_of", "direct", "handshake", "reject", "websocket"]

KEY = "d2lyZS13aXJlLXdpcmUtMQ=="
"""Key of every client's handshake."""


def accept_of(key: str) -> str:
    """Return the ``Sec-WebSocket-Accept`` that belongs to a key."""
    return base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()


def handshake(*headers: str) -> list[str]:
    """Return the header lines of a client's handshake; a line of the same name replaces a standard one.

    A line that ends with its colon (``Sec-WebSocket-Key:``) leaves the standard one out.
    """
    lines = ["Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13"]
    names = {line.partition(":")[0].lower() for line in headers}
    kept = [line for line in lines if line.partition(":")[0].lower() not in names]
    return [*kept, *(line for line in headers if not line.endswith(":"))]


class Socket:
    """One end of an open WebSocket: sends what it is told, and reads frame by frame."""

    def __init__(self, wire: Client, mask: bool, request: Request | None = None) -> None:
        """`mask` is for the client's end; `request` is the handshake that a backend accepted."""
        self.wire = wire
        self.mask = mask
        self._request = request
        self.response: Response | None = None
        """The answer to the handshake, at the client's end."""
        self.done = threading.Event()

    @property
    def request(self) -> Request:
        """The handshake that the backend accepted (at the backend's end)."""
        assert self._request is not None
        return self._request

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.done.set()
        self.wire.close()

    # Writing

    def frame(self, opcode: int, payload: bytes | str = b"", *, fin: bool = True, reserved: int = 0) -> None:
        """Send one frame."""
        data = payload.encode() if isinstance(payload, str) else payload
        self.wire.send(frame(opcode, data, fin=fin, mask=self.mask, reserved=reserved))

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.wire.send(data)

    def text(self, content: str | bytes) -> None:
        """Send a text message in one frame."""
        self.frame(TEXT, content)

    def binary(self, content: bytes) -> None:
        """Send a binary message in one frame."""
        self.frame(BINARY, content)

    def ping(self, content: bytes = b"") -> None:
        """Send a ping."""
        self.frame(PING, content)

    def pong(self, content: bytes = b"") -> None:
        """Send a pong."""
        self.frame(PONG, content)

    def close(self, code: int | None = None, reason: str = "") -> None:
        """Send a close frame."""
        self.frame(CLOSE_FRAME, closing(code, reason))

    def reset(self) -> None:
        """Vanish with a TCP reset."""
        self.done.set()
        self.wire.reset()

    # Reading

    def next(self, timeout: float = PATIENCE) -> Frame:
        """Return the next frame. Raises `Aborted` at the end of the connection."""
        deadline = time.monotonic() + timeout
        while (taken := take_frame(self.wire.buffer)) is None:
            if not self.wire.more(deadline):
                raise Aborted(f"the connection ended; unread: {self.wire.buffer[:200]!r}")
        got, self.wire.buffer = taken
        assert got.masked != self.mask, "a frame masked on the wrong side"
        return got

    def message(self, timeout: float = PATIENCE) -> tuple[int, bytes]:
        """Return the next message (opcode, content), put together from its fragments; control frames may not come."""
        deadline = time.monotonic() + timeout
        first = self.next(timeout)
        opcode, parts, last = first.opcode, [first.payload], first
        while not last.fin:
            last = self.next(deadline - time.monotonic())
            assert last.opcode == CONTINUATION, last
            parts.append(last.payload)
        return opcode, b"".join(parts)

    def says(self, content: str, timeout: float = PATIENCE) -> bool:
        """Tell whether the next message is this text."""
        got = self.message(timeout)
        assert got == (TEXT, content.encode()), got
        return True

    def closed(self, timeout: float = PATIENCE) -> tuple[int | None, bytes]:
        """Return code and reason of the close frame that comes next."""
        got = self.next(timeout)
        assert got.opcode == CLOSE_FRAME, got
        return (int.from_bytes(got.payload[:2], "big") if got.payload else None), got.payload[2:]

    def dropped(self, timeout: float = PATIENCE) -> bool:
        """Tell whether the connection ends without another byte."""
        rest = self.wire.until_close(timeout)
        assert rest == b"", rest
        return True

    def ending(self, timeout: float = PATIENCE) -> tuple[int | None, bytes]:
        """Return how the connection ends: code and reason of a close frame, ``(1006, b"")`` without one.

        Other frames before it are read away, as in RFC 6455 §7.1.5 1006 is never on the wire.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                got = self.next(deadline - time.monotonic())
            except Aborted:
                return 1006, b""
            if got.opcode == CLOSE_FRAME:
                return (int.from_bytes(got.payload[:2], "big") if got.payload else None), got.payload[2:]

    def silent(self, seconds: float) -> bool:
        """Tell whether nothing comes for so long. Only for what must *not* happen."""
        return self.wire.silent(seconds)

    def echoes(self, content: str = "still there?") -> bool:
        """Send a text and tell whether the very next message is the same text: for peers that echo."""
        self.text(content)
        return self.says(content)


@contextlib.contextmanager
def websocket(site: Site, uri: str, *headers: str, port: str = "http") -> Iterator[Socket]:
    """Open a WebSocket as a client; it must be accepted."""
    with site.connect(port) as client:
        client.request("GET", uri, *handshake(*headers))
        answer = client.head()
        assert answer.status == 101, (answer.line, client.rest())
        socket = Socket(client, mask=True)
        socket.response = answer
        yield socket


def reject(site: Site, uri: str, *headers: str, method: str = "GET", version: str = "HTTP/1.1") -> Response:
    """Try a handshake as a client and return the whole answer, which must not be 101."""
    with site.connect() as client:
        client.request(method, uri, *handshake(*headers), version=version)
        answer = client.response()
        assert answer.status != 101, "the handshake was accepted"
        return answer


class Accept:
    """An answer for `Backend.on`: takes the handshake and hands the open WebSocket to the case."""

    def __init__(self, *headers: str, then: bytes = b"") -> None:
        """`headers` go into the 101, the bytes `then` right behind it, in the same write."""
        self.headers = headers
        self.then = then
        self._open: queue.SimpleQueue[Socket] = queue.SimpleQueue()

    def __call__(self, exchange: Exchange) -> None:
        """Called by the backend, in the thread of the connection; it stays until the case is done with the socket."""
        key = exchange.request["Sec-WebSocket-Key"] or ""
        names = {line.partition(":")[0].lower() for line in self.headers}
        standard = ["Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Accept: {accept_of(key)}"]
        lines = [line for line in standard if line.partition(":")[0].lower() not in names]
        head = response("101 Switching Protocols", *lines, *(line for line in self.headers if not line.endswith(":")))
        socket = Socket(Client(exchange.sock), mask=False, request=exchange.request)
        socket.wire.buffer, exchange.buffer = exchange.buffer, b""
        exchange.send(head + self.then)
        self._open.put(socket)
        socket.done.wait(60)
        exchange.close()

    def socket(self, timeout: float = PATIENCE) -> Socket:
        """Return the next WebSocket that was accepted, waiting for it."""
        try:
            return self._open.get(timeout=timeout)
        except queue.Empty:
            raise Silence("no handshake reached the backend") from None


@contextlib.contextmanager
def direct(site: Site, uri: str, *headers: str, answer: tuple[str, ...] = ()) -> Iterator[tuple[Socket, Socket]]:
    """Open a WebSocket through to a backend that speaks WebSocket: the client's end and the backend's end.

    `headers` belong to the client's handshake, `answer` to the backend's.
    """
    accept = Accept(*answer)
    site.backend.on(uri.partition("?")[0], accept)
    with websocket(site, uri, *headers) as client, accept.socket() as backend:
        yield client, backend
