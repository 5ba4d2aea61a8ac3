"""Subscribers that poll their mailboxes, each over one connection, as fast as replies come. One process.

    python bench/mailbox_poller.py PORT PREFIX

PORT is one of 127.0.0.1, PREFIX the path of the hub. Commands on the standard input, each answered by a line of JSON:

    open NAME COUNT     polls for the subscribers NAME0, NAME1 … begin, a thousand a second; answered when all are sent
    zero                a new count begins
    report              the count

The time of a reply is that from the storing of its first message to its arrival.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import re
import sys
import time
from collections import Counter
from datetime import datetime
from functools import partial
from typing import Final, cast

import uvloop

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bench.latencies import STEPS

__all__: list[str] = []

WAIT: Final = 600
"""Seconds for which a poll is held."""

WINDOW: Final = 10
"""Polls that begin together."""

PACE: Final = 1000
"""Polls that begin in a second."""

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)
_TIME: Final = re.compile(rb'"time":"([^"]+)"')
_SEQUENCE: Final = b'"sequence_id":"'


def bucket(nanoseconds: int) -> int:
    """Return the bucket of a time in ``nanoseconds``, as ``Latencies`` has it."""
    if nanoseconds < STEPS:
        return max(0, nanoseconds)
    power = nanoseconds.bit_length() - 1
    return (power - 5) * STEPS + (nanoseconds >> (power - 6)) % STEPS


class Tally:
    """Count of replies and messages."""

    def __init__(self) -> None:
        self.zero()

    def zero(self) -> None:
        """Forget it."""
        self.replies = self.messages = self.failures = self.lost = self.most = 0
        self.times: Counter[int] = Counter()

    def reply(self, body: bytes) -> None:
        """Count a reply by its ``body``."""
        self.replies += 1
        self.messages += body.count(_SEQUENCE)
        self.lost += b'"lost":[]' not in body[-400:]
        found = _TIME.search(body)
        if found is not None:
            stored = datetime.fromisoformat(found[1].decode()).timestamp()
            taken = max(0, time.time_ns() - round(stored * 1e9))
            self.times[bucket(taken)] += 1
            self.most = max(self.most, taken)

    def fail(self) -> None:
        """Count a failure."""
        self.failures += 1

    def report(self) -> dict[str, object]:
        """Return it."""
        figures = {"replies": self.replies, "messages": self.messages, "failures": self.failures, "lost": self.lost}
        return {**figures, "most": self.most, "histogram": list(self.times.items())}


class Subscriber(asyncio.Protocol):
    """Connection of one subscriber.

    Args:
        tally: counts.
        path: of its polls.
    """

    def __init__(self, tally: Tally, path: str) -> None:
        self._tally = tally
        self._path = path
        self._rest = bytearray()
        self._last = b"0"
        self._publisher = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._poll()

    def data_received(self, data: bytes) -> None:
        rest = self._rest
        rest += data
        while (end := rest.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(rest, 0, end + 2)
            assert length is not None, "answers have lengths"
            total = end + 4 + int(length[1])
            if len(rest) < total:
                return
            status, body = bytes(rest[9:12]), bytes(rest[end + 4 : total])
            del rest[:total]
            self._answered(status, body)

    def connection_lost(self, error: Exception | None) -> None:
        self._tally.fail()

    def _answered(self, status: bytes, body: bytes) -> None:
        if status != b"200":
            self._tally.fail()
            return
        self._publisher = body[17 : body.index(b'"', 17)]
        if (place := body.rfind(_SEQUENCE)) >= 0:
            place += len(_SEQUENCE)
            self._last = body[place : body.index(b'"', place)]
            self._tally.reply(body)
        self._poll()

    def _poll(self) -> None:
        query = b"max_processed_sequence_id=%b&wait=%d" % (self._last, WAIT)
        if self._publisher:
            query += b"&publisher_id=" + self._publisher
        self._transport.write(b"GET %b?%b HTTP/1.1\r\nHost: bench.example\r\n\r\n" % (self._path.encode(), query))


class Commands(asyncio.Protocol):
    """Standard input.

    Args:
        port: of the service.
        prefix: path of the hub.
        ended: set at its end.
    """

    def __init__(self, port: int, prefix: str, ended: asyncio.Event) -> None:
        self._port = port
        self._prefix = prefix
        self._ended = ended
        self._tally = Tally()
        self._rest = b""
        self._opening: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, *values = line.decode().split()
            if word == "open":
                self._opening = asyncio.get_running_loop().create_task(self._open(values[0], int(values[1])))
                continue
            if word == "zero":
                self._tally.zero()
            print(json.dumps(self._tally.report()), flush=True)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()

    async def _open(self, name: str, count: int) -> None:
        loop = asyncio.get_running_loop()
        for number in range(count):
            path = f"{self._prefix}/subscribers/{name}{number}/poll"
            await loop.create_connection(partial(Subscriber, self._tally, path), "127.0.0.1", self._port)
            # All together, they would have the proxy open as many connections to the hub.
            if number % WINDOW == WINDOW - 1:
                await asyncio.sleep(WINDOW / PACE)
        print(json.dumps(self._tally.report()), flush=True)


async def main(port: int, prefix: str) -> None:
    """Poll until the end of the standard input.

    Args:
        port: of the service.
        prefix: path of the hub.
    """
    ended = asyncio.Event()
    commands = Commands(port, prefix, ended)
    await asyncio.get_running_loop().connect_read_pipe(lambda: commands, sys.stdin)
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2]))
