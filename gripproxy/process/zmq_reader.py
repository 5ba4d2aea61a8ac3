"""ZeroMQ reader: reads a socket from the event loop without missing a message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

__all__ = ["ZmqReader"]

TURN: Final = 500
TURN_BYTES: Final = 256 * 1024
"""Messages read in a turn of the loop, and bytes after which the turn ends, so that a flood leaves time for the
workers' links, the control port and the other sockets: 500 items of a megabyte blocked the handler for seconds."""

WAIT: Final = 0.005
"""Seconds between two checks while reading is paused."""


class ZmqReader:
    """Reads a ZeroMQ socket whenever it has messages.

    The socket's descriptor is edge-triggered: it becomes readable once, and not again before the socket was read until
    it is empty. So each turn reads until ``zmq.Again``, or schedules the next one. Sending on the socket, or changing
    its subscriptions, can consume an edge: call ``look`` afterwards.

    Args:
        sock: the socket, which its owner closes.
        take: reads one message with ``zmq.NOBLOCK``, processes it and returns its size in bytes; raises ``zmq.Again``.
        wait: returns whether reading is paused.
        turn: greatest number of messages read in a turn of the loop.
    """

    def __init__(
        self,
        sock: zmq.Socket[bytes],
        take: Callable[[], int],
        wait: Callable[[], bool] | None = None,
        turn: int = TURN,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._take = take
        self._wait = wait
        self._turn = turn
        self._handle: asyncio.Handle | None = None
        self._fd = sock.fileno()
        self._loop.add_reader(self._fd, self.look)
        self.look()

    def look(self) -> None:
        """Schedule a read in the next turn of the loop, unless one is scheduled."""
        if self._handle is None and self._fd >= 0:
            self._handle = self._loop.call_soon(self._run)

    @property
    def unread(self) -> bool:
        """True if messages have arrived that were not read; a read is scheduled then."""
        if self._fd < 0 or not int(self._sock.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            return False
        # Reading the events consumes the edge.
        self.look()
        return True

    def finish(self) -> None:
        """Read the messages that have arrived, a turn at most, then ``close``."""
        if self._fd >= 0:
            if self._handle is not None:
                self._handle.cancel()
            self._run()
            self.close()

    def close(self) -> None:
        """Stop reading. The socket stays open; its owner closes it afterwards."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self._handle = None
        if self._wait is not None and self._wait():
            self._handle = self._loop.call_later(WAIT, self._run)
            return
        # ZeroMQ admits peers whose queue was empty to its round only when the events are read, when nothing is left, or
        # after a hundred messages: beside a flood of long ones, another publisher waited for all of these.
        self._sock.getsockopt(zmq.EVENTS)
        empty = False
        take = self._take
        left = TURN_BYTES
        try:
            for _ in range(self._turn):
                left -= take()
                if left < 0:
                    break
        except zmq.Again:
            empty = True
        finally:
            # After an exception, which the loop logs, too: further messages must not wait for the next edge.
            if not empty:
                self.look()
