"""Connection of the pipe: bounded queue of messages and batches of frames, for both ends."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from gripproxy.pipe.framing import Decoder, PipeError, encode
from gripproxy.pipe.messages import LOAD_BYTES, Message, load_of

__all__ = ["MAX_QUEUE", "PipeConnection", "socket_path"]


MAX_QUEUE: Final = 200_000
"""Messages that may wait for a peer that does not read, a large one counting as several (see LOAD_BYTES): 128 MB at
most, then. Beyond it the queue is dropped whole and the owner is notified: a peer that knows of the loss recovers, one
that lost single messages unseen cannot."""


FRAME_MESSAGES: Final = 4096


FRAME_BYTES: Final = 1024 * 1024
"""Messages put into one frame, and its length unless a single message is longer: so that the reader's turn of the loop
stays short, and a burst of large items does not travel as one frame that has to be there whole before the first of them
is delivered."""


WRITE_AHEAD: Final = 256 * 1024
"""Bytes given to the transport before messages wait in the queue, which has a bound in messages and is looked at."""


_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group of SO_PEERCRED (unix(7))."""


class _Settings(Protocol):
    @property
    def globals(self) -> Any: ...


def socket_path(config: _Settings) -> str:
    """Return the path of the handler's pipe socket, ``{rundir}/{ipc_prefix}pipe``, as ``config`` names it."""
    return f"{config.globals.rundir}/{config.globals.ipc_prefix}pipe"


