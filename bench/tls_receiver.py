"""Receiver of callbacks over TLS: confirms each challenge, acknowledges each event. One process.

    python bench/tls_receiver.py FOLDER PORT …

FOLDER has ``callback.crt`` and ``callback.key``. Commands on the standard input as those of ``native/receiver.c``; no
times of events.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import ssl
import sys
import time
from typing import Final, cast

import httptools
import uvloop

__all__: list[str] = []

DONE: Final = b"HTTP/1.1 204 No Content\r\n\r\n"


class Tally:
    """Events so far, and the command that waits for them."""

    def __init__(self) -> None:
        self.events = self.challenges = self.first = self.last = 0
        self._wanted: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def event(self) -> None:
        """Count an event."""
        self.last = time.monotonic_ns()
        if not self.events:
            self.first = self.last
        self.events += 1
        if self._wanted is not None and self.events >= self._wanted:
            self.report()

    def report(self) -> None:
        """Answer the command."""
        self._wanted = None
        if self._timer is not None:
            self._timer.cancel()
        figures = {"events": self.events, "challenges": self.challenges, "first": self.first, "last": self.last}
        print(json.dumps(figures | {"histogram": []}), flush=True)

    def command(self, line: str) -> None:
        """Carry out a command."""
        word, *numbers = line.split()
        if word == "zero":
            self.events = self.first = self.last = 0
            self.report()
            return
        count, milliseconds = map(int, numbers)
        if self.events >= count:
            self.report()
        else:
            self._wanted = count
            self._timer = asyncio.get_running_loop().call_later(milliseconds / 1000, self.report)


class Connection(asyncio.Protocol):
    """Connection of the sender."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """Answer."""
        body, self._body = self._body, b""
        if b'"challenge": "' in body[:400]:
            token = json.loads(body)["challenge"].encode()
            self._tally.challenges += 1
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(token), token))
        else:
            self._transport.write(DONE)
            self._tally.event()


class Commands(asyncio.Protocol):
    """Standard input."""

    def __init__(self, tally: Tally, ended: asyncio.Event) -> None:
        self._tally = tally
        self._ended = ended
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._tally.command(line.decode())

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()


async def main(folder: pathlib.Path, ports: list[int]) -> None:
    """Serve until the end of the standard input."""
    loop = asyncio.get_running_loop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "callback.crt", folder / "callback.key")
    tally, ended = Tally(), asyncio.Event()
    for port in ports:
        await loop.create_server(lambda: Connection(tally), "127.0.0.1", port, ssl=context, backlog=1000)
    await loop.connect_read_pipe(lambda: Commands(tally, ended), sys.stdin)
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(main(pathlib.Path(sys.argv[1]), [int(word) for word in sys.argv[2:]]))
