"""Ground that attacks share within one hostile process: a backend that answers as it is told, raw clients, publishers.

The backend speaks bytes, not HTTP: an attack registers a behaviour under a name, and requests for ``/hostile/<name>``
are given to it with the open connection.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, cast

import tnetstring
import zmq

__all__ = [
    "FORBIDDEN",
    "Behaviour",
    "Field",
    "Group",
    "Member",
    "Request",
    "accept_key",
    "answer",
    "chunked",
    "get",
    "hold",
    "reset",
    "tnet",
    "upgrade",
]

PATIENCE: Final = 8.0
"""Seconds for one connection or answer; a service that refuses is as good as one that answers."""

FORBIDDEN: Final = "127.0.0.2"
"""Address that ``policy_deny`` names; the hostile backend serves there too."""

SHOWN: Final = 5
"""Breaches kept of each attack."""

HELD: Final = 0.1
"""Seconds that connections which get no answer at first have to be held."""

AT_ONCE: Final = 25
"""Connections of a group that are opened together."""


class Request(NamedTuple):
    """One request as the hostile backend got it.

    Method, path below ``/hostile/``, query, headers, body, and the backend's ``address`` that it came to.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    address: str


Behaviour = Callable[[Request, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool | None]]
"""Answers one request on its open connection; true to keep the connection for another one."""


