"""A client on a raw socket. It never sleeps: every read waits for bytes, up to a deadline."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from types import TracebackType
from typing import Self

from tests.wire.wirekit.messages import Response, parse_headers, to_bytes
from tests.wire.wirekit.messages import request as build_request

__all__ = ["PATIENCE", "Aborted", "Client", "Silence"]

PATIENCE = 25.0
"""Seconds that a read waits for bytes that must come. Well above anything a healthy proxy needs."""


class Aborted(Exception):
    """The connection ended inside a message."""


class Silence(AssertionError):
    """The bytes waited for did not come before the deadline."""


class Client:
    """One connection to a proxy (or any HTTP server), with a read buffer.

    Reads of a body follow the framing of the last head read with `head`.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        self.sock = sock
        self.buffer = b""
        self._left: int | None = None
        self._framing = "none"
        self.ended = False

    @classmethod
    def connect(
        cls,
        port: int,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        receive_buffer: int | None = None,
    ) -> Self:
        """Connect over TCP; `tls` and `server_name` (SNI) wrap it; `receive_buffer` bytes make it a slow reader."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE)
        try:
            if receive_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.connect((host, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock = tls.wrap_socket(sock, server_hostname=server_name)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    @classmethod
    def connect_unix(cls, path: str) -> Self:
        """Connect to a unix socket."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE)
        try:
            sock.connect(path)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection in the ordinary way."""
        self.sock.close()

    def reset(self) -> None:
        """Close the connection with a TCP reset, as a client that vanishes."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    # Writing

    def send(self, data: bytes | str) -> None:
        """Send bytes as they are (text as UTF-8)."""
        self.sock.settimeout(PATIENCE)
        self.sock.sendall(to_bytes(data))

    def request(self, method: str, uri: str, *headers: str, body: bytes | str = b"", version: str = "HTTP/1.1") -> None:
        """Send a request as `wirekit.request` builds it, without waiting for anything."""
        self.send(build_request(method, uri, *headers, body=body, version=version))

    def finish(self) -> None:
        """Half-close: no more bytes will come from us, but we still read."""
        self.sock.shutdown(socket.SHUT_WR)

    # Reading bytes

    def more(self, deadline: float) -> bool:
        """Take whatever arrives next into the buffer; False at end of file. Raises `Silence` after the deadline."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise Silence(f"nothing more came; unread so far: {self.buffer[:500]!r}")
        self.sock.settimeout(left)
        try:
            data = self.sock.recv(65536)
        except TimeoutError:
            raise Silence(f"nothing more came; unread so far: {self.buffer[:500]!r}") from None
        except ConnectionResetError:
            data = b""
        self.buffer += data
        return bool(data)

    def exactly(self, size: int, timeout: float = PATIENCE) -> bytes:
        """Return exactly `size` raw bytes."""
        deadline = time.monotonic() + timeout
        while len(self.buffer) < size:
            if not self.more(deadline):
                raise Aborted(f"the connection ended; {size} bytes wanted, got {self.buffer!r}")
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def until(self, marker: bytes, timeout: float = PATIENCE) -> bytes:
        """Return raw bytes up to and including the marker."""
        deadline = time.monotonic() + timeout
        while marker not in self.buffer:
            if not self.more(deadline):
                raise Aborted(f"the connection ended before {marker!r}; got {self.buffer[:500]!r}")
        data, found, self.buffer = self.buffer.partition(marker)
        return data + found

    def until_close(self, timeout: float = PATIENCE) -> bytes:
        """Return every raw byte up to the end of the connection (a reset counts as an end)."""
        deadline = time.monotonic() + timeout
        while self.more(deadline):
            pass
        data, self.buffer = self.buffer, b""
        return data

    def silent(self, seconds: float) -> bool:
        """Tell whether nothing at all (no byte, no end) comes for so long. Only for what must *not* happen."""
        if self.buffer:
            return False
        try:
            self.more(time.monotonic() + max(seconds, 0.01))  # a deadline that is over would not look at all
        except Silence:
            return True
        return False

    # Reading messages

    def head(self, timeout: float = PATIENCE, method: str = "GET") -> Response:
        """Return the next response head (an interim 1xx counts as one); body reads then follow its framing."""
        raw = self.until(b"\r\n\r\n", timeout)
        lines = raw[:-4].split(b"\r\n")
        version, _, rest = lines[0].decode("latin-1").partition(" ")
        status, _, reason = rest.partition(" ")
        answer = Response(
            headers=parse_headers(lines[1:]),
            raw_head=raw,
            time=time.monotonic(),
            version=version,
            status=int(status),
            reason=reason,
        )
        self.ended = False
        self._left = 0
        length = answer["Content-Length"]
        if method == "HEAD" or answer.status < 200 or answer.status in (204, 304):
            self._framing = "none"
        elif "chunked" in (answer["Transfer-Encoding"] or "").lower():
            self._framing = "chunked"
        elif length is not None:
            self._framing, self._left = "length", int(length)
        else:
            self._framing = "close"
        return answer

    def chunk(self, timeout: float = PATIENCE) -> bytes:
        """Return the content of the next chunk; ``b""`` is the last one (its trailers are read away)."""
        deadline = time.monotonic() + timeout
        line = self.until(b"\r\n", timeout)
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            self.ended = True
            while self.until(b"\r\n", deadline - time.monotonic()) != b"\r\n":
                pass
            return b""
        data = self.exactly(size + 2, deadline - time.monotonic())
        if data[-2:] != b"\r\n":
            raise Aborted(f"chunk without its end: {data!r}")
        return data[:-2]

    def piece(self, timeout: float = PATIENCE) -> bytes:
        """Return the next decoded bytes of the body, however many come; ``b""`` at its proper end."""
        deadline = time.monotonic() + timeout
        if self.ended or self._framing == "none":
            return b""
        if self._framing == "chunked":
            return self.chunk(timeout)
        if self._framing == "length" and self._left == 0:
            self.ended = True
            return b""
        if not self.buffer and not self.more(deadline):
            if self._framing == "length":
                raise Aborted(f"the connection ended {self._left} bytes before the end of the body")
            self.ended = True
            return b""
        size = len(self.buffer) if self._left is None or self._framing == "close" else min(self._left, len(self.buffer))
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        if self._framing == "length":
            assert self._left is not None
            self._left -= size
        return data

    def data(self, size: int, timeout: float = PATIENCE) -> bytes:
        """Return decoded body bytes until there are at least `size`; the caller compares for equality."""
        deadline = time.monotonic() + timeout
        got = b""
        while len(got) < size:
            part = self.piece(max(0.0, deadline - time.monotonic()))
            if not part:
                raise Aborted(f"the body ended; {size} bytes wanted, got {got!r}")
            got += part
        return got

    def data_until(self, marker: bytes, timeout: float = PATIENCE) -> bytes:
        """Return decoded body bytes until the marker is among them."""
        deadline = time.monotonic() + timeout
        got = b""
        while marker not in got:
            part = self.piece(max(0.0, deadline - time.monotonic()))
            if not part:
                raise Aborted(f"the body ended before {marker!r}; got {got!r}")
            got += part
        return got

    def rest(self, timeout: float = PATIENCE) -> bytes:
        """Return the decoded body up to its proper end. Raises `Aborted` if the connection ends before that."""
        deadline = time.monotonic() + timeout
        got = b""
        while part := self.piece(max(0.0, deadline - time.monotonic())):
            got += part
        return got

    def response(self, timeout: float = PATIENCE, method: str = "GET") -> Response:
        """Return the next whole response."""
        deadline = time.monotonic() + timeout
        answer = self.head(timeout, method)
        answer.body = self.rest(max(0.0, deadline - time.monotonic()))
        return answer

    def ask(self, method: str, uri: str, *headers: str, body: bytes | str = b"", version: str = "HTTP/1.1") -> Response:
        """Send a request and return its whole response."""
        self.request(method, uri, *headers, body=body, version=version)
        return self.response(method=method)
