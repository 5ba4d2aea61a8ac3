"""Source: the ZeroMQ PULL socket, whose publishers wait while the workers do not keep up (docs/grip.md §5.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import zmq

from gripproxy.grip.item import ItemError
from gripproxy.grip.tnetstring import FrameError
from gripproxy.process.log import DEBUG, log
from gripproxy.process.zmq_reader import ZmqReader
from handler.dispatch.dispatcher import Dispatcher
from handler.dispatch.reserved_channel import ReservedChannel

from .ingest import parse_long_message, parse_message
from .zmq_source import ZmqSource

__all__ = ["MAX_PULLED", "ZmqPull"]

MAX_PULLED: Final = 2000
"""Messages that ZeroMQ queues for each publisher of the PULL socket; then publishers wait. A queued item is late."""

PULL_BUFFER: Final = 512 * 1024
"""Bytes that the kernel buffers for each PULL publisher, at most. Its own limit is many megabytes, which are seconds of
items under overload. At a round trip of 20 ms there is still room for some 20 MB a second."""

_NOBLOCK: Final = int(zmq.NOBLOCK)


class ZmqPull(ZmqSource):
    """The PULL socket: publishers PUSH, and wait while the workers do not keep up.

    Args:
        context: owner of the socket.
        dispatcher: receiver of the items.
        wait: returns whether publishers have to wait.
        spec: ``push_in_spec``.
        mode: ``ipc_file_mode``.
        room: ``push_in_buffer_max`` in bytes.
        reserved: ``reserved_prefix``; empty: no channel is reserved on this socket.
        strict: ``publish_strict``.
    """

    name = "PULL"

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        dispatcher: Dispatcher,
        wait: Callable[[], bool],
        spec: str,
        mode: int | None = None,
        room: int = 0,
        reserved: bytes = b"",
        strict: bool = True,
    ) -> None:
        super().__init__(context.socket(zmq.PULL), dispatcher, room, MAX_PULLED, reserved, strict)
        self._sock.setsockopt(zmq.RCVBUF, PULL_BUFFER)
        self._wait = wait
        self._spec = spec
        self._mode = mode

    def open(self, channels: Iterable[bytes]) -> str:
        """Bind the socket and read from it; see ``Source.open``. PUSH sockets send items of all channels."""
        address = self._bind(self._spec, "push_in_spec", self._mode)
        self._reader = ZmqReader(self._sock, self._take, self._wait)
        return address

    def follow(self, channel: bytes, wanted: bool) -> None:
        """Do nothing: PUSH sockets know no subscriptions."""

    def look(self) -> None:
        """Read in the next turn of the loop."""
        if self._reader is not None:
            self._reader.look()

    def _take(self) -> int:
        sock = self._sock
        # The frame knows whether it is the last one; getsockopt(RCVMORE) costs four times as much as recv.
        frame = sock.recv(_NOBLOCK, copy=False)
        data = frame.bytes
        size = len(data)
        if frame.more:
            parts = 1
            while sock.getsockopt(zmq.RCVMORE):
                size += len(sock.recv(zmq.NOBLOCK))
                parts += 1
            self._refuse(f"message has {parts} parts, expected 1", data)
            return size
        dispatcher = self._dispatcher
        try:
            long = size > self._least
            item = parse_long_message(data, None, dispatcher.bounds) if long else parse_message(data)
        except (ItemError, FrameError) as error:
            self._refuse_for(error, data)
            return size
        if (item.unknown or not item.channel) and self._unfit(item, data):
            return size
        if self._reserved and item.channel.startswith(self._reserved):
            self._refuse(str(ReservedChannel(item.channel, self._reserved)), data, item.channel)
            return size
        if log.level >= DEBUG:
            log.debug("item received", way="PULL", channel=item.channel)
        dispatcher.counters.pull += 1
        dispatcher.accept(item, self._now())
        return size
