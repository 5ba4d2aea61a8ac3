"""A hostile client: ``python -m tests.faults.hostile.client``. It may connect and send what it likes, and knows no key.

Some of its requests go to a backend in its own process that does as little as it may, some to the ordinary backend.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
import sys
import zlib
from collections.abc import AsyncIterator
from typing import Any, Final

from tests.faults.hostile.assault import Attack, main
from tests.faults.hostile.field import Field, Request, accept_key, answer, chunked, get, hold, reset, upgrade

__all__ = ["ATTACKS"]

MASK: Final = b"\0\0\0\0"
"""A mask that changes no byte: payloads are made once."""

COMPRESSION: Final = "Sec-WebSocket-Extensions: permessage-deflate"


def frame(opcode: int, payload: bytes, *, final: bool = True, compressed: bool = False, length: int = -1) -> bytes:
    """Return a client's frame (RFC 6455 §5.2); ``length`` is a false length, -1 the true one."""
    first = opcode | (0x80 if final else 0) | (0x40 if compressed else 0)
    size = len(payload) if length < 0 else length
    if size < 126:
        head = struct.pack(">BB", first, 0x80 | size)
    elif size < 65_536:
        head = struct.pack(">BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack(">BBQ", first, 0x80 | 127, size)
    return head + MASK + payload


def deflated(size: int) -> bytes:
    """Return ``size`` zero bytes compressed as one message (RFC 7692 §7.2.1): a thousandth of it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (packer.compress(bytes(size)) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


def socket_that(name: str, field: Field, *, reads: bool) -> str:
    """Register a direct WebSocket backend that accepts; one that does not read just keeps the connection."""

    async def behaviour(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {accept_key(request.headers['sec-websocket-key'])}",
        ]
        if "permessage-deflate" in request.headers.get("sec-websocket-extensions", ""):
            lines.append(COMPRESSION)
        field.did["sockets"] += 1
        if not reads:
            transport: Any = writer.transport
            transport.pause_reading()
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        while reads and await reader.read(65_536):
            pass
        await writer.wait_closed()
        return False

    return field.behave(f"direct/{name}", behaviour)


async def compression_bombs(field: Field) -> AsyncIterator[None]:
    """Compressed messages of the greatest size allowed, a thousandth on the wire, to a backend that never reads."""
    path = socket_that("deaf", field, reads=False)
    sockets = field.group(8, upgrade(path, COMPRESSION))
    burst = frame(1, deflated(250_000), compressed=True) * 800
    while True:
        await sockets.fill()
        for member in sockets.open:
            member.send(burst)
        yield
        await asyncio.sleep(0)
        sockets.drop()


async def unread_messages(field: Field) -> AsyncIterator[None]:
    """Messages, and ones that never end, to a direct backend that never reads."""
    sockets = field.group(30, upgrade(socket_that("deafer", field, reads=False)))
    whole, part = frame(2, bytes(200_000)), frame(2, bytes(200_000), length=250_000)
    while True:
        await sockets.fill()
        for index, member in enumerate(sockets.open):
            member.send(whole if index % 2 else part)
        yield


async def bad_frames(field: Field) -> AsyncIterator[None]:
    """Frames against every rule of RFC 6455, and floods of pings and of empty fragments."""
    path = socket_that("polite", field, reads=True)
    forms = (
        b"\xff" * 200,
        frame(1, b"", length=2**62),
        frame(1, b"", length=2**63 + 5),
        frame(9, b"p" * 125) * 3000,
        frame(1, b"", final=False) + frame(0, b"", final=False) * 5000,
        frame(1, b"\xc3\x28"),
        frame(8, b"\x03"),
        frame(8, b"\x03\xe8" + b"\xff" * 100),
        frame(0, b"x"),
        frame(3, b"x"),
        frame(1, b"x" * 200_000, compressed=True),
        b"\x81\x05hello",
        frame(10, b"q" * 125) * 1000,
    )
    while True:
        for form in forms:
            member = await field.connect(upgrade(path))
            if member is not None:
                await asyncio.wait_for(member.answered.wait(), 10)
                member.send(form)
                field.did["sent"] += 1
                await asyncio.sleep(0.01)
                member.drop()
        yield


async def slow_readers(field: Field) -> AsyncIterator[None]:
    """Answers of 5 MB and streams of the ordinary backend's channels that are asked for and not read."""
    path = field.say("vast", answer(bytes(5_000_000)))
    streams = field.group(30, get("/ordinary/plain?c=ordinary-1&who=slow.1"), deaf=True, small=True)
    while True:
        answers = field.group(20, get(path), deaf=True, small=True)
        await answers.fill()
        await streams.fill()
        yield
        answers.drop()


async def slowloris(field: Field) -> AsyncIterator[None]:
    """Heads and bodies that arrive a byte at a time."""
    path = field.say("short", answer(b"ok"))
    head = get(path, "X-Slow: " + "x" * 300)
    body = get(path, "Content-Length: 100000", method="POST")
    pieces = get(path, "Transfer-Encoding: chunked", method="POST")
    starts = (head[:20], body + b"x", pieces + b"1;" + b"e" * 10)
    slow = field.group(90, lambda index: starts[index % 3])
    while True:
        for member in slow.open:
            member.send(b"x")
        missing = 90 - len(slow.open)
        if missing > 10:
            for index, held in enumerate(slow.members):
                if held is None or not held.open:
                    slow.members[index] = await field.connect(starts[index % 3])
                    field.did["opened"] += 1
        yield


async def half_closed(field: Field) -> AsyncIterator[None]:
    """Requests whose client closes its sending side at once, during the answer, or in the middle of the head."""
    path = field.say("late", answer(b"ok"))
    held = field.say("late-held", hold("response", "late"))
    openings = (get(path), get(held), get(path)[:30], get(path, "Content-Length: 50", method="POST") + b"x", b"")
    while True:
        for opening in openings * 4:
            member = await field.connect(opening)
            if member is not None and member.transport is not None:
                member.transport.write_eof()
                field.did["closed"] += 1
        yield


async def pipelined(field: Field) -> AsyncIterator[None]:
    """A hundred requests in one write, to what answers and to what holds, with garbage behind them."""
    path = field.say("piped", answer(b"ok"))
    held = field.say("piped-held", hold("response", "piped"))
    forms = (
        get(path) * 100 + b"\x00garbage\r\n\r\n",
        get(held) + get(path) * 100,
        get(path) * 50 + get(path, "Content-Length: -1", method="POST"),
        get(path) + b"GET / HTTP/1.1\r\n" * 3000,
        get(path, "Content-Length: 5", method="POST") + b"hello" + b"\r\n" * 4000,
    )
    while True:
        for form in forms * 2:
            await field.exchange(form, patience=1.0)
        yield


async def connect_and_reset(field: Field) -> AsyncIterator[None]:
    """300 connections a round that are reset at once, some with half a request."""
    loop = asyncio.get_running_loop()
    while True:
        for number in range(300):
            sock = socket.socket()
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, ("127.0.0.1", field.ports["client"]))
                if number % 3 == 0:
                    sock.send(b"GET /ordinary/poll HTTP/1.1\r\nHo")
                field.did["opened"] += 1
            except OSError:
                field.did["refused"] += 1
            reset(sock)
        yield


