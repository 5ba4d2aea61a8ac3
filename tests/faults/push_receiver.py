"""Receiver of pushes as a process of its own: it notes each message in a file, and acknowledges it.

    python -m tests.faults.push_receiver PORT LOG

A line of the file has the time of the message's arrival in seconds since 1970, the path, and the id. It is written
before the answer, so that a receiver that is killed has noted all that it has acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from typing import Final, cast

import uvloop

_ID: Final = re.compile(rb'"messageId":"([0-9]+)"')
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: ([0-9]+)")
_OK: Final = b"HTTP/1.1 204 No Content\r\n\r\n"


class Receiver(asyncio.Protocol):
    """Connection.

    Args:
        log: descriptor of the file.
    """

    def __init__(self, log: int) -> None:
        self._log = log
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        lines, answers = [], 0
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._buffer, 0, end)
            size = end + 4 + (int(length[1]) if length is not None else 0)
            if len(self._buffer) < size:
                break
            request, self._buffer = self._buffer[:size], self._buffer[size:]
            found = _ID.search(request, end)
            path = request.split(b" ", 2)[1]
            if found is not None:
                lines.append(b"%.6f %b %b\n" % (time.time(), path, found[1]))
            answers += 1
        if lines:
            os.write(self._log, b"".join(lines))
        if answers and self._transport is not None:
            self._transport.write(_OK * answers)


async def main(port: int, path: str) -> None:
    """Serve until the process is killed."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    server = await asyncio.get_running_loop().create_server(lambda: Receiver(log), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2]))
