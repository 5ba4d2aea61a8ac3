"""Push server: port of a callback's own, for a program without a web application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

__all__ = ["CONNECTIONS_MAX", "PushServer", "path_of"]

CONNECTIONS_MAX: Final = 256
"""Connections that are open. Further ones are closed directly: pushes of the hub fail then, and polls go on."""

IDLE: Final = 30.0
"""Seconds after which a connection is closed on which no request was made, or not to its end."""

SWEEP: Final = 10.0
"""Seconds between two looks for such connections."""

CLOSE_TIMEOUT: Final = 1.0
"""Seconds that requests under way have at the end."""

HEAD_MAX: Final = 8190
"""Bytes of the first line, and of a header."""


class PushServer:
    """Server of one path.

    Args:
        handle: answers its requests.
        host: address to listen on.
        port: of TCP; 0 for a free one.
        path: of the callback; other paths are answered 404.
    """

    def __init__(
        self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], host: str, port: int, path: str
    ) -> None:
        self._handle = handle
        self._host = host
        self._port = port
        self._path = path
        self._runner: web.ServerRunner | None = None
        self._web: web.Server | None = None
        self._seen: dict[web.RequestHandler, float] = {}
        """Time of the last request of each connection, or of the first look at it."""
        self._timer: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Port that is listened on; 0 before the start if it is to be a free one."""
        return self._port

    @property
    def url(self) -> str:
        """URL of the callback, for the machine itself or its network."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}{self._path}"

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be listened on.
        """
        # No decompression: a small request would become a large one before it is looked at.
        web_server = web.Server(
            self._answer,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=IDLE,
            max_line_size=HEAD_MAX,
            max_field_size=HEAD_MAX,
        )
        runner = web.ServerRunner(web_server, shutdown_timeout=CLOSE_TIMEOUT)
        await runner.setup()
        self._runner, self._web = runner, web_server

        def protocol() -> asyncio.Protocol:
            return web_server() if len(web_server.connections) < CONNECTIONS_MAX else _Refusing()

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(protocol, self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self._timer = loop.call_later(SWEEP, self._sweep)

    async def close(self) -> None:
        """End, with all connections."""
        server, self._server = self._server, None
        if self._timer is not None:
            self._timer.cancel()
        if server is not None:
            server.close()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if request.path != self._path:
                return web.Response(status=404, text="no callback\n")
            return await self._handle(request)
        finally:
            self._seen[request.protocol] = asyncio.get_running_loop().time()

    def _sweep(self) -> None:
        """Close connections that only take places: aiohttp waits for their first request without end."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        connections = [] if self._web is None else self._web.connections
        self._seen = {each: self._seen.get(each, now) for each in connections}
        for connection, seen in self._seen.items():
            if now - seen >= IDLE:
                connection.force_close()
        self._timer = loop.call_later(SWEEP, self._sweep)


class _Refusing(asyncio.Protocol):
    """Connection beyond the bound."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def path_of(callback_url: str | None) -> str:
    """Return the path of a callback URL; that of None is ``/``.

    Args:
        callback_url: by which the hub reaches the callback.

    Raises:
        ValueError: it is not one of HTTP.
    """
    if callback_url is None:
        return "/"
    parts = urlsplit(callback_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment or parts.username is not None:
        raise ValueError(f"callback_url must be http://HOST/… or https://HOST/… without user, not {callback_url!r}")
    return parts.path or "/"