SMUGGLED: Final = (
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5, 5",
    "Content-Length: +5",
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding: gzip, chunked",
    "Content-Length: 9223372036854775808",
    "Content-Length: 18446744073709551617",
    "Content-Length: 0x5",
    "X: y\rContent-Length: 5",
    "X: y\nContent-Length: 5",
    " Content-Length: 5",
    "Content_Length: 5",
    "Host: other",
)
"""Header lines by which two parsers may disagree where a request ends."""


async def smuggling(field: Field) -> AsyncIterator[None]:
    """Requests with two lengths, or none that counts, with another request in the body."""
    path = field.say("outer", answer(b"ok"))
    while True:
        for lines in SMUGGLED:
            await field.exchange(
                get(path, *lines.split("\r\n"), method="POST") + b"0\r\n\r\n" + get(path), patience=0.5
            )
        yield


async def headers(field: Field) -> AsyncIterator[None]:
    """Heads that never come again, names that look alike, and as many lines as fit: parsed heads are cached."""
    path = field.say("varied", answer(b"ok"))
    alike = ("Meta_User", "Connection_Id", "Grip_Sig", "X_Forwarded_For", "Grip-Sig", "Meta-User", "Grip-Last")
    while True:
        for number in range(15):
            if number % 3 == 0:
                lines = [f"X-{random.getrandbits(32):x}: {os.urandom(50).hex()}" for _ in range(40)]
            elif number % 3 == 1:
                lines = [f"{name}: {random.getrandbits(64):x}" for name in alike]
            else:
                lines = [f"A{index}:" for index in range(1000)]
            await field.exchange(get(f"{path}?{random.getrandbits(64)}", *lines), patience=1.0)
        yield


