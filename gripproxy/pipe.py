"""The pipe between a worker and the handler: message kinds, framing, and a bounded link for both ends.

A frame is a 4-byte big-endian length and the marshal of a *list* of message tuples, so that everything queued in one
turn of the event loop travels, and is decoded, as one. Both ends are processes of the same installation on the same
machine, connected by a Unix stream socket in a directory of mode 0700; ``HELLO`` carries the protocol version.

Worker to handler::

    (HELLO, version, epoch, worker, [(channel, responses, streams, sockets, last_id | None), ...])
    (SUBSCRIBE, channel, number)        answered by SUBSCRIBED with the same number
    (UNSUBSCRIBE, channel, linger)      linger: the last session was a response hold (docs/grip.md §6.8)
    (COUNT, channel, mode, n)           sessions of the channel in this worker, at most every 100 ms
    (CONFLICT, channel, id, prev_id)    a backend that was asked for the item ``id`` insists on ``prev_id``
    (STATS, {...}, {...})               counter deltas, and what can also fall, by name; ``recovery`` and ``responses``
                                        among the former are lists: see gripproxy.tally.Tally.by_route
    (ANSWER, request, value)            to a COMMAND
    (RETIRING, process)                 the worker takes no new clients; another of its number serves
    (FIGURES, route, now, peak, ...)    what a route id counted since it last told: see gripproxy.grip.stats.FIGURES
    (CONNECTIONS, [...])                while watched: (id, route, socket, peer, tls) of those present, (id, route) gone

Handler to worker::

    (SUBSCRIBED, channel, number, recent | None)
    (ITEM, packed_item)                 see gripproxy.grip.item.Item.pack
    (COMMAND, request, name, args)      update, recover, refresh, conncheck
    (WATCH, connections, counts)        whether each connection is to be told (now all present), and counts at once
    (LOST,)                             items were dropped for this worker since the message before
"""

from __future__ import annotations

import asyncio
import marshal
import os
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

__all__ = [
    "ANSWER",
    "COMMAND",
    "CONFLICT",
    "CONNECTIONS",
    "COUNT",
    "FIGURES",
    "HELLO",
    "ITEM",
    "LOAD_BYTES",
    "LOST",
    "MAX_FRAME",
    "MAX_QUEUE",
    "RESPONSE",
    "RETIRING",
    "SOCKET",
    "STATS",
    "STREAM",
    "SUBSCRIBE",
    "SUBSCRIBED",
    "UNSUBSCRIBE",
    "VERSION",
    "WATCH",
    "Decoder",
    "Link",
    "Message",
    "PipeError",
    "encode",
    "load_of",
    "socket_path",
]

VERSION: Final = 2

HELLO: Final = 1
SUBSCRIBE: Final = 2
UNSUBSCRIBE: Final = 3
COUNT: Final = 4
CONFLICT: Final = 5
STATS: Final = 6
ANSWER: Final = 7
RETIRING: Final = 8
FIGURES: Final = 9
CONNECTIONS: Final = 10
SUBSCRIBED: Final = 16
ITEM: Final = 17
COMMAND: Final = 18
LOST: Final = 19
WATCH: Final = 20

RESPONSE: Final = 0
"""Mode of a COUNT: held responses (long-polls)."""
STREAM: Final = 1
"""Mode of a COUNT: held streams."""
SOCKET: Final = 2
"""Mode of a COUNT: WebSockets."""

MAX_FRAME: Final = 256 * 1024 * 1024
"""Longest frame taken, in bytes. A longer one means the two ends disagree, and the link is closed."""

MAX_QUEUE: Final = 200_000
"""Messages that may wait for a peer that does not read, a large one counting as several (see LOAD_BYTES): 128 MB at
most, then. Beyond it the queue is dropped whole and the owner is told: a peer that is told it lost something can
recover, one that lost single messages unseen cannot."""

LOAD_BYTES: Final = 640
"""Bytes of content for which a waiting message counts as one more."""

FRAME_MESSAGES: Final = 4096
FRAME_BYTES: Final = 1024 * 1024
"""Messages put into one frame, and its length unless a single message is longer: so that the reader's turn of the loop
stays short, and a burst of large items does not travel as one frame that has to be there whole before the first of them
is delivered."""

WRITE_AHEAD: Final = 256 * 1024
"""Bytes given to the transport before messages wait in the queue, which has a bound in messages and is looked at."""

_LENGTH = struct.Struct(">I")

Message = tuple[Any, ...]


class PipeError(ValueError):
    """The peer sent what is not a frame of this protocol: our own fault, or two versions meeting."""


class _Settings(Protocol):
    @property
    def globals(self) -> Any: ...


def socket_path(config: _Settings) -> str:
    """Return the path of the handler's pipe socket, ``{rundir}/{ipc_prefix}pipe``."""
    return f"{config.globals.rundir}/{config.globals.ipc_prefix}pipe"


