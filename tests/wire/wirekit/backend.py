"""A backend that does exactly what a case scripts, and remembers every request."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from typing import Any

from tests.wire.wirekit.client import PATIENCE
from tests.wire.wirekit.messages import Request, parse_headers, response

__all__ = ["CLOSE", "RESET", "Backend", "Exchange", "Script"]


class _Step:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


CLOSE = _Step("CLOSE")
"""Script step: close the connection in the ordinary way."""
RESET = _Step("RESET")
"""Script step: close the connection with a TCP reset."""

Answer = Any
"""bytes (sent as they are) · a `Script` · a callable of the `Exchange` whose result, if any, is again an answer ·
a list of answers, used one per request, the last one for all further requests."""


class Script:
    """Steps of one answer: bytes are sent, a threading.Event is waited for, CLOSE and RESET end the connection."""

    def __init__(self, *steps: bytes | threading.Event | _Step) -> None:
        """Take the steps in their order."""
        self.steps = steps


class Gone(Exception):
    """The proxy closed the connection."""


class Exchange:
    """One request on one backend connection, for callables that answer by hand."""

    def __init__(self, backend: Backend, sock: socket.socket, request: Request, buffer: bytes) -> None:
        """Made by the backend."""
        self.backend = backend
        self.sock = sock
        self.request = request
        self.buffer = buffer
        self.open = True

    def send(self, data: bytes) -> None:
        """Send bytes to the proxy."""
        self.sock.sendall(data)

    def wait(self, event: threading.Event) -> None:
        """Wait for the case to set the event."""
        if not event.wait(PATIENCE * 2):
            raise TimeoutError(f"the case never set the event that {self.request.uri} waits for")

    def read(self) -> bytes:
        """Return the next raw bytes from the proxy, ``b""`` when it closed."""
        if self.buffer:
            data, self.buffer = self.buffer, b""
            return data
        try:
            return self.sock.recv(65536)
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        """End the connection."""
        self.open = False
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.open = False
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class Backend:
    """A threaded HTTP server on a free loopback port, or on a Unix socket whose path is the `host`.

    Scripts are per path (the URI up to ``?``). A path without one gets 200 and the backend's name as body.
    """

    def __init__(
        self, name: str = "backend", tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        """Listen at once; `tls` makes it a TLS server; `port` is for one that comes back where it was."""
        self.name = name
        self.host = host
        self._tls = tls
        self._scripts: dict[str, tuple[Answer, bool]] = {}
        self._asked: dict[str, list[Request]] = {}
        self._changed = threading.Condition()
        self._connections = 0
        self._open: dict[int, socket.socket] = {}
        self._stopping = False
        self.problems: list[str] = []
        """What went wrong in scripts; `Site` fails the case with them."""
        self.port = 0
        if host.startswith("/"):
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(host)
            self._listener.listen(512)
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=512)
            self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=f"{name}-accept", daemon=True).start()

    @property
    def address(self) -> str:
        """``host:port``, or ``unix:path``, as a routes file wants it."""
        if self.host.startswith("/"):
            return f"unix:{self.host}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections were accepted so far."""
        return self._connections

    @property
    def open_connections(self) -> int:
        """How many connections are open now."""
        with self._changed:
            return len(self._open)

    def on(self, path: str, answer: Answer, *, early: bool = False) -> None:
        """Script a path. With `early` the answer starts right after the head, the body is left to `Exchange.read`."""
        with self._changed:
            self._scripts[path] = (answer, early)
            self._asked.setdefault(path, [])

    def count(self, path: str) -> int:
        """How many requests for the path have arrived."""
        with self._changed:
            return len(self._asked.get(path, []))

    def request(self, path: str, number: int = 0, timeout: float = PATIENCE) -> Request:
        """Return the request for the path with this number (from 0), waiting for it if it has not come yet."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._asked.get(path, [])) > number, timeout):
                seen = {p: len(r) for p, r in self._asked.items() if r}
                raise AssertionError(f"request {number} for {path} did not come within {timeout} s; so far: {seen}")
            return self._asked[path][number]

    def wait_connections(self, number: int, timeout: float = PATIENCE) -> None:
        """Wait until exactly so many connections are open."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._open) == number, timeout):
                raise AssertionError(f"{len(self._open)} connections open at {self.name}, not {number}")

    def stop(self) -> None:
        """Stop listening and close every connection."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            connections = list(self._open.values())
        for sock in connections:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._changed:
                self._connections += 1
                number = self._connections
                self._open[number] = sock
                self._changed.notify_all()
            threading.Thread(target=self._serve, args=(sock, number), name=f"{self.name}-{number}", daemon=True).start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        wrapped = sock
        try:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                wrapped = self._tls.wrap_socket(sock, server_side=True)
            buffer = b""
            while True:
                exchange = self._exchange(wrapped, number, buffer)
                if not exchange.open:
                    return
                buffer = exchange.buffer
        except (Gone, OSError, ssl.SSLError):
            # The proxy ended the connection, or never liked it: the case sees that at its own end.
            return
        except Exception as error:  # noqa: BLE001 - anything a script raises must reach the case, not die in a thread
            self.problems.append(f"{self.name}: {error!r}")
        finally:
            with contextlib.suppress(OSError):
                wrapped.close()
            with self._changed:
                self._open.pop(number, None)
                self._changed.notify_all()

    def _exchange(self, sock: socket.socket, number: int, buffer: bytes) -> Exchange:
        def more() -> None:
            nonlocal buffer
            data = sock.recv(262144)
            if not data:
                raise Gone
            buffer += data

        while b"\r\n\r\n" not in buffer:
            more()
        raw, _, buffer = buffer.partition(b"\r\n\r\n")
        lines = raw.split(b"\r\n")
        method, uri, version = lines[0].decode("utf-8", "surrogateescape").split(" ")
        request = Request(
            headers=parse_headers(lines[1:]),
            raw_head=raw + b"\r\n\r\n",
            time=time.monotonic(),
            method=method,
            uri=uri,
            version=version,
            connection=number,
        )
        with self._changed:
            answer, early = self._scripts.get(request.path, (None, False))
        exchange = Exchange(self, sock, request, buffer)
        if early:
            index = self._record(request)
            self._act(self._pick(answer, index, request), exchange)
            return exchange
        if "chunked" in (request["Transfer-Encoding"] or "").lower():
            body = b""
            while True:
                while b"\r\n" not in buffer:
                    more()
                line, _, buffer = buffer.partition(b"\r\n")
                size = int(line.partition(b";")[0], 16)
                while len(buffer) < size + 2:
                    more()
                body += buffer[:size]
                buffer = buffer[size + 2 :]
                if size == 0:
                    break
            request.body = body
        else:
            length = int(request["Content-Length"] or 0)
            pieces = [buffer]
            size = len(buffer)
            while size < length:
                data = sock.recv(262144)
                if not data:
                    raise Gone
                pieces.append(data)
                size += len(data)
            buffer = b"".join(pieces)
            request.body, buffer = buffer[:length], buffer[length:]
        exchange.buffer = buffer
        index = self._record(request)
        self._act(self._pick(answer, index, request), exchange)
        return exchange

    def _record(self, request: Request) -> int:
        with self._changed:
            asked = self._asked.setdefault(request.path, [])
            asked.append(request)
            self._changed.notify_all()
            return len(asked) - 1

    def _pick(self, answer: Answer, index: int, request: Request) -> Answer:
        if answer is None:
            body = b"" if request.method == "HEAD" else self.name.encode() + b"\n"
            return response("200 OK", "Content-Type: text/plain", body=body)
        if isinstance(answer, list):
            return answer[min(index, len(answer) - 1)]
        return answer

    def _act(self, answer: Answer, exchange: Exchange) -> None:
        if isinstance(answer, bytes):
            exchange.send(answer)
        elif isinstance(answer, Script):
            for step in answer.steps:
                if isinstance(step, bytes):
                    exchange.send(step)
                elif isinstance(step, threading.Event):
                    exchange.wait(step)
                elif step is CLOSE:
                    exchange.close()
                else:
                    exchange.reset()
        elif callable(answer):
            self._act(answer(exchange), exchange)
        elif answer is not None:
            raise TypeError(f"not an answer: {answer!r}")
