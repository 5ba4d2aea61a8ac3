"""The end of a worker: its clients are asked to leave, some at a time if a successor serves already.

A worker is *retired* when its successor serves. It has stopped accepting: connections in the queue of the listening
socket are the successor's, which has the same socket. Requests in flight are finished, further ones on their
connections are answered with ``Connection: close``. Held clients stay, and go on getting items, until they are asked to
leave: long-polls first, for they simply ask again; the others after ``hold_time`` seconds, those that can miss nothing
last. Both are spread over ``spread`` seconds, so that they do not come back as one wave.

A worker is *stopped* when no successor serves, or its retirement is over: all clients are asked to leave, requests in
flight have ``shutdown_timeout`` seconds.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from math import ceil
from typing import Final, Protocol, cast

from gripproxy.client.context import ClientContext
from gripproxy.client.registry import Ending
from gripproxy.process.log import access, log
from gripproxy.sessions.reliable_stream import ReliableStream
from gripproxy.sessions.response import ResponseHold
from gripproxy.sessions.stream import StreamHold
from gripproxy.sessions.websocket import WebSocketSession

__all__ = ["ARRIVAL", "STEP", "Drain"]

STEP: Final = 0.1
"""Seconds between two groups of clients that are asked to leave."""

ARRIVAL: Final = 1.0
"""Seconds in which an accepted connection is counted as one; TLS handshakes take longer."""

END_STEP: Final = 0.02
"""Seconds between two checks whether a stopped worker has no client left."""

Held = ResponseHold | StreamHold | WebSocketSession


class Closing(Protocol):
    """The acceptor."""

    def close(self) -> None:
        """Accept no more."""


class Drain:
    """The end of one worker.

    Args:
        context: The client context.
        number: Number of the worker.
        acceptor: Accepts clients.
        retiring: Called when a retirement begins.
        ended: Called when no client is left, or time is over.
    """

    __slots__ = (
        "_acceptor", "_began", "_context", "_end_at", "_ended", "_hold_time", "_number", "_others", "_over", "_polls",
        "_retiring", "_spread", "arrival",
    )  # fmt: skip

    def __init__(
        self,
        context: ClientContext,
        number: int,
        acceptor: Closing,
        retiring: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._context = context
        self._number = number
        self._acceptor = acceptor
        self._retiring = retiring
        self._ended = ended
        self._over = False
        self.arrival = ARRIVAL
        """Seconds until every connection accepted before is counted."""
        self._began = self._hold_time = self._spread = self._end_at = 0.0
        self._polls: deque[Held] = deque()
        self._others: deque[Held] | None = None

    def allow(self, seconds: float) -> None:
        """Give accepted connections more time until they are counted: they have TLS handshakes of so many seconds."""
        self.arrival += seconds

    # --- retirement

    def retire(self, hold_time: float, spread: float) -> None:
        """Take no new clients, and ask those that are held to leave later.

        Args:
            hold_time: Seconds that held streams and WebSockets stay.
            spread: Seconds over which clients of one kind are asked to leave.
        """
        registry = self._context.registry
        if registry.retiring:
            return
        registry.retire()
        self._acceptor.close()
        self._retiring()
        self._began, self._hold_time, self._spread = self._context.clock(), hold_time, spread
        holds = registry.held.values()
        self._polls = deque([hold for hold in holds if isinstance(hold, ResponseHold)])
        name = f"worker {self._number} (retiring, process {os.getpid()})"
        log.rename(name)
        access.rename(name)
        log.info(
            "retiring",
            "a new process has taken over; long-polls are answered now, other clients later",
            long_polls=len(self._polls),
            clients=len(holds) + len(registry.sockets) - len(self._polls),
            from_seconds=hold_time,
            to_seconds=hold_time + spread,
        )
        self._step()

    def _step(self) -> None:
        """Ask some clients to leave, if it is time, and stop when none is left or time is over."""
        context = self._context
        registry = context.registry
        if registry.draining:
            return
        age = context.clock() - self._began
        if not registry.connections and age >= self.arrival:
            log.info("retired", "all clients have gone")
            self.stop()
            return
        if age >= self._hold_time and self._others is None:
            self._others = deque(self._held())
        self._ask(self._polls, self._spread - age)
        if self._others is not None:
            left = self._hold_time + self._spread - age
            self._ask(self._others, left)
            if left <= 0:
                self.stop()
                return
        context.loop.call_later(STEP, self._step)

    def _held(self) -> Iterator[Held]:
        """Yield all held clients in the order in which they are asked to leave."""
        registry = self._context.registry
        holds, sockets = list(registry.held.values()), registry.sockets
        yield from (hold for hold in holds if isinstance(hold, ResponseHold))
        yield from (hold for hold in holds if isinstance(hold, StreamHold) and not isinstance(hold, ReliableStream))
        yield from (socket for socket in sockets.values() if socket.reliable is None)
        yield from (hold for hold in holds if isinstance(hold, ReliableStream))
        yield from (socket for socket in sockets.values() if socket.reliable is not None)

    def _ask(self, queue: deque[Held], left: float) -> None:
        """Ask as many clients to leave as it takes to be through in ``left`` seconds."""
        steps = max(1, ceil(left / STEP))
        for _ in range(ceil(len(queue) / steps)):
            session = queue.popleft()
            if session.over:
                continue
            if isinstance(session, WebSocketSession):
                session.drain()
            elif session.unconfirmed:
                # Its response would be that the service is unavailable; the end of the time comes soon enough.
                queue.append(session)
            else:
                cast(Ending, session.outlet).drain()

    # --- stop

    def stop(self) -> None:
        """Stop accepting, end sessions, finish requests in flight; at the latest after ``shutdown_timeout``."""
        context = self._context
        registry = context.registry
        if registry.draining:
            return
        registry.drain()
        self._acceptor.close()
        for session in [*registry.held.values(), *registry.sockets.values()]:
            session.drain()
        for client in list(registry.active):
            client.drain()
        self._end_at = context.clock() + context.config.runner.shutdown_timeout
        self._wait()

    def _wait(self) -> None:
        context = self._context
        registry = context.registry
        left = registry.connections or context.posting or context.gone.under_way
        if left and context.clock() < self._end_at and not self._over:
            context.loop.call_later(END_STEP, self._wait)
            return
        self._over = True
        for client in list(registry.active):
            client.abort()
        for session in list(registry.sockets.values()):
            session.abort_client("the process ends")
        self._ended()
