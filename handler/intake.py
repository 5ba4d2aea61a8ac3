"""Items that come in over ZeroMQ: the PULL socket, and the SUB socket with its forwarded subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import zmq

from gripproxy.grip.item import ItemError
from gripproxy.grip.tnet import FrameError
from gripproxy.log import DEBUG, log

from .drain import Drain
from .endpoints import bind
from .exchange import Exchange
from .publication import parse_long_message, parse_message

__all__ = ["LEAST", "MAX_PULLED", "MAX_WAITING", "Intake", "kept"]

MAX_WAITING: Final = 20_000
"""Messages ZeroMQ keeps of each publisher of the SUB socket, before these have to drop."""

MAX_PULLED: Final = 2000
"""The same for PULL, whose publishers wait instead: what waits here is late, and not needed to go on."""

PULL_BUFFER: Final = 512 * 1024
"""Bytes of each PULL publisher's connection that the kernel keeps; it may keep less. By itself it would let this grow
to many megabytes, which is seconds of items when there is more than goes out. At a round trip of 20 ms there is still
room for some 20 MB a second."""

MESSAGE_ITEMS: Final = 4
"""Longest message taken, in items of the greatest length, so that one that is a little too long can be told of. ZeroMQ
closes the connection of a publisher that sends a longer one."""

_NOBLOCK: Final = int(zmq.NOBLOCK)

SHOWN: Final = 120
"""Bytes of a bad item shown in the log."""

LEAST: Final = 2
"""Messages ZeroMQ keeps of each publisher, however long they may be: with one it would stop and go at each."""


def kept(most: int, room: int, longest: int) -> int:
    """Return the number of messages that ZeroMQ may keep of each publisher, which it cannot bound in bytes.

    Args:
        most: the greatest number.
        room: bytes that they may have together (``push_in_buffer_max``); 0: as many as ``most`` have.
        longest: bytes of the longest message that is taken.
    """
    return min(most, max(LEAST, room // longest)) if room else most


class Intake:
    """The ZeroMQ intakes of an Exchange. A bad item is counted and logged; nothing can be answered here.

    Arguments: ``context`` owns the sockets; ``wait()`` is true while publishers should be made to wait (PULL only: a
    publisher that sends by SUB is not slowed down by us, it would only drop); ``room`` is ``push_in_buffer_max``.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], exchange: Exchange, wait: Callable[[], bool], room: int = 0
    ) -> None:
        self._now = asyncio.get_running_loop().time
        self._context = context
        self._exchange = exchange
        self._wait = wait
        self._room = room
        self._least = exchange.bounds.least
        self._longest = MESSAGE_ITEMS * exchange.bounds.item
        self._pull: zmq.Socket[bytes] | None = None
        self._sub: zmq.Socket[bytes] | None = None
        self._drains: list[Drain] = []
        self._sub_drain: Drain | None = None
        self._bound: list[tuple[zmq.Socket[bytes], str]] = []

    def open_pull(self, spec: str, mode: int | None = None) -> str:
        """Bind the PULL socket and read from it; return its address. ``mode``: ipc_file_mode. Raises BindError."""
        sock = self._pull = self._socket(zmq.PULL)
        sock.setsockopt(zmq.RCVHWM, kept(MAX_PULLED, self._room, self._longest))
        sock.setsockopt(zmq.RCVBUF, PULL_BUFFER)
        address = bind(sock, spec, "push_in_spec", mode)
        self._bound.append((sock, sock.getsockopt_string(zmq.LAST_ENDPOINT)))
        self._drains.append(Drain(sock, self._take_pull, self._wait))
        return address

    def open_sub(self, specs: tuple[str, ...], connect: bool, mode: int | None = None) -> str | None:
        """Bind the SUB socket to the first of ``specs`` and return its address, or connect it to all of them; read
        from it, and forward to it the channels subscribed now and later. Raises BindError."""
        sock = self._sub = self._socket(zmq.SUB)
        address = None
        if connect:
            # A publisher's machine that vanishes must be noticed: probe after 30 s, then 6 times each 5 s.
            sock.setsockopt(zmq.TCP_KEEPALIVE, 1)
            sock.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
            sock.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 5)
            sock.setsockopt(zmq.TCP_KEEPALIVE_CNT, 6)
        for channel in self._exchange.directory.channels:
            sock.setsockopt(zmq.SUBSCRIBE, channel)
        if connect:
            for spec in specs:
                sock.connect(spec)
        else:
            address = bind(sock, specs[0], "push_in_sub_specs", mode)
            self._bound.append((sock, sock.getsockopt_string(zmq.LAST_ENDPOINT)))
        self._sub_drain = Drain(sock, self._take_sub)
        self._drains.append(self._sub_drain)
        self._exchange.follow = self._follow
        return address

    @property
    def unread(self) -> bool:
        """Whether something has arrived that was not taken yet."""
        return any(drain.unread for drain in self._drains)

    def retire(self) -> None:
        """Let no new publishers connect; what those that are connected send is taken until ``close``."""
        for sock, address in self._bound:
            try:
                sock.unbind(address)
            except zmq.ZMQError as error:
                log.debug("%s: %s; publishers may still connect", address, error)
        self._bound = []

    def close(self) -> None:
        """Take what has arrived and fits one turn, then close."""
        for drain in self._drains:
            drain.finish()
        self._drains.clear()
        self._exchange.follow = lambda channel, wanted: None
        for sock in (self._pull, self._sub):
            if sock is not None:
                sock.close(linger=0)
        self._pull = self._sub = None

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        sock = self._context.socket(kind)
        sock.setsockopt(zmq.RCVHWM, kept(MAX_WAITING, self._room, self._longest))
        sock.setsockopt(zmq.MAXMSGSIZE, self._longest)
        sock.setsockopt(zmq.IPV6, 1)
        return sock

    def _follow(self, channel: bytes, wanted: bool) -> None:
        assert self._sub is not None
        assert self._sub_drain is not None
        self._sub.setsockopt(zmq.SUBSCRIBE if wanted else zmq.UNSUBSCRIBE, channel)
        self._sub_drain.look()

    def _take_pull(self) -> int:
        sock = self._pull
        assert sock is not None
        # A frame knows whether it is the last one; to ask the socket costs four times as much as to read it.
        frame = sock.recv(_NOBLOCK, copy=False)
        data = frame.bytes
        size = len(data)
        if frame.more:
            parts = 1
            while sock.getsockopt(zmq.RCVMORE):
                size += len(sock.recv(zmq.NOBLOCK))
                parts += 1
            self._bad("PULL", f"message has {parts} parts, expected 1", data)
            return size
        try:
            long = size > self._least
            item = parse_long_message(data, None, self._exchange.bounds) if long else parse_message(data)
        except (ItemError, FrameError) as error:
            self._bad("PULL", str(error), data)
            return size
        if log.level >= DEBUG:
            log.debug("PULL: item for channel %s", item.channel)
        exchange = self._exchange
        exchange.counters.pull += 1
        exchange.accept(item, self._now())
        return size

    def _take_sub(self) -> int:
        sock = self._sub
        assert sock is not None
        parts = sock.recv_multipart(zmq.NOBLOCK)
        size = sum(map(len, parts))
        if len(parts) != 2:
            self._bad("SUB", f"message has {len(parts)} parts, expected topic and item", parts[0])
            return size
        try:
            topic, data = parts
            long = size > self._least
            item = parse_long_message(data, topic, self._exchange.bounds) if long else parse_message(data, topic)
        except (ItemError, FrameError) as error:
            self._bad("SUB", str(error), parts[1])
            return size
        if log.level >= DEBUG:
            log.debug("SUB: item for channel %s", item.channel)
        self._exchange.counters.sub += 1
        self._exchange.accept(item, self._now())
        return size

    def _bad(self, source: str, reason: str, data: bytes) -> None:
        exchange = self._exchange
        exchange.counters.invalid += 1
        exchange.refusals.note(source, reason or "unknown action", data, self._now())
