"""A backend that speaks WebSocket and echoes, made with the ``websockets`` library: ``python -m … PORT``."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed


async def echo(connection: ServerConnection) -> None:
    """Send each message back, in one frame."""
    try:
        while True:
            # Not recv(): that gives up on messages of very many fragments, which cases 9.3 and 9.4 send.
            parts: list[Any] = [part async for part in connection.recv_streaming()]
            await connection.send("".join(parts) if isinstance(parts[0], str) else b"".join(parts))
    except ConnectionClosed:
        pass  # the cases end their connections in every possible way


async def main(port: int) -> None:
    """Serve until killed. No pings of its own: the cases look at every frame."""
    async with serve(echo, "127.0.0.1", port, compression=None, max_size=None, ping_interval=None) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