class PipeConnection(asyncio.Protocol):
    """One end of the pipe.

    ``send`` queues; messages queued in one turn of the loop leave as one frame. While the peer does not read, messages
    wait until their ``load`` is over ``bound``; then all of them are dropped and ``on_overflow`` is called, which may
    send again.

    Args:
        on_messages: called with the link and the messages that arrived together.
        on_lost: called once with the link when the connection has ended.
        bound: greatest ``load`` of the queue, in messages (see ``load_of``).
        on_overflow: called with the link after its queue was dropped.
    """

    def __init__(
        self,
        on_messages: Callable[[PipeConnection, list[Message]], None],
        on_lost: Callable[[PipeConnection], None],
        bound: int = MAX_QUEUE,
        on_overflow: Callable[[PipeConnection], None] = lambda link: None,
    ) -> None:
        self._on_overflow = on_overflow
        self.error: PipeError | None = None
        """Reason why this end closed the link, if the peer sent a bad frame."""
        self._on_messages = on_messages
        self._on_lost = on_lost
        self._bound = bound
        self.written = 0
        """Messages written so far."""
        self._queue: list[Message] = []
        self._weighed = 0
        """Number of messages at the front of the queue that have waited for the peer; ``_load`` is their load."""
        self._load = 0
        self._batch = FRAME_MESSAGES
        """Messages of the size of the last ones that fit one frame."""
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._paused = False
        self._scheduled = False
        self._spare = -1
        """Another descriptor of the same socket, which outlives the transport; -1 for none."""

    @property
    def peer_pid(self) -> int:
        """Id of the process at the other end (SO_PEERCRED, unix(7)); 0 if it is unknown."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None:
            return 0
        pid: int = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
        return pid

    @classmethod
    def sized(
        cls,
        on_messages: Callable[[PipeConnection, list[Message]], None],
        on_lost: Callable[[PipeConnection], None],
        size: int,
        on_overflow: Callable[[PipeConnection], None] = lambda link: None,
    ) -> PipeConnection:
        """Return a link whose queue is bounded in bytes.

        Args:
            on_messages: called with the link and the messages that arrived together.
            on_lost: called once with the link when the connection has ended.
            size: bytes of the queue while the peer does not read (``worker_queue_max``).
            on_overflow: called with the link after its queue was dropped.
        """
        return cls(on_messages, on_lost, size // LOAD_BYTES, on_overflow)

    @property
    def connected(self) -> bool:
        """True while the link is up: messages sent while it is down are dropped."""
        return self._transport is not None

    @property
    def queued(self) -> int:
        """Messages waiting to be written."""
        return len(self._queue)

    @property
    def unsent(self) -> int:
        """Bytes written that the kernel has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def load(self) -> int:
        """Queue length in message units; while the peer does not read, a message counts as ``load_of`` it."""
        return self._load + len(self._queue) - self._weighed

    def send(self, message: Message) -> None:
        """Queue a message for the end of this turn of the loop.

        While the link is down it is dropped silently: the protocol opens with HELLO, and no message may survive a
        reconnect.

        Args:
            message: the message.
        """
        if self._transport is None:
            return
        queue = self._queue
        queue.append(message)
        if not self._scheduled:
            if self._paused:
                self._weigh()
                return
            self._scheduled = True
            assert self._loop is not None
            self._loop.call_soon(self._flush)

    def _weigh(self) -> None:
        """Count messages that have begun to wait, and drop all if their load exceeds the bound."""
        queue = self._queue
        self._load += sum(map(load_of, queue[self._weighed :]))
        self._weighed = len(queue)
        if self._load > self._bound:
            self._clear()
            self._on_overflow(self)

    def _clear(self) -> None:
        self._queue.clear()
        self._weighed = self._load = 0

    def pause_reading(self) -> None:
        """Take nothing more in for now: the peer's queue then grows up to its bound."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Undo pause_reading."""
        if self._transport is not None and not self._transport.is_reading():
            self._transport.resume_reading()

    def close(self) -> None:
        """Write the queue, then close the link."""
        if self._transport is not None:
            self._flush(last=True)
            self._transport.close()

    def _flush(self, last: bool = False) -> None:
        """Write the queue, as far as the peer takes it; ``last``: in any case."""
        self._scheduled = False
        queue, transport = self._queue, self._transport
        if transport is None:
            return
        if self._paused and not last:
            # resume_writing comes back to it.
            return
        start, size = 0, len(queue)
        if 0 < size <= self._batch and not self._weighed:
            frame = encode(queue)
            if len(frame) <= FRAME_BYTES or size == 1:
                # All in one frame, as nearly always.
                self._queue = []
                self.written += size
                if self._batch < FRAME_MESSAGES and len(frame) < FRAME_BYTES // 4:
                    self._batch = min(FRAME_MESSAGES, 2 * self._batch)
                transport.write(frame)
                return
        while start < size and (last or not self._paused):
            end = min(start + self._batch, size)
            frame = encode(queue if end - start == size else queue[start:end])
            if len(frame) > FRAME_BYTES and end - start > 1:
                self._batch = max(1, (end - start) * FRAME_BYTES // len(frame))
                continue
            if len(frame) < FRAME_BYTES // 4:
                self._batch = min(FRAME_MESSAGES, 2 * self._batch)
            if start < self._weighed:
                self._load -= sum(map(load_of, queue[start : min(end, self._weighed)]))
            transport.write(frame)
            start = end
        self.written += start
        self._queue = queue[start:]
        self._weighed = max(0, self._weighed - start)
        if self._queue:
            self._weigh()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the ``transport`` of a new connection (asyncio)."""
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_AHEAD)
        sock = self._transport.get_extra_info("socket")
        self._spare = os.dup(sock.fileno()) if sock is not None else -1

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection, with its error ``exc`` if there was one (asyncio)."""
        self._transport = None
        self._clear()
        if self._spare >= 0:
            try:
                if exc is not None:
                    self._read_the_rest()
            finally:
                os.close(self._spare)
                self._spare = -1
        self._on_lost(self)

    def _read_the_rest(self) -> None:
        """Take the last bytes of a peer that is gone: a write that fails ends the transport with them unread."""
        try:
            while data := os.read(self._spare, 262_144):
                self.data_received(data)
        except (BlockingIOError, ConnectionError):
            pass

    def data_received(self, data: bytes) -> None:
        """Take bytes, ``data``, of the peer (asyncio)."""
        try:
            messages = self._decoder.feed(data)
        except PipeError as error:
            self.error = error
            if self._transport is not None:
                self._transport.abort()
            return
        if messages:
            self._on_messages(self, messages)

    def pause_writing(self) -> None:
        """Begin to queue: the peer does not read (asyncio)."""
        self._paused = True

    def resume_writing(self) -> None:
        """Write the queue: the peer reads again (asyncio)."""
        self._paused = False
        if self._queue and not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._flush)
