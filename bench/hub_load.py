"""Load of the hub: publishers that measure the time to each answer, and readers of history."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import httptools

from bench.latencies import Latencies
from bench.programs import BenchError, Program

__all__ = ["KEY", "MARK", "SIZE", "History", "Posted", "Poster", "Read", "batch", "request"]

MARK = "@0000000000000000;"
"""Place of the time at which a request is sent."""

KEY = "k#######"
"""Place of a key; each place of a request has the next one."""

SIZE = 200
"""Bytes of an event's data."""

PATIENCE = 60.0
"""Seconds without a byte after which a reader gives up."""

READ_MOST = 1 << 18
PACED_MOST = 1 << 15
"""Greatest number of bytes of one read; less where the reader has a rate, for an even load."""


def request(path: str, body: bytes, *, content_type: str = "text/plain") -> bytes:
    """Return an HTTP request that posts a body.

    Args:
        path: target of the request.
        body: content, with places for the poster.
        content_type: media type of the content.
    """
    head = f"POST {path} HTTP/1.1\r\nHost: bench.example\r\nContent-Type: {content_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def batch(number: int, *, keys: bool) -> bytes:
    """Return a batch of events as JSON.

    Args:
        number: of events.
        keys: whether each event has a key.
    """
    event = {"content_type": "text/plain", "data": "x" * SIZE}
    return json.dumps({"events": [event | ({"key": KEY} if keys else {}) for _ in range(number)]}).encode()


@dataclass(frozen=True)
class Posted:
    """Report of a poster.

    Attributes:
        taken: requests answered with 2xx.
        refused: requests answered otherwise, or not at all.
        start: nanoseconds of the monotonic clock at the first request.
        end: nanoseconds of the monotonic clock at the last answer.
        latencies: times to the answers of those that were taken.
    """

    taken: int
    refused: int
    start: int
    end: int
    latencies: Latencies

    @property
    def rate(self) -> float:
        """Requests taken a second."""
        return self.taken / max(1e-9, (self.end - self.start) / 1e9)


class Poster:
    """Program that sends one request again and again over several connections.

    Args:
        programs: folder of the compiled programs.
        address: port of 127.0.0.1, or path of a Unix socket.
        message: bytes of the request, with places.
        connections: how many; on each one request at a time.
        keys: number of different keys.

    Raises:
        BenchError: the program cannot connect.
    """

    def __init__(
        self, programs: Path, address: int | str, message: bytes, *, connections: int = 64, keys: int = 10_000
    ) -> None:
        self._seconds = 0.0
        with tempfile.NamedTemporaryFile(prefix="bench-request-") as file:
            file.write(message)
            file.flush()
            command = [f"{programs}/poster", str(address), str(connections), str(keys), file.name]
            self._program = Program(command)
            self.post(0, seconds=0)  # it has read the file when it answers

    def begin(self, seconds: float, *, rate: int = 0, count: int = 1 << 60) -> None:
        """Begin to post.

        Args:
            seconds: greatest duration.
            rate: requests a second; 0: each connection posts as soon as its last request is answered.
            count: greatest number of requests.
        """
        self._seconds = seconds
        self._program.tell(f"post {count} {rate} {int(seconds * 1000)}")

    def posted(self) -> Posted:
        """Return the report of the requests since ``begin``, when all have ended.

        Raises:
            BenchError: the program does not answer.
        """
        answer = self._program.answer(self._seconds + 30)
        refused = answer["sent"] - answer["taken"]
        return Posted(answer["taken"], refused, answer["start"], answer["end"], Latencies(answer["histogram"]))

    def post(self, count: int = 1 << 60, *, seconds: float = 60, rate: int = 0) -> Posted:
        """Post, and return the report.

        Args:
            count: greatest number of requests.
            seconds: greatest duration, in seconds.
            rate: requests a second; 0: as many as are answered.

        Returns:
            The report.
        """
        self.begin(seconds, rate=rate, count=count)
        return self.posted()

    def close(self) -> None:
        """End the program."""
        self._program.close()


@dataclass(frozen=True)
class Read:
    """Report of a reader: events, and the seconds that they took."""

    events: int
    seconds: float

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / max(1e-9, self.seconds)


_NEXT = re.compile(rb"<([^>]*)>\s*;[^,]*rel=\"?next")


class _Answer:
    """Callbacks of the parser: counts lines of the body, and keeps the link to the next page."""

    def __init__(self) -> None:
        self.lines = 0
        self.link = ""
        self.held = False
        self.ended = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if name.lower() == b"grip-hold":
            self.held = True
        elif name.lower() == b"grip-link" and (found := _NEXT.search(value)):
            self.link = found[1].decode()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self.lines += body.count(b"\n")

    def on_message_complete(self) -> None:
        """Take the end."""
        self.ended = True


class History:
    """Reader of a topic's history as lines. Through the hub's own socket it follows the links that the proxy follows.

    Args:
        address: port of 127.0.0.1, or path of a Unix socket.
        path: target of the first request.
    """

    def __init__(self, address: int | str, path: str) -> None:
        self._address = address
        self._path = path

    def read(self, *, rate: float = 0, seconds: float = 0) -> Read:
        """Read the history once, or again and again.

        Args:
            rate: events a second at most; 0: as fast as they come.
            seconds: duration for which it is read again and again; 0: once.

        Raises:
            BenchError: an answer is not 200, or ends early.
        """
        events, start = 0, time.monotonic()
        end = start + seconds
        while True:
            for more in self._once(PACED_MOST if rate else READ_MOST):
                events += more
                now = time.monotonic()
                if seconds and now >= end:
                    return Read(events, now - start)
                if rate and (early := start + events / rate - now) > 0:
                    time.sleep(min(early, max(0.0, end - now)) if seconds else early)
            if not seconds:
                return Read(events, time.monotonic() - start)

    def _once(self, most: int) -> Iterator[int]:
        """Yield the numbers of events as they come."""
        path = self._path
        with contextlib.closing(self._connect()) as sock:
            while path:
                head = f"GET {path} HTTP/1.1\r\nHost: bench.example\r\nAccept: application/x-ndjson\r\n\r\n"
                sock.sendall(head.encode())
                answer = _Answer()
                parser = httptools.HttpResponseParser(answer)
                counted = 0
                while not answer.ended:
                    data = sock.recv(most)
                    if not data:
                        raise BenchError(f"the history ends in the middle of an answer: {path}")
                    parser.feed_data(data)
                    yield answer.lines - counted
                    counted = answer.lines
                if parser.get_status_code() != 200:
                    raise BenchError(f"the history is answered with {parser.get_status_code()}: {path}")
                path = urljoin(path, answer.link) if answer.link and not answer.held else ""

    def _connect(self) -> socket.socket:
        if isinstance(self._address, str):
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(PATIENCE)
            sock.connect(self._address)
            return sock
        return socket.create_connection(("127.0.0.1", self._address), PATIENCE)
