"""Accept queue of a listening socket: several connections per turn of the event loop.

The event loop's own servers accept one connection per turn (uvloop 0.23 does). Behind a burst of connections, and while
turns are long, a client would wait one turn for each connection before its own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from gripproxy.process.log import log

__all__ = ["TURN", "AcceptQueue", "accept_waiting"]

TURN: Final = 50
"""Connections accepted in one turn of the loop."""


def accept_waiting(sock: socket.socket, limit: int = TURN) -> Iterator[socket.socket]:
    """Yield the connections that wait in the queue of a listening socket, non-blocking.

    Args:
        sock: The listening socket, non-blocking.
        limit: Greatest number of connections.

    Raises:
        OSError: A connection cannot be accepted: no descriptor is left, or the socket is closed.
    """
    for _ in range(limit):
        try:
            accepted, _ = sock.accept()
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionAbortedError:
            continue
        accepted.setblocking(False)
        yield accepted


class AcceptQueue:
    """Connections that wait behind the one that the loop's server has accepted.

    Args:
        loop: The event loop.
        sock: The listening socket of the server; the queue keeps a copy of it, until ``close``.
        make: Makes the protocol of a connection.
        tls: TLS context of the server; None for plain connections.
        handshake: Seconds for a TLS handshake.
        turn: Connections accepted in one turn of the loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        make: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None = None,
        handshake: float | None = None,
        turn: int = TURN,
    ) -> None:
        self._loop = loop
        self._sock = sock.dup()
        self._sock.setblocking(False)
        self._make = make
        self._tls = tls
        self._handshake = handshake if tls is not None else None
        self._turn = turn
        self._tasks: set[asyncio.Task[None]] = set()

    def first(self) -> asyncio.Protocol:
        """Return the protocol of a connection that the server has accepted, and accept those that wait behind it."""
        self._accept()
        return self._make()

    def close(self) -> None:
        """Accept no more. Connections whose TLS handshake is under way are dropped."""
        self._sock.close()
        for task in self._tasks:
            task.cancel()

    def _accept(self) -> None:
        if self._sock.fileno() < 0:
            return
        try:
            for sock in accept_waiting(self._sock, self._turn):
                self._keep(self._connect(sock))
        except OSError as error:
            # The server meets the same error, and reports it.
            log.debug("clients not accepted", reason=error.strerror)

    async def _connect(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make, sock, ssl=self._tls, ssl_handshake_timeout=self._handshake
            )
        except OSError as error:  # a failed TLS handshake is one
            log.debug("client not accepted", reason=error)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
