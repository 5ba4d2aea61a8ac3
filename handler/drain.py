"""Reading a ZeroMQ socket from an event loop without ever missing a message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

__all__ = ["Drain"]

TURN: Final = 500
TURN_BYTES: Final = 256 * 1024
"""Messages read in one turn of the loop, and bytes after which it ends, so that a flood leaves room for the workers'
links, the control port and the other sockets: 500 items of a megabyte took the handler away for seconds."""

WAIT: Final = 0.005
"""Seconds between two looks while the reader has to wait."""


class Drain:
    """Reads a ZeroMQ socket whenever there is something.

    The socket's descriptor is edge-triggered: it becomes readable once, and not again before the socket was read until
    it is empty. So each turn reads until ``zmq.Again``, or comes back by itself. Sending on the socket, or changing its
    subscriptions, can swallow an edge: call ``look`` afterwards.

    Arguments: ``take()`` reads one message with ``zmq.NOBLOCK``, deals with it and returns its bytes, letting
    ``zmq.Again`` out; ``wait()`` is true while nothing may be read for now.
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
        """Read in the next turn of the loop, unless that is arranged already."""
        if self._handle is None and self._fd >= 0:
            self._handle = self._loop.call_soon(self._run)

    @property
    def unread(self) -> bool:
        """Whether messages are there that were not read yet; they are read in the next turn of the loop, if not now."""
        if self._fd < 0 or not int(self._sock.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            return False
        # Asking for the events takes the edge away.
        self.look()
        return True

    def finish(self) -> None:
        """Read what is there, one turn's worth at most, then ``close``."""
        if self._fd >= 0:
            if self._handle is not None:
                self._handle.cancel()
            self._run()
            self.close()

    def close(self) -> None:
        """Read no more. The socket stays open; close it afterwards."""
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
            # Also after an error of ours, which the loop logs: the rest must not wait for the next edge.
            if not empty:
                self.look()
