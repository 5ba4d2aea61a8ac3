"""Turns: one piece of work in each turn of the loop, however many requests wait, and each owner in its turn."""

from __future__ import annotations

import asyncio

from griphub.api.problem import Problem, unavailable
from griphub.processes.fair_queue import FairQueue

__all__ = ["Turns"]


class Turns:
    """Queue of requests that want to work for a few milliseconds.

    Args:
        name: of the work, for refusals.
        waiting_max: greatest number of requests that wait; further ones get 503.
        owner_max: greatest number of them of one owner; further ones get 429.
    """

    def __init__(self, name: str, waiting_max: int, owner_max: int) -> None:
        self._name = name
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(waiting_max, owner_max, 1)
        self._loop = asyncio.get_running_loop()
        self._called = False

    def __len__(self) -> int:
        return len(self._queue)

    async def next(self, owner: str) -> None:
        """Wait for a turn of the loop, in which the caller works until it waits again.

        Args:
            owner: key of the owner.

        Raises:
            Problem: 429 or 503, too many wait.
        """
        queue = self._queue
        if queue.waiting(owner) >= queue.owner_max:
            text = f"{queue.owner_max} {self._name} of the owner wait: repeat the request later"
            extra = {"limit": self._name, "max": queue.owner_max}
            raise Problem(429, "limit", text, extra, [("Retry-After", "1")])
        if len(queue) >= queue.waiting_max:
            raise unavailable(f"{queue.waiting_max} {self._name} wait: repeat the request later")
        granted: asyncio.Future[None] = self._loop.create_future()
        queue.add(owner, granted)
        if not self._called:
            self._called = True
            self._loop.call_soon(self._grant)
        await granted

    def _grant(self) -> None:
        while taken := self._queue.take():
            owner, granted = taken
            self._queue.finished(owner)
            if not granted.done():
                granted.set_result(None)
                break
        self._called = bool(self._queue)
        if self._called:
            self._loop.call_soon(self._grant)