async def descriptors(field: Field) -> AsyncIterator[None]:
    """More connections than the service may have, which say nothing; then they go."""
    idle = field.group(900, b"G")
    while True:
        opened = 0
        for index in range(len(idle.members)):
            idle.members[index] = await field.connect(b"G")
            opened += idle.members[index] is not None
            if index % 50 == 0:
                await asyncio.sleep(0.01)
        field.did["opened"] += opened
        await asyncio.sleep(0.5)
        idle.drop()
        yield


async def socket_events(field: Field) -> AsyncIterator[None]:
    """Requests in the form that the proxy itself sends for WebSockets over HTTP, and messages without pause."""
    name = "events"
    opened = b"OPEN\r\n"
    path = field.say(
        name, answer(opened, "Content-Type: application/websocket-events", "Sec-WebSocket-Extensions: grip")
    )
    types = ("application/websocket-events", "application/websocket-events; a=b", "application/websocket-events, x")
    messages = frame(1, b"m" * 1000) * 100
    sockets = field.group(10, upgrade(path))
    while True:
        for kind in types:
            for method in ("GET", "POST", "PUT"):
                body = b"OPEN\r\n" * 1000
                lines = (f"Content-Type: {kind}", f"Accept: {kind}", f"Content-Length: {len(body)}")
                await field.exchange(get(path, *lines, method=method) + body, patience=1.0)
        await sockets.fill()
        for member in sockets.open:
            member.send(messages)
        yield


async def endless_body(field: Field) -> AsyncIterator[None]:
    """Uploads of 5 MB to a backend that does not read, and chunks with extensions and trailers without end."""

    async def deaf(request: Request, reader: Any, writer: asyncio.StreamWriter) -> bool:
        await writer.wait_closed()
        return False

    path = field.behave("upload", deaf, body=False)
    long = get(path, "Content-Length: 100000000", method="POST") + bytes(1_000_000)
    extended = get(path, "Transfer-Encoding: chunked", method="POST") + b"1;" + b"e=f;" * 50_000
    trailed = get(path, "Transfer-Encoding: chunked", method="POST") + b"0\r\n" + b"X-Trailer: y\r\n" * 20_000
    small = get(path, "Transfer-Encoding: chunked", method="POST") + chunked(b"x") * 20_000
    while True:
        for form in (long, extended, trailed, small):
            await field.exchange(form, patience=0.5)
        yield


ATTACKS: Final[dict[str, Attack]] = {
    "compression-bombs": Attack(compression_bombs, 0.5),
    "unread-messages": Attack(unread_messages, 0.5),
    "bad-frames": Attack(bad_frames, 0.5),
    "slow-readers": Attack(slow_readers, 0.5),
    "slowloris": Attack(slowloris, 0.5),
    "half-closed": Attack(half_closed, 0.5),
    "pipelined": Attack(pipelined, 0.5),
    "connect-and-reset": Attack(connect_and_reset, 0.5),
    "smuggling": Attack(smuggling, 0.5),
    "headers": Attack(headers, 0.5),
    "descriptors": Attack(descriptors, 3.0),
    "socket-events": Attack(socket_events, 0.5),
    "endless-body": Attack(endless_body, 0.5),
}
"""All attacks by name."""


if __name__ == "__main__":
    sys.exit(main(ATTACKS))
