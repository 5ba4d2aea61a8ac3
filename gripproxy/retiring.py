"""The end of a worker whose successor serves already: it lets its clients go, a few at a time.

It has stopped accepting: connections that wait in the queue of the listening socket are the successor's, which has the
same one. Requests in flight are finished, further ones on the same connections are answered with ``Connection: close``.
Held clients stay, and go on getting items, until they are let go: long-polls first, for they simply ask again; the
others after ``hold_time``, those who can miss nothing last. Both are spread over ``spread`` seconds, so that they do
not come back as one wave.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING, Final, cast

from gripproxy.log import log
from gripproxy.sessions.reliable import ReliableStream
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from gripproxy.sessions.websocket import WebSocketSession

if TYPE_CHECKING:
    from gripproxy.edge.client import ClientConnection
    from gripproxy.worker import Worker

__all__ = ["Retirement"]

STEP: Final = 0.1
"""Seconds between two groups of clients that are let go."""

ARRIVAL: Final = 1.0
"""Seconds in which what was accepted last becomes a connection that is counted; TLS handshakes take longer."""

Held = ResponseHold | StreamHold | WebSocketSession


class Retirement:
    """The retirement of ``worker``. ``arrival``: seconds until all that was accepted before is counted."""

    def __init__(self, worker: Worker, hold_time: float, spread: float, arrival: float = ARRIVAL) -> None:
        self._worker = worker
        self._began = worker.clock()
        self._hold_time = hold_time
        self._spread = spread
        self._arrival = arrival
        holds = worker.held.values()
        self._polls: deque[Held] = deque([hold for hold in holds if isinstance(hold, ResponseHold)])
        self._others: deque[Held] | None = None
        log.rename(f"worker {worker.number} (retiring, process {os.getpid()})")
        log.info(
            "a new process has taken over: %d long-polls are answered now, %d other clients are let go in %g to %g s",
            len(self._polls),
            len(holds) + len(worker.sockets) - len(self._polls),
            hold_time,
            hold_time + spread,
        )
        self._step()

    def _step(self) -> None:
        """Let some go, if it is time, and end the process when nobody is left or time is over."""
        worker = self._worker
        if worker.draining:
            return
        age = worker.clock() - self._began
        if not worker.connections and age >= self._arrival:
            log.info("all clients have gone")
            worker.stop()
            return
        if age >= self._hold_time and self._others is None:
            self._others = deque(self._held())
        self._let_go(self._polls, self._spread - age)
        if self._others is not None:
            left = self._hold_time + self._spread - age
            self._let_go(self._others, left)
            if left <= 0:
                worker.stop()
                return
        worker.loop.call_later(STEP, self._step)

    def _held(self) -> Iterator[Held]:
        """All who are held now, in the order in which they are let go."""
        worker = self._worker
        holds = list(worker.held.values())
        yield from (hold for hold in holds if isinstance(hold, ResponseHold))
        yield from (hold for hold in holds if isinstance(hold, StreamHold) and not isinstance(hold, ReliableStream))
        yield from (socket for socket in worker.sockets.values() if socket.reliable is None)
        yield from (hold for hold in holds if isinstance(hold, ReliableStream))
        yield from (socket for socket in worker.sockets.values() if socket.reliable is not None)

    def _let_go(self, queue: deque[Held], left: float) -> None:
        """Let as many go as have to, to be through in ``left`` seconds."""
        steps = max(1, ceil(left / STEP))
        for _ in range(ceil(len(queue) / steps)):
            session = queue.popleft()
            if session.over:
                continue
            if isinstance(session, WebSocketSession):
                session.drain()
            elif session.unconfirmed:
                # It would be told that the service is unavailable; the end of the time comes soon enough.
                queue.append(session)
            else:
                cast("ClientConnection", session.outlet).drain()
