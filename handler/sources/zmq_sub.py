"""Source: the ZeroMQ SUB socket, with the forwarded subscriptions of all workers (docs/grip.md §5.7)."""

from __future__ import annotations

from collections.abc import Iterable
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

__all__ = ["MAX_SUBSCRIPTIONS", "MAX_WAITING", "ZmqSub"]

MAX_WAITING: Final = 20_000
"""Messages that ZeroMQ queues for each publisher of the SUB socket; then publishers drop."""

MAX_SUBSCRIPTIONS: Final = 1_000_000
"""Subscriptions that ZeroMQ queues for each publisher; it drops further ones. All are queued whenever a publisher
connects: with its default of 1,000, one that connected to a busy handler never learned of the others."""


class ZmqSub(ZmqSource):
    """The SUB socket, to which the subscriptions of all workers are forwarded. Its publishers do not wait: they drop.

    Args:
        context: owner of the socket.
        dispatcher: receiver of the items.
        specs: ``push_in_sub_specs``; the socket binds to the first or connects to all.
        connect: ``push_in_sub_connect``.
        mode: ``ipc_file_mode``.
        room: ``push_in_buffer_max`` in bytes.
        reserved: ``reserved_prefix``; empty: no channel is reserved on this socket.
        key: config key of ``specs``, for errors.
        strict: ``publish_strict``.
    """

    name = "SUB"

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        dispatcher: Dispatcher,
        specs: tuple[str, ...],
        connect: bool,
        mode: int | None = None,
        room: int = 0,
        reserved: bytes = b"",
        key: str = "push_in_sub_specs",
        strict: bool = True,
    ) -> None:
        super().__init__(context.socket(zmq.SUB), dispatcher, room, MAX_WAITING, reserved, strict)
        self._sock.setsockopt(zmq.SNDHWM, MAX_SUBSCRIPTIONS)
        self._specs = specs
        self._connect = connect
        self._mode = mode
        self._key = key

    def open(self, channels: Iterable[bytes]) -> str | None:
        """Subscribe to ``channels``, then bind or connect the socket and read from it; see ``Source.open``."""
        sock = self._sock
        address = None
        if self._connect:
            # A publisher's machine that vanishes must be noticed: probe after 30 s, then 6 times each 5 s.
            sock.setsockopt(zmq.TCP_KEEPALIVE, 1)
            sock.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
            sock.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 5)
            sock.setsockopt(zmq.TCP_KEEPALIVE_CNT, 6)
        for channel in channels:
            sock.setsockopt(zmq.SUBSCRIBE, channel)
        if self._connect:
            for spec in self._specs:
                sock.connect(spec)
        else:
            address = self._bind(self._specs[0], self._key, self._mode)
        self._reader = ZmqReader(sock, self._take)
        return address

    def follow(self, channel: bytes, wanted: bool) -> None:
        """Subscribe to ``channel`` or unsubscribe from it."""
        if self._reader is not None:
            self._sock.setsockopt(zmq.SUBSCRIBE if wanted else zmq.UNSUBSCRIBE, channel)
            self._reader.look()

    def _take(self) -> int:
        parts = self._sock.recv_multipart(zmq.NOBLOCK)
        size = sum(map(len, parts))
        if len(parts) != 2:
            self._refuse(f"message has {len(parts)} parts, expected topic and item", parts[0])
            return size
        try:
            topic, data = parts
            long = size > self._least
            item = parse_long_message(data, topic, self._dispatcher.bounds) if long else parse_message(data, topic)
        except (ItemError, FrameError) as error:
            self._refuse_for(error, parts[1], parts[0])
            return size
        if (item.unknown or not item.channel) and self._unfit(item, data):
            return size
        if self._reserved and item.channel.startswith(self._reserved):
            self._refuse(str(ReservedChannel(item.channel, self._reserved)), data, item.channel)
            return size
        if log.level >= DEBUG:
            log.debug("item received", way="SUB", channel=item.channel)
        self._dispatcher.counters.sub += 1
        self._dispatcher.accept(item, self._now())
        return size
