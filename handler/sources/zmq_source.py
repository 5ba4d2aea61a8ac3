"""Base of the ZeroMQ sources: queue bounds, binding, refusals, and the end."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

import zmq

from gripproxy.grip.item import Item, ItemError, fault_of
from gripproxy.grip.tnetstring import FrameError
from gripproxy.process.endpoints import bind
from gripproxy.process.log import log
from gripproxy.process.zmq_reader import ZmqReader
from handler.dispatch.dispatcher import Dispatcher

__all__ = ["LEAST", "MESSAGE_ITEMS", "ZmqSource", "kept"]

MESSAGE_ITEMS: Final = 4
"""Greatest length of a message, in items of the greatest length, so that a slightly too long one can be reported.
ZeroMQ closes the connection of a publisher that sends a longer one."""

LEAST: Final = 2
"""Messages that ZeroMQ queues at least for each publisher, however long they are: with one it would stall at each."""


def kept(most: int, room: int, longest: int) -> int:
    """Return the number of messages that ZeroMQ may queue for each publisher: its bound cannot be one of bytes.

    Args:
        most: the greatest number.
        room: bytes of the queue (``push_in_buffer_max``); 0 for no bound but ``most``.
        longest: bytes of the longest message.
    """
    return min(most, max(LEAST, room // longest)) if room else most


class ZmqSource:
    """A ZeroMQ socket that receives items: base of the PULL and the SUB socket.

    Args:
        sock: the socket, which the source closes.
        dispatcher: receiver of the items.
        room: ``push_in_buffer_max`` in bytes.
        most: greatest number of messages queued for each publisher.
        reserved: ``reserved_prefix``; items on channels that begin with it are refused. Empty: on none.
        strict: ``publish_strict``.
    """

    name: ClassVar[str]
    """Way in, as the refusals name it."""

    def __init__(
        self,
        sock: zmq.Socket[bytes],
        dispatcher: Dispatcher,
        room: int,
        most: int,
        reserved: bytes = b"",
        strict: bool = True,
    ) -> None:
        self._strict = strict
        self._now = asyncio.get_running_loop().time
        self._dispatcher = dispatcher
        self._least = dispatcher.bounds.least
        self._reserved = reserved
        longest = MESSAGE_ITEMS * dispatcher.bounds.item
        self._reader: ZmqReader | None = None
        self._bound: str | None = None
        self._sock = sock
        sock.setsockopt(zmq.RCVHWM, kept(most, room, longest))
        sock.setsockopt(zmq.MAXMSGSIZE, longest)
        sock.setsockopt(zmq.IPV6, 1)

    @property
    def unread(self) -> bool:
        """True if messages have arrived that were not read yet."""
        return self._reader is not None and self._reader.unread

    def pause(self) -> None:
        """Unbind the socket: no further publishers connect; those that are connected are read until ``close``."""
        if self._bound is not None:
            try:
                self._sock.unbind(self._bound)
            except zmq.ZMQError as error:
                log.debug("socket not unbound", "publishers may still connect", address=self._bound, reason=error)
            self._bound = None

    def close(self) -> None:
        """Read the messages that have arrived, a turn at most, and close the socket."""
        if self._reader is not None:
            self._reader.finish()
            self._reader = None
        self._sock.close(linger=0)

    def _bind(self, spec: str, key: str, mode: int | None) -> str:
        address = bind(self._sock, spec, key, mode)
        self._bound = self._sock.getsockopt_string(zmq.LAST_ENDPOINT)
        return address

    def _unfit(self, item: Item, data: bytes) -> bool:
        """Return whether an item is refused because it reaches no client; note the unknown names of one that is not.

        Args:
            item: with an empty channel, or unknown names.
            data: its message.
        """
        if not self._strict:
            return False
        if fault := fault_of(item):
            self._refuse(fault, data, item.channel)
            return True
        self._dispatcher.unknown_names.note(self.name, item.channel, item.unknown, self._now())
        return False

    def _refuse_for(self, error: ItemError | FrameError, data: bytes, channel: bytes | None = None) -> None:
        self._refuse(error.reason if isinstance(error, ItemError) else str(error), data, channel)

    def _refuse(self, reason: str, data: bytes, channel: bytes | None = None) -> None:
        self._dispatcher.counters.invalid += 1
        self._dispatcher.refusals.note(self.name, reason, data, self._now(), channel)
