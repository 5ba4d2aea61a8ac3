"""A hostile backend: ``python -m tests.faults.hostile.backend``. It may answer what it likes, or nothing.

Its clients, in the same process, are ordinary ones that ask it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

from tests.faults.hostile.assault import Attack, main
from tests.faults.hostile.client import frame
from tests.faults.hostile.field import (
    FORBIDDEN,
    Behaviour,
    Field,
    Request,
    accept_key,
    answer,
    chunked,
    get,
    hold,
    upgrade,
)

__all__ = ["ATTACKS"]

EVENTS: Final = ("Content-Type: application/websocket-events", "Sec-WebSocket-Extensions: grip")
"""Header lines of an answer to a WebSocket over HTTP."""


def endlessly(start: bytes, piece: bytes, *, every: float = 0.0) -> Behaviour:
    """Return a behaviour that sends ``start``, then ``piece`` again and again until it is stopped."""

    async def behaviour(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(start)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(every)

    return behaviour


async def ask_each(field: Field, paths: list[str], number: int, patience: float) -> None:
    """Ask for all paths together, ``number`` clients each, and give up after ``patience`` seconds."""
    await asyncio.gather(*(field.exchange(get(path), patience=patience) for path in paths for _ in range(number)))


async def silence(field: Field) -> AsyncIterator[None]:
    """Requests are accepted and not answered, or not even read."""

    async def silent(request: Request, reader: Any, writer: asyncio.StreamWriter) -> bool:
        await writer.wait_closed()
        return False

    paths = [
        get(field.behave("silent", silent)),
        get(field.behave("unread", silent, body=False), "Content-Length: 300000", method="POST") + bytes(300_000),
    ]
    waiting = field.group(20, lambda index: paths[index % 2], silent=True)
    while True:
        await waiting.fill()
        yield
        waiting.drop()


async def endless_answers(field: Field) -> AsyncIterator[None]:
    """Heads, interim answers, bodies, chunk extensions and trailers without end, as fast as they are read."""
    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    paths = [
        field.behave("heads", endlessly(b"HTTP/1.1 200 OK\r\n", b"X-Line: y\r\n" * 100, every=0.001)),
        field.behave("line", endlessly(b"HTTP/1.1 200 OK\r\nX-Line: ", b"y" * 1000, every=0.001)),
        field.behave("interim", endlessly(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 20, every=0.001)),
        field.behave("continues", endlessly(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 20, every=0.001)),
        field.behave("body", endlessly(start, chunked(b"b" * 10_000), every=0.001)),
        field.behave("extension", endlessly(start + b"1;", b"e=f;" * 100, every=0.001)),
        field.behave("trailers", endlessly(start + b"0\r\n", b"X-Trailer: y\r\n" * 100, every=0.001)),
        field.behave("tiny", endlessly(start, chunked(b"b") * 100, every=0.001)),
    ]
    while True:
        await ask_each(field, paths, 3, 0.5)
        yield


async def bad_answers(field: Field) -> AsyncIterator[None]:
    """What is no answer: status codes, versions, lengths, line ends."""
    heads = (
        b"HTTP/1.1 103 Early\r\n\r\n",
        b"HTTP/1.1 000 Zero\r\n\r\n",
        b"HTTP/1.1 99 Low\r\n\r\n",
        b"HTTP/1.1 1000 High\r\n\r\n",
        b"HTTP/1.1 20x Odd\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 O\0K\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
        b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 100,
        b"",
    )

    def once(data: bytes) -> Behaviour:
        async def behaviour(request: Request, reader: Any, writer: asyncio.StreamWriter) -> bool:
            writer.write(data)
            with contextlib.suppress(OSError):
                await writer.drain()
            await asyncio.sleep(0.05)
            return False

        return behaviour

    paths = [field.behave(f"bad-{number}", once(head)) for number, head in enumerate(heads)]
    while True:
        await ask_each(field, paths, 3, 1.0)
        yield


async def bad_instructs(field: Field) -> AsyncIterator[None]:
    """Instructs of all sizes: thousands of channels, headers to the limit, statuses that are none, odd numbers."""
    many = ", ".join(f"c{number}" for number in range(2000))
    long = "c" * 60_000
    json_hold = b'{"hold": {"mode": "response", "channels": [%b]}, "response": {"code": %b, "body": "%b"}}'
    grip = "Content-Type: application/grip-instruct"
    paths = [
        field.say("many", hold("stream", many)),
        field.say("long", hold("stream", long)),
        field.say("meta", hold("stream", "m", headers=(f'Grip-Set-Meta: a="{long}"',))),
        field.say("filters", hold("stream", "f" + "; filter=var-subst" * 500)),
        field.say("status", hold("response", "s", headers=("Grip-Status: 103",))),
        field.say("status-low", hold("response", "s", headers=("Grip-Status: 1",))),
        field.say("timeout", hold("response", "s", headers=("Grip-Timeout: 99999999999999999999",))),
        field.say("keep", hold("stream", "s", headers=(f"Grip-Keep-Alive: {'k' * 30_000}; timeout=1",))),
        field.say("whole", hold("response", "w", body=bytes(99_000))),
        field.say("over", hold("response", "w", body=bytes(500_000))),
        field.say(
            "instruct", answer(json_hold % (b'{"name": "x"}, ' * 5000 + b'{"name": "y"}', b"200", b"b" * 10), grip)
        ),
        field.say("nested", answer(b'{"hold": ' * 20_000, grip)),
        field.say("code", answer(json_hold % (b'{"name": "x"}', b"103", b"HTTP/1.1 200 OK\\r\\n\\r\\n"), grip)),
        field.say("huge", answer(b" " * 3_000_000 + b"{}", grip)),
    ]
    while True:
        await ask_each(field, paths, 3, 0.5)
        yield


async def held_documents(field: Field) -> AsyncIterator[None]:
    """100 long-polls that each hold a document of 90 kB of their own, and are dropped and held again."""

    async def document(request: Request, reader: Any, writer: asyncio.StreamWriter) -> bool:
        writer.write(hold("response", "documents", body=random.randbytes(90_000)))
        await writer.drain()
        return True

    polls = field.group(100, get(field.behave("document", document)), silent=True)
    while True:
        await polls.fill()
        yield
        for member in polls.open[:20]:
            member.drop()
            member.open = False


async def link_chains(field: Field) -> AsyncIterator[None]:
    """Next links that lead to the next page for ever, to the service itself, to loopback, or nowhere."""
    page = "/hostile/page"
    targets = (
        page,
        "/hostile/chain",
        f"http://127.0.0.1:{field.ports['control']}/",
        f"http://127.0.0.1:{field.ports['client']}/hostile/chain",
        f"http://127.0.0.1:{field.ports['pull']}/",
        "http://127.0.0.1:1/",
        "http://[::1]:1/",
        "//nowhere.invalid/",
        "http://" + "a" * 5000,
    )
    field.say("page", answer(b"p" * 5000, "Content-Type: text/plain", f"Grip-Link: <{page}>; rel=next"))
    held = [
        field.say(
            f"chain-{number}" if number else "chain",
            hold(
                "stream",
                "chain; prev-id=1",
                headers=(f"Grip-Link: <{target}>; rel=next; timeout=1", f"Grip-Link: <{target}>; rel=gone"),
            ),
        )
        for number, target in enumerate(targets)
    ]
    first = field.say("pages", answer(b"first", "Content-Type: text/plain", f"Grip-Link: <{page}>; rel=next"))
    reading = field.group(5, get(first))
    deaf = field.group(5, get(first), deaf=True, small=True)
    chains = field.group(27, lambda index: get(held[index % len(held)]))
    while True:
        await reading.fill()
        await deaf.fill()
        await chains.fill()
        yield
        chains.drop()


async def forbidden_links(field: Field) -> AsyncIterator[None]:
    """Links to a forbidden address of an untrusted target, which answers because the trusted one of its route does not.

    The address is spelled in the ways that programs take for one; the links are next and gone links of streams, and
    those of filters.
    """
    host, port = FORBIDDEN, field.ports["hostile"]
    spellings = (host, "2130706434", "0x7f000002", "0177.0.0.2", "127.2", f"[::ffff:{host}]", f"[64:ff9b::{host}]")

    async def reached(request: Request, reader: Any, writer: asyncio.StreamWriter) -> bool:
        if request.address == FORBIDDEN:
            field.breach(f"{FORBIDDEN} was asked for {request.path} as {request.headers.get('host')}")
        writer.write(answer(b"secret", "Content-Type: text/plain"))
        return True

    field.behave("reached", reached)
    paths = []
    for number, spelling in enumerate(spellings):
        link = f"http://{spelling}:{port}/hostile/reached"
        lines = (f"Grip-Link: <{link}>; rel=next; timeout=1", f"Grip-Link: <{link}>; rel=gone")
        name = f"untrusted/{number}"
        paths.append(field.say(f"{name}/held", hold("stream", "forbidden; prev-id=1", headers=lines)))
        paths.append(field.say(f"{name}/paged", answer(b"first", "Content-Type: text/plain", lines[0])))
        meta = f'Grip-Set-Meta: url="{link}"'
        paths.append(field.say(f"{name}/asking", hold("stream", "forbidden; filter=http-check", headers=(meta,))))
    item = {"channel": "forbidden", "id": "3", "prev-id": "2", "no-seq": True}
    while True:
        streams = field.group(len(paths), lambda index: get(paths[index]))
        await streams.fill()
        await field.publish(item | {"formats": {"http-stream": {"content": "x"}}})
        yield
        streams.drop()


async def slow_drip(field: Field) -> AsyncIterator[None]:
    """Answers that arrive a byte at a time, heads, bodies and instructs."""
    whole = hold("stream", "drip", body=b"b" * 1000)
    start = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"

    async def drip(request: Request, reader: Any, writer: asyncio.StreamWriter) -> bool:
        for index in range(len(whole)):
            writer.write(whole[index : index + 1])
            await asyncio.sleep(0.05)
        return True

    paths = [field.behave("drip", drip), field.behave("drop", endlessly(start, b"x", every=0.05))]
    asking = field.group(40, lambda index: get(paths[index % 2]))
    while True:
        for index, member in enumerate(asking.members):
            if member is None or not member.open:
                asking.members[index] = await field.connect(get(paths[index % 2]))
                field.did["opened"] += 1
        yield


async def resets(field: Field) -> AsyncIterator[None]:
    """Connections that are reset before, within and right behind an answer, and while they are pooled."""

    def cut(data: bytes) -> Behaviour:
        async def behaviour(request: Request, reader: Any, writer: asyncio.StreamWriter) -> bool:
            writer.write(data)
            with contextlib.suppress(OSError):
                await writer.drain()
            return False

        return behaviour

    whole = answer(b"x" * 1000)
    paths = [field.behave(f"cut-{size}", cut(whole[:size])) for size in (0, 5, 20, 60, 500, len(whole))]
    while True:
        await ask_each(field, paths, 5, 1.0)
        yield


async def socket_answers(field: Field) -> AsyncIterator[None]:
    """Answers to WebSockets over HTTP that end inside an event, or hold thousands of events and orders."""
    opened = b"OPEN\r\n"
    texts = [b'c:{"type":"subscribe","channel":"%d"}' % number for number in range(2000)]
    orders = b"".join(b"TEXT %x\r\n%b\r\n" % (len(text), text) for text in texts)
    bodies = (
        b"OPE",
        opened + b"TEXT 5\r\nhel",
        opened + b"TEXT ffffffffffffffff\r\nhello\r\n",
        opened + b"TEXT -5\r\nhello\r\n",
        opened + b"NONSENSE 5\r\nhello\r\n",
        opened + orders,
        opened + b"PING\r\n" * 20_000,
        opened + b"TEXT 1\r\nx\r\n" * 20_000,
        opened + b'TEXT 2d\r\nc:{"type":"keep-alive","content":"x","timeout":0}\r\n',
        opened + b"DISCONNECT\r\n" + b"CLOSE 2\r\n\x03\xe8\r\n" * 1000,
        b"",
    )

    def later_half(first: bytes) -> Behaviour:
        async def behaviour(request: Request, reader: Any, writer: asyncio.StreamWriter) -> bool:
            body = first if request.body.startswith(b"OPEN") else b"TEXT 5\r\nhel"
            writer.write(answer(body, *EVENTS))
            return True

        return behaviour

    paths = [field.behave(f"events-{number}", later_half(body)) for number, body in enumerate(bodies)]
    paths.append(
        field.behave(
            "endless-events",
            endlessly(
                b"HTTP/1.1 200 OK\r\n"
                + "".join(f"{line}\r\n" for line in EVENTS).encode()
                + b"Transfer-Encoding: chunked\r\n\r\n",
                chunked(b"TEXT 1\r\nx\r\n" * 100),
                every=0.002,
            ),
        )
    )
    while True:
        for path in paths:
            sockets = field.group(3, upgrade(path))
            await sockets.fill()
            for member in sockets.open:
                member.send(frame(1, b"hello"))
                field.did["sent"] += 1
            await asyncio.sleep(0.02)
            sockets.drop()
        yield


async def half_answers(field: Field) -> AsyncIterator[None]:
    """Answers to 60 WebSockets over HTTP that stop before their end, after 900 kB."""
    begun = answer(bytes(999_000), *EVENTS)[:900_000]

    async def half(request: Request, reader: Any, writer: asyncio.StreamWriter) -> bool:
        if request.body.startswith(b"OPEN"):
            writer.write(answer(b"OPEN\r\n", *EVENTS))
            return True
        writer.write(begun)
        await writer.wait_closed()
        return False

    sockets = field.group(60, upgrade(field.behave("half", half)))
    while True:
        await sockets.fill()
        for member in sockets.open:
            member.send(frame(1, b"hello"))
        yield


async def direct_sockets(field: Field) -> AsyncIterator[None]:
    """Direct WebSockets that send frames against the rules, false accepts, and orders in numbers, to deaf clients."""
    order = b'c:{"type":"subscribe","channel":"direct-%d"}'
    orders = b"".join(b"\x81" + bytes([len(order % number)]) + order % number for number in range(100, 900))
    sent = (
        b"\xff" * 1000,
        b"\x81\x7f" + (2**62).to_bytes(8, "big"),
        orders,
        b"\x89\x00" * 5_000,
        (b"\x82\x7e\xff\xff" + bytes(65_535)) * 8,
        b"\x88\x02\x03",
    )

    def speaking(data: bytes, honest: bool) -> Behaviour:
        async def behaviour(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            key = accept_key(request.headers["sec-websocket-key"]) if honest else "AAAA"
            lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
            lines += [f"Sec-WebSocket-Accept: {key}", "Sec-WebSocket-Extensions: grip"]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + data)
            with contextlib.suppress(OSError):
                await writer.drain()
                await reader.read(1000)
            return False

        return behaviour

    paths = [
        field.behave(f"direct/speaking-{number}", speaking(data, number > 0))
        for number, data in enumerate((b"", *sent))
    ]
    while True:
        for path in paths:
            for deaf in (False, True):
                sockets = field.group(4, upgrade(path, "Sec-WebSocket-Extensions: grip"), deaf=deaf, small=deaf)
                await sockets.fill()
                await asyncio.sleep(0.05)
                sockets.drop()
        yield


ATTACKS: Final[dict[str, Attack]] = {
    "silence": Attack(silence, 0.5),
    "endless-answers": Attack(endless_answers, 0.5),
    "bad-answers": Attack(bad_answers, 0.5),
    "bad-instructs": Attack(bad_instructs, 0.5),
    "held-documents": Attack(held_documents, 0.5),
    "link-chains": Attack(link_chains, 1.0),
    "forbidden-links": Attack(forbidden_links, 1.5),
    "slow-drip": Attack(slow_drip, 0.5),
    "resets": Attack(resets, 0.5),
    "socket-answers": Attack(socket_answers, 0.5),
    "half-answers": Attack(half_answers, 2.0),
    "direct-sockets": Attack(direct_sockets, 0.5),
}
"""All attacks by name."""


if __name__ == "__main__":
    sys.exit(main(ATTACKS))
