"""Stands between the workers and the handler and breaks the pipe: ``python -m tests.faults.relay FROM TO``.

Commands come on standard input, one a line: ``cut`` ends all connections at once, wherever in a frame they are;
``stall`` passes nothing on until ``flow``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import cast

__all__ = ["Relay", "main"]


class _End(asyncio.Protocol):
    """One end of a relayed connection; ``near`` the one that was accepted."""

    def __init__(self, relay: Relay, near: bool) -> None:
        self.relay = relay
        self.near = near
        self.other: _End | None = None
        self.waiting = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.relay.ends.add(self)
        if self.relay.stalled:
            self.transport.pause_reading()
        if self.near:
            self.relay.connect(self)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)
        else:
            self.waiting += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.relay.ends.discard(self)
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Relay:
    """Accepts at one path, connects to another, and passes bytes on."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.ends: set[_End] = set()
        self.stalled = False
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self) -> _End:
        """Return the near end of a new connection."""
        return _End(self, True)

    def connect(self, near: _End) -> None:
        """Find the far end for a near one that is there."""
        task = asyncio.get_running_loop().create_task(self._connect(near))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, near: _End) -> None:
        far = _End(self, False)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: far, self.target)
        except OSError:
            if near.transport is not None:
                near.transport.abort()
            return
        assert far.transport is not None
        far.other, near.other = near, far
        if near.transport is None:
            far.transport.close()
        far.transport.write(near.waiting)

    def obey(self, order: str) -> None:
        """Do what one line of input says."""
        if order == "cut":
            for end in list(self.ends):
                if end.transport is not None:
                    end.transport.abort()
        elif order in ("stall", "flow"):
            self.stalled = order == "stall"
            for end in self.ends:
                if end.transport is not None:
                    (end.transport.pause_reading if self.stalled else end.transport.resume_reading)()


async def main(source: str, target: str) -> None:
    """Relay until standard input ends."""
    relay = Relay(target)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(relay.accept, source)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("relaying", flush=True)
    while line := await reader.readline():
        relay.obey(line.decode().strip())
    server.close()
    os.unlink(source)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