def get(path: str, *headers: str, method: str = "GET", host: str = "localhost") -> bytes:
    """Return a request without body for ``path``, with header lines."""
    return ("\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *headers]) + "\r\n\r\n").encode()


def answer(body: bytes = b"", *headers: str, status: str = "200 OK") -> bytes:
    """Return a complete answer with a length, with header lines."""
    lines = "\r\n".join([f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"])
    return lines.encode() + b"\r\n\r\n" + body


def chunked(*pieces: bytes) -> bytes:
    """Return pieces as chunks of a chunked body, without its end."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def hold(mode: str, *channels: str, headers: tuple[str, ...] = (), body: bytes = b"") -> bytes:
    """Return an answer that holds its request on ``channels``, each with its parameters."""
    lines = (f"Grip-Hold: {mode}", *(f"Grip-Channel: {channel}" for channel in channels), *headers)
    return answer(body, "Content-Type: text/plain", *lines)


def upgrade(path: str, *headers: str) -> bytes:
    """Return the opening request of a WebSocket."""
    return get(
        path,
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *headers,
    )


class Member(asyncio.Protocol):
    """One raw connection of a group: sends its opening, then counts and throws away what arrives.

    ``deaf`` members never read.
    """

    def __init__(self, opening: bytes, deaf: bool) -> None:
        self._opening = opening
        self._deaf = deaf
        self.transport: asyncio.Transport | None = None
        self.received = 0
        self.first = b""
        """Beginning of what arrived."""
        self.open = False
        self.answered = asyncio.Event()
        """Set when the first byte has arrived, or the connection is closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.open = True
        if self._deaf:
            self.transport.pause_reading()
            self.answered.set()
        self.transport.write(self._opening)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if len(self.first) < 200:
            self.first += data[:200]
        self.answered.set()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self.answered.set()

    def send(self, data: bytes) -> None:
        """Write, unless the connection is closed."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def drop(self) -> None:
        """Reset the connection."""
        if self.transport is not None:
            self.transport.abort()


class Group:
    """Several connections with openings of one kind. ``fill`` opens those that are missing."""

    def __init__(
        self, field: Field, number: int, opening: Callable[[int], bytes], deaf: bool, small: bool, silent: bool
    ) -> None:
        self._field = field
        self._openings = opening
        self._deaf = deaf
        self._small = small
        self._silent = silent
        self.members: list[Member | None] = [None] * number

    async def fill(self) -> int:
        """Open what is missing, a few at a time; return how many connections are open."""
        missing = [index for index, member in enumerate(self.members) if member is None or not member.open]
        for start in range(0, len(missing), AT_ONCE):
            part = missing[start : start + AT_ONCE]
            made = await asyncio.gather(*(self._open(index) for index in part))
            for index, member in zip(part, made, strict=True):
                self.members[index] = member
            waits = [member.answered.wait() for member in made if member is not None]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HELD if self._silent else PATIENCE):
                    await asyncio.gather(*waits)
        return len(self.open)

    async def _open(self, index: int) -> Member | None:
        member = await self._field.connect(self._openings(index), deaf=self._deaf, small=self._small)
        self._field.did["opened" if member is not None else "refused"] += 1
        return member

    @property
    def open(self) -> list[Member]:
        """Connections that are open."""
        return [member for member in self.members if member is not None and member.open]

    def renew(self) -> None:
        """Reset those that have got something: long-polls that were answered."""
        for member in self.open:
            if member.received:
                member.drop()
                member.open = False

    def drop(self) -> None:
        """Reset all."""
        for member in self.open:
            member.drop()
            member.open = False


class Field:
    """Ports of the service, the hostile backend, and ways to connect and to publish."""

    def __init__(
        self,
        ports: Mapping[str, int],
        root: Field | None = None,
        did: Counter[str] | None = None,
        breaches: list[str] | None = None,
    ) -> None:
        self.ports = ports
        self.did: Counter[str] = Counter() if did is None else did
        """Counts of what the attack did."""
        self._breaches: list[str] = [] if breaches is None else breaches
        self._root = root or self
        if root is None:
            self._behaviours: dict[str, tuple[Behaviour, bool]] = {}
            self._server: asyncio.Server | None = None
            self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            self._sockets: dict[str, zmq.Socket[bytes]] = {}

    def view(self, did: Counter[str], breaches: list[str]) -> Field:
        """Return a field on the same ground that counts into ``did`` and notes ``breaches``."""
        return Field(self.ports, self._root, did, breaches)

    def breach(self, text: str) -> None:
        """Note what the service must not have done; the first ones are kept."""
        if len(self._breaches) < SHOWN:
            self._breaches.append(text)

    # --- the backend

    async def open(self) -> None:
        """Let the backend serve: at its own address, and at one that untrusted targets may not lead to."""
        port = self.ports["hostile"]
        hosts = ["127.0.0.1", FORBIDDEN]
        self._server = await asyncio.start_server(self._serve, hosts, port, limit=2**20, backlog=1000)

    async def close(self) -> None:
        """End the backend; connections end with the process."""
        if self._server is not None:
            self._server.close()
        for sock in self._sockets.values():
            sock.close(0)

    def behave(self, name: str, behaviour: Behaviour, *, body: bool = True) -> str:
        """Register a behaviour and return its path; a later one of the same name replaces it.

        Args:
            name: last part of the path.
            behaviour: answers the requests.
            body: read the body of a request before it is answered.
        """
        self._root._behaviours[name] = behaviour, body
        return f"/hostile/{name}"

    def say(self, name: str, *answers: bytes) -> str:
        """Register a behaviour that sends these bytes, and return its path."""
        data = b"".join(answers)

        async def behaviour(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            writer.write(data)
            await writer.drain()
            return True

        return self.behave(name, behaviour)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            address: str = writer.get_extra_info("sockname")[0]
            while request := await _read_head(reader):
                request = request._replace(address=address)
                behaviour, with_body = self._behaviours.get(request.path, (_unknown, True))
                if with_body:
                    request = request._replace(body=await _read_body(request, reader))
                if not await behaviour(request, reader, writer):
                    return
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, RuntimeError):
            return  # RuntimeError: uvloop's word for writing to a connection that is closed
        finally:
            writer.transport.abort()

    # --- clients

    async def connect(
        self, opening: bytes = b"", *, port: str = "client", deaf: bool = False, small: bool = False
    ) -> Member | None:
        """Connect to a port of the service and send ``opening``.

        Args:
            opening: bytes that are written first.
            port: name of the port.
            deaf: never read.
            small: have a small receive buffer, so that a peer who stops reading is noticed soon.

        Returns:
            The connection, or None if it was refused.
        """
        sock = socket.socket()
        sock.setblocking(False)
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            async with asyncio.timeout(PATIENCE):
                loop = asyncio.get_running_loop()
                await loop.sock_connect(sock, ("127.0.0.1", self.ports[port]))
                _, member = await loop.create_connection(lambda: Member(opening, deaf), sock=sock)
        except (OSError, TimeoutError):
            sock.close()
            return None
        return member

    def group(
        self,
        number: int,
        opening: Callable[[int], bytes] | bytes,
        *,
        deaf: bool = False,
        small: bool = False,
        silent: bool = False,
    ) -> Group:
        """Return a group of connections, none of them open yet.

        Args:
            number: of connections.
            opening: bytes that each of them begins with, or those of each index.
            deaf: they never read.
            small: they have small receive buffers.
            silent: nothing is sent to them at first, as to long-polls.
        """
        openings = (lambda index: opening) if isinstance(opening, bytes) else opening
        return Group(self, number, openings, deaf, small, silent)

    async def exchange(self, data: bytes, *, port: str = "client", patience: float = PATIENCE) -> bytes:
        """Send bytes on a connection of its own; return the first bytes of the answer, empty if there is none."""
        member = await self.connect(data, port=port)
        if member is None:
            self.did["refused"] += 1
            return b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await member.answered.wait()
        member.drop()
        self.did["answered" if member.first else "unanswered"] += 1
        return member.first

    # --- publishers

    async def post(self, body: bytes, path: str = "/publish") -> bytes:
        """Post a body to the control port; return the status line of the answer, empty if there is none."""
        head = get(path, f"Content-Length: {len(body)}", "Connection: close", method="POST")
        line = (await self.exchange(head + body, port="control")).partition(b"\r\n")[0]
        self.did[line.decode("latin-1")[9:12] or "no answer"] += 1
        return line

    async def publish(self, *items: Mapping[str, Any]) -> bytes:
        """Publish items over the control port; return the status line."""
        return await self.post(json.dumps({"items": items}).encode())

    def socket(self, way: str) -> zmq.Socket[bytes]:
        """Return the socket for one of the ways in ``pull``, ``sub`` and ``rep``; it never blocks."""
        sockets = self._root._sockets
        if way not in sockets:
            sockets[way] = self.fresh_socket(way)
        return sockets[way]

    def fresh_socket(self, way: str) -> zmq.Socket[bytes]:
        """Return a new socket for one of these ways, for the caller to close."""
        sock = self._root._context.socket({"pull": zmq.PUSH, "sub": zmq.PUB, "rep": zmq.DEALER}[way])
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.SNDHWM, 5000)
        sock.connect(f"tcp://127.0.0.1:{self.ports[way]}")
        return sock

    def push(self, way: str, *parts: bytes) -> bool:
        """Send a message at once; returns false, and sends nothing, if it would have to wait."""
        try:
            self.socket(way).send_multipart(list(parts), zmq.NOBLOCK)
        except zmq.Again:
            self.did["waited"] += 1
            return False
        self.did["pushed"] += 1
        return True

    def pull_item(self, item: Mapping[str, Any]) -> bool:
        """Publish an item to the PULL port."""
        return self.push("pull", b"J" + json.dumps(item).encode())

    def sub_item(self, item: Mapping[str, Any]) -> bool:
        """Publish an item to the SUB port."""
        return self.push("sub", str(item["channel"]).encode(), b"J" + json.dumps(item).encode())

    def command(self, data: bytes) -> bool:
        """Send a request to the command port, and throw away the answers that have come."""
        sock = self.socket("rep")
        while sock.poll(0):
            sock.recv_multipart()
            self.did["answered"] += 1
        return self.push("rep", b"", data)


async def _read_head(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    path, _, query = target.partition("?")
    return Request(method, path.removeprefix("/hostile/"), query, headers, b"", "")


async def _read_body(request: Request, reader: asyncio.StreamReader) -> bytes:
    if "content-length" in request.headers:
        return await reader.readexactly(int(request.headers["content-length"]))
    body = b""
    if request.headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    return body


async def _unknown(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(answer(b"no such behaviour\n", status="404 Not Found"))
    return True


def accept_key(key: str) -> str:
    """Return the value of Sec-WebSocket-Accept (RFC 6455 §4.2.2)."""
    return base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()


def reset(sock: socket.socket) -> None:
    """Close a socket so that its peer gets a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def tnet(value: Any) -> bytes:
    """Return a value as a tnetstring, texts as bytes."""
    return bytes(tnetstring.dumps(_bytes(value)))


def _bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return {_bytes(name): _bytes(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_bytes(part) for part in value]
    return value.encode() if isinstance(value, str) else value