def encode(messages: list[Message]) -> bytes:
    """Return one frame holding ``messages`` (plain tuples, bytes, ints, str, None, lists and dicts only)."""
    body = marshal.dumps(messages)
    return _LENGTH.pack(len(body)) + body


def load_of(message: Message) -> int:
    """Return how many messages one counts for while it waits: 1, and 1 more for each LOAD_BYTES of its content."""
    return 1 + _bytes_in(message) // LOAD_BYTES


def _bytes_in(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, tuple | list):
        return sum(map(_bytes_in, value))
    if isinstance(value, dict):
        return _bytes_in(list(value.items()))
    return 0


class Decoder:
    """Turns the bytes of a link back into messages.

    Sans-I/O: feed it what arrived, in order; it keeps the unfinished tail (at most one frame), in the pieces in which
    it came: joining them each time would copy a long frame as often as it has pieces.
    """

    __slots__ = ("_missing", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages completed by ``data``. Raises PipeError for a frame that is too long or not a list."""
        if self._pieces:
            self._pieces.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = b"".join(self._pieces)
            self._pieces = []
        messages: list[Message] = []
        missing = 4
        start, size = 0, len(data)
        while size - start >= 4:
            (length,) = _LENGTH.unpack_from(data, start)
            if length > MAX_FRAME:
                raise PipeError(f"frame of {length} bytes, at most {MAX_FRAME} are allowed")
            end = start + 4 + length
            if end > size:
                missing = 4 + length
                break
            try:
                frame = marshal.loads(memoryview(data)[start + 4 : end])
            except (ValueError, EOFError, TypeError) as error:
                raise PipeError(f"frame of {length} bytes cannot be decoded: {error}") from error
            if type(frame) is not list:
                raise PipeError(f"frame holds a {type(frame).__name__}, expected a list of messages")
            messages += frame
            start = end
        if start < size:
            self._pieces.append(data[start:] if start else data)
            self._missing = missing - (size - start)
        return messages


class Link(asyncio.Protocol):
    """One end of the pipe.

    ``send`` queues; what was queued in a turn of the loop leaves as one frame. While the peer does not read, messages
    wait until their ``load`` is over ``bound``; then all of them are dropped and ``overflow`` is called, which may send
    again.

    Arguments: ``on_messages(link, messages)`` is called with what arrived together; ``on_lost(link)`` once when the
    peer is gone, for whatever reason; ``bound`` is a number of messages (see ``load_of``).
    """

    def __init__(
        self,
        on_messages: Callable[[Link, list[Message]], None],
        on_lost: Callable[[Link], None],
        bound: int = MAX_QUEUE,
    ) -> None:
        self.overflow: Callable[[Link], None] | None = None
        self.error: PipeError | None = None
        """Why this end closed the link, if it did because of what the peer sent."""
        self._on_messages = on_messages
        self._on_lost = on_lost
        self._bound = bound
        self.written = 0
        """Messages written so far."""
        self._queue: list[Message] = []
        self._weighed = 0
        """How many at the beginning of the queue have waited for the peer; ``_load`` is what these count for."""
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

    @classmethod
    def sized(
        cls, on_messages: Callable[[Link, list[Message]], None], on_lost: Callable[[Link], None], size: int
    ) -> Link:
        """Return a link whose queue may have ``size`` bytes (``worker_queue_max``) while the peer does not read."""
        return cls(on_messages, on_lost, size // LOAD_BYTES)

    @property
    def connected(self) -> bool:
        """Whether the link is up: messages sent while it is not are dropped."""
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
        """The same, with what large ones count for if the peer does not read."""
        return self._load + len(self._queue) - self._weighed

    def send(self, message: Message) -> None:
        """Queue one message for the end of this turn of the loop. Dropped silently when the link is down: the
        protocol opens with HELLO, so nothing of before a reconnect may survive it."""
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
        """Count what has begun to wait, and drop all if that is too much."""
        queue = self._queue
        self._load += sum(map(load_of, queue[self._weighed :]))
        self._weighed = len(queue)
        if self._load > self._bound:
            self._clear()
            if self.overflow is not None:
                self.overflow(self)

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
        """Close the link after what is queued has left."""
        if self._transport is not None:
            self._flush(last=True)
            self._transport.close()

    def _flush(self, last: bool = False) -> None:
        """Write what is queued, as far as the peer takes it; ``last``: in any case."""
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
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_AHEAD)
        sock = self._transport.get_extra_info("socket")
        self._spare = os.dup(sock.fileno()) if sock is not None else -1

    def connection_lost(self, exc: Exception | None) -> None:
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
        """Take what the peer had written before it was gone: a write that fails ends the transport with it unread."""
        try:
            while data := os.read(self._spare, 262_144):
                self.data_received(data)
        except (BlockingIOError, ConnectionError):
            pass

    def data_received(self, data: bytes) -> None:
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
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._queue and not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._flush)
