"""Large bodies of publications as the hub sees them: read by a child process, while the hub's loop serves the others.

The child is started with the first large body. It has one body at a time, and each owner has its turn. Bodies that
wait are among those that the server holds, which are bounded: of one owner and of all.
"""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any, Final

from griphub.api.body_process import drafts_in
from griphub.api.problem import unavailable
from griphub.api.publish_body import is_read
from griphub.api.query import PublishQuery
from griphub.api.request import Request
from griphub.processes.child import ChildLog
from griphub.processes.fair_queue import FairQueue
from griphub.processes.readers import ReaderOptions, ReaderPool
from griphub.store.errors import StoreError, StoreProblem
from griphub.store.event import Draft
from gripproxy.process.log import log

__all__ = ["LARGE_BODY", "BodyParser"]

MODULE: Final = "griphub.api.body_process"

LARGE_BODY: Final = 131_072
"""Bytes of a body from which on the child reads it: in the worst case the hub would need a hundredth of a second."""

DEADLINE: Final = 20.0
"""Seconds for the reading of a body, after which the child is replaced."""


class BodyParser:
    """Reader of large bodies. Used from the loop only.

    Args:
        path: of the store, which names the hub that the child belongs to.
        child_log: log of the child.
        deadline: seconds for the reading of a body.
    """

    def __init__(self, path: pathlib.Path, child_log: ChildLog | None = None, deadline: float = DEADLINE) -> None:
        self._path = path
        self._deadline = deadline
        self._log = child_log or ChildLog()
        self._pool = self._new_pool()
        self._started: asyncio.Task[None] | None = None
        self._turns: FairQueue[asyncio.Future[None]] = FairQueue(0, 0, 1)
        self._busy = False

    def _new_pool(self) -> ReaderPool:
        return ReaderPool(self._path, 1, ReaderOptions(deadline=self._deadline, log=self._log, module=MODULE))

    @property
    def pids(self) -> list[int]:
        """Number of the process, if it was started; 0 while it is being started again."""
        return [] if self._started is None else self._pool.pids

    async def stop(self) -> None:
        """End the process; bodies that it has are not read."""
        if self._started is not None:
            await asyncio.wait([self._started])
            await self._pool.stop()

    def wants(self, request: Request, query: PublishQuery | None) -> bool:
        """Return whether the body of a request is to be read here.

        Args:
            request: the request.
            query: parameters of a request to publish; None for one that stores the value of a key.

        Raises:
            Problem: 400, a header is not allowed.
        """
        return len(request.body) >= LARGE_BODY and is_read(request.headers, query)

    async def drafts(self, request: Request, query: PublishQuery, owner: str) -> tuple[Draft, ...]:
        """Return the events of a request to publish.

        Args:
            request: the request.
            query: its parameters.
            owner: text that names the owner in whose turn it is read.

        Raises:
            Problem: the request is refused; 503, its body was not read in time.
        """
        return await self._read(request, owner, "drafts", (query.batch, query.key_attribute))

    async def draft(self, request: Request, key: str, owner: str) -> tuple[Draft, ...]:
        """Return the only event of a request that stores the value of a key; raises as ``drafts``.

        Args:
            request: the request.
            key: the key, checked.
            owner: text that names the owner in whose turn it is read.
        """
        return await self._read(request, owner, "draft", key)

    async def messages(self, request: Request, owner: str) -> tuple[Draft, ...]:
        """Return the events of a publishing request of the push API.

        Args:
            request: the request.
            owner: text that names the owner in whose turn it is read.

        Raises:
            ApiError: the request is refused.
            Problem: it is no JSON; 503, its body was not read in time.
        """
        return await self._read(request, owner, "messages", None)

    async def _read(self, request: Request, owner: str, method: str, argument: Any) -> tuple[Draft, ...]:
        await self._turn(owner)
        try:
            await self._start()
            plain = await self._pool.call(method, request.headers, argument, request.body)
        except (StoreError, StoreProblem) as error:
            log.warning("body not read", bytes=len(request.body), reason=error)
            raise unavailable(
                "the body was not read in time: repeat the request later, or with a smaller one"
            ) from error
        finally:
            self._pass_on()
        return drafts_in(plain, request.body)

    async def _start(self) -> None:
        if self._started is not None and self._started.done() and self._started.exception() is not None:
            # A pool that could not be started has ended for good.
            self._started, self._pool = None, self._new_pool()
        if self._started is None:
            self._started = asyncio.get_running_loop().create_task(self._pool.start())
        await asyncio.shield(self._started)

    # --- turns

    async def _turn(self, owner: str) -> None:
        """Wait for a turn of an owner."""
        if not self._busy:
            self._busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.add(owner, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not self._turns.remove(owner, turn) and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the turn to the next one."""
        while (taken := self._turns.take()) is not None:
            owner, turn = taken
            self._turns.finished(owner)
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
