"""The worker's end of the pipe to the handler: connected again whenever it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from gripproxy.pipe import Message, PipeConnection
from gripproxy.process.log import log

__all__ = ["CLIENTS", "FANOUT", "RECONNECT", "HandlerLink", "LinkOwner"]

RECONNECT: Final = (0.02, 0.5)
"""First and longest pause in seconds before the pipe is connected again."""

FANOUT, CLIENTS = 1, 2
"""Reasons to pause the intake: the fan-out takes no items for now; most clients are behind."""


class LinkOwner(Protocol):
    """The other side of the link in the worker."""

    def take(self, link: PipeConnection, messages: list[Message]) -> None:
        """Take ``messages`` of the handler, received by ``link``."""

    def flush(self) -> None:
        """Deliver all messages taken so far: a new connection may be made."""

    def connected(self, again: bool) -> None:
        """Announce the worker to the handler; ``again``: there was a connection before."""

    def disconnected(self, error: Exception | None) -> None:
        """Note the end of the connection; ``error``: the handler broke the protocol."""


def _given(link: PipeConnection) -> PipeConnection:
    return link


class HandlerLink:
    """The pipe to the handler.

    Args:
        loop: The event loop.
        path: Path of the handler's socket.
        queue_max: Bytes that may wait for the handler (``worker_queue_max``).
    """

    __slots__ = ("_link", "_loop", "_path", "_paused", "_queue_max")

    def __init__(self, loop: asyncio.AbstractEventLoop, path: str, queue_max: int) -> None:
        self._loop = loop
        self._path = path
        self._queue_max = queue_max
        self._link: PipeConnection | None = None
        self._paused = 0

    @property
    def connected(self) -> bool:
        """True while there is a handler."""
        return self._link is not None

    @property
    def queued(self) -> int:
        """Messages that wait for the handler."""
        return self._link.queued if self._link is not None else 0

    def send(self, message: Message) -> None:
        """Send a message to the handler; lost if there is none."""
        if self._link is not None:
            self._link.send(message)

    def pause(self, reason: int, on: bool) -> None:
        """Pause or resume the intake; it is paused while there is a reason.

        Args:
            reason: FANOUT or CLIENTS.
            on: Whether the reason is there.
        """
        self._paused = self._paused | reason if on else self._paused & ~reason
        if self._link is not None:
            if self._paused:
                self._link.pause_reading()
            else:
                self._link.resume_reading()

    def close(self) -> None:
        """End the connection: the process ends."""
        if self._link is not None:
            self._link.close()

    async def keep(self, owner: LinkOwner, clock: Callable[[], float]) -> None:
        """Keep the pipe connected, for as long as the process runs.

        Args:
            owner: Takes messages, and follows the connection.
            clock: Time in seconds.
        """
        pause, longest = RECONNECT
        logged = again = False
        while True:
            lost: asyncio.Future[None] = self._loop.create_future()
            owner.flush()
            link = PipeConnection.sized(owner.take, partial(_resolve, lost), self._queue_max)
            try:
                await self._loop.create_unix_connection(partial(_given, link), self._path)
            except OSError as error:
                if not logged and pause >= longest:
                    logged = True
                    log.warning("handler not reached", "it is tried again", path=self._path, reason=error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, longest)
                continue
            logged = False
            since = clock()
            self._link = link
            owner.connected(again)
            again = True
            await lost
            self._link = None
            owner.disconnected(link.error)
            if clock() - since > longest:
                pause = RECONNECT[0]
            else:
                # It hangs up right after the connection: a handler that ends, or one of another version.
                await asyncio.sleep(pause)
                pause = min(pause * 2, longest)


def _resolve(lost: asyncio.Future[None], _: PipeConnection) -> None:
    if not lost.done():
        lost.set_result(None)
