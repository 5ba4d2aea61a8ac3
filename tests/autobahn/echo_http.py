"""A backend that knows only HTTP and echoes events (docs/grip.md §8.3): ``python -m … PORT``."""

from __future__ import annotations

import sys

from aiohttp import web

TYPE = "application/websocket-events"
ANSWERS = {b"OPEN": b"OPEN", b"TEXT": b"TEXT", b"BINARY": b"BINARY", b"PING": b"PONG", b"CLOSE": b"CLOSE"}
"""What an event is answered with, its content taken over. PONG and DISCONNECT get no answer."""


def answer(body: bytes) -> bytes:
    """Return the events that answer those of a request; ValueError if they are malformed."""
    parts: list[bytes] = []
    position = 0
    while position < len(body):
        end = body.index(b"\r\n", position)
        kind, _, size = body[position:end].partition(b" ")
        event_end = end + 2 + (int(size, 16) + 2 if size else 0)
        if body[event_end - 2 : event_end] != b"\r\n":
            raise ValueError(f"{kind!r} at byte {position} does not end where its length says")
        if kind in ANSWERS:
            parts += (ANSWERS[kind], body[position + len(kind) : event_end])
        position = event_end
    return b"".join(parts)


async def echo(request: web.Request) -> web.Response:
    """Answer one request."""
    return web.Response(body=answer(await request.read()), content_type=TYPE)


if __name__ == "__main__":
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/{path:.*}", echo)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)
