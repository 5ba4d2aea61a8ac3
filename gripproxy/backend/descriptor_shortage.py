"""Shortage of descriptors: connects to backends that wait until one is free.

A connect that finds no descriptor is no failure of its backend. So it waits here, first come, first served, and is
tried again when a descriptor is free, for as long as connecting may take. Clients that have been accepted go before new
ones: accepting leaves as many descriptors as there are requests without a backend connection.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import itertools
import socket
from collections.abc import Callable
from typing import Final

from gripproxy.process.log import log

__all__ = ["OWN", "PAUSE", "DescriptorShortage"]

OWN: Final = 16
"""Descriptors that connects leave for the process itself (the pipe, the log, certificates); a sixteenth of the limit if
that is less."""

PAUSE: Final = 0.05
"""Seconds between two looks for a free descriptor while connects wait."""

AT_ONCE: Final = 16
"""Connects tried again after one look: how many descriptors are free is known at least, not exactly."""


class DescriptorShortage:
    """The connects of one worker that wait for a descriptor. Their number is bounded by ``max_open_requests``.

    Args:
        later: calls back after some seconds, as the loop's ``call_later``.
        clock: time in seconds.
        limit: how many files the process may have open.
        in_use: how many it has open, at least.
    """

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], object],
        clock: Callable[[], float],
        limit: int,
        in_use: Callable[[], int],
    ) -> None:
        self._later = later
        self._clock = clock
        self._limit = limit
        self._own = min(OWN, limit // 16)
        self._in_use = in_use
        self._near = True
        self.queue: list[tuple[int, asyncio.Future[None]]] = []
        """Connects that wait, a heap by their tickets; empty if none does."""
        self._tickets = itertools.count()
        self._armed = False
        self._logged = float("-inf")
        self.waits = 0
        """Connects that had to wait for a descriptor."""

    def watch(self, near: bool) -> None:
        """Note whether the limit is near: only then descriptors are counted before a connect."""
        self._near = near

    @property
    def short(self) -> bool:
        """True if a new connect has to wait, behind others or for a descriptor."""
        return bool(self.queue) or (self._near and self._free() <= 0)

    def _free(self) -> int:
        return self._limit - self._own - self._in_use()

    def means(self, error: OSError) -> bool:
        """Return whether ``error`` of a connect is the want of a descriptor, and not the backend's."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        # A resolver without descriptors finds no host; and several addresses that failed have no errno in common.
        return (isinstance(error, socket.gaierror) or error.errno is None) and self._in_use() >= self._limit - 1

    def ticket(self) -> int:
        """Return a place in the queue, kept by a connect until it is over."""
        return next(self._tickets)

    async def wait(self, ticket: int) -> None:
        """Return when a descriptor may be free and all with an earlier ticket have gone on."""
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self.queue, (ticket, future))
        self._arm()
        await future

    def note(self) -> None:
        """Count a connect that has to wait; at most one line a second."""
        self.waits += 1
        now = self._clock()
        if now >= self._logged + 1:
            self._logged = now
            log.warning(
                "no descriptor free, connects to backends wait",
                "raise LimitNOFILE= or ulimit -n",
                waiting=len(self.queue) + 1,
                files_max=self._limit,
                waits=self.waits,
            )

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._later(PAUSE, self._look)

    def _look(self) -> None:
        """Let so many go on as there are descriptors for."""
        self._armed = False
        queue = self.queue
        left = min(max(0, self._free()), AT_ONCE)
        while queue and (left or queue[0][1].done()):
            _, future = heapq.heappop(queue)
            if not future.done():
                left -= 1
                future.set_result(None)
        if queue:
            self._arm()
