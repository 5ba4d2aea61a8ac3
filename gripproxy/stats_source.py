"""A stats socket to listen to: one SUB socket, whether it is connected, and whether we keep up with it.

ZeroMQ connects again when a connection breaks, but gives up for good on who breaks its protocol once, for example with
a message that is too large. So the socket is made anew when there is no connection for a while.

It decides nothing: what comes is told to a :class:`Listener`. ``gripproxy top`` is one, the recorder of ``spark_stats``
another; the clock is theirs.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final, Protocol

import zmq
from zmq.utils.monitor import recv_monitor_message

__all__ = ["QUEUE", "Listener", "StatsSource", "StatsSourceError", "reachable"]

QUEUE: Final = 200_000
"""Messages that wait in memory while we are busy, as many as the publisher's own queue takes. Behind both it drops."""
TAKE: Final = 2000
"""Messages taken in one go, at most, before it is another socket's turn."""
REOPEN: Final = 5.0
"""Seconds without a connection after which the socket is made anew."""
REOPEN_LOST: Final = 1.0
"""The same behind a connection that was there."""
HEARTBEAT: Final = (5_000, 15_000)
"""ms between questions whether the publisher is there, and until it counts as gone."""
RECONNECT: Final = (100, 1_000)
"""ms between attempts to connect: the first ones, and the most."""

_CONNECTED: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED
_DISCONNECTED: Final = zmq.EVENT_DISCONNECTED


class StatsSourceError(ValueError):
    """The operator's address is none that can be connected to."""


class Listener(Protocol):
    """Who is told what happens on stats sockets, each by its address, in the order in which it happened."""

    def taken(self, endpoint: str, messages: list[bytes]) -> None:
        """These came; never none."""

    def connected(self, endpoint: str) -> None:
        """There is a connection (again): what comes from now on was sent after it was made."""

    def disconnected(self, endpoint: str) -> None:
        """The connection is gone, and nothing comes before the next :meth:`connected`."""

    def hindered(self, endpoint: str, why: str) -> None:
        """It could not be connected to, for that reason; it is tried again."""

    def overrun(self, endpoint: str) -> None:
        """So much waited that messages may be missing. Told once until nothing waits."""


def reachable(spec: str) -> str:
    """Return the address to connect to, of one that is written for binding: all interfaces are the own machine."""
    for everywhere, here in (("tcp://*:", "tcp://127.0.0.1:"), ("tcp://0.0.0.0:", "tcp://127.0.0.1:")):
        if spec.startswith(everywhere):
            return here + spec[len(everywhere) :]
    return spec.replace("tcp://[::]:", "tcp://[::1]:", 1)


class StatsSource:
    """The socket of one ``endpoint``; ``connected`` says whether somebody is there.

    Arguments: the ``listener``; the ``poller`` that its sockets are registered with for reading; ``now``, seconds by
    a clock that never jumps; ``max_message``, bytes of a message, ZeroMQ disconnects from who sends a larger one;
    ``queue``, messages that wait in memory.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        listener: Listener,
        poller: zmq.Poller,
        now: float,
        max_message: int,
        queue: int = QUEUE,
    ) -> None:
        """Begin to connect.

        Raises:
            StatsSourceError: the endpoint is not one of ZeroMQ's, or there are no more sockets.
        """
        self.endpoint = endpoint
        self.connected = False
        self.limit = min(TAKE, queue)
        """Messages that :meth:`take` takes at most."""
        self._context = context
        self._listener = listener
        self._poller = poller
        self._max_message = max_message
        self._queue = queue
        self._backlog = 0
        self._overrun = False
        self._reopen_at = 0.0
        self._openings = 0
        self._closed = True
        self._socket: zmq.Socket[bytes]
        self._monitor: zmq.Socket[Any]
        try:
            self._open(now)
        except zmq.ZMQError as e:
            raise StatsSourceError(
                f"cannot connect to '{endpoint}': {zmq.strerror(e.errno or 0)}; an address is for example "
                "ipc:///run/gripproxy/pushpin-stats or tcp://localhost:5564"
            ) from e

    def close(self) -> None:
        """Close the sockets, if that was not done; what waits in them is lost."""
        if not self._closed:
            self._closed = True
            self._poller.unregister(self._socket)
            self._poller.unregister(self._monitor)
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(0)

    def turn(self, ready: Container[object], now: float) -> int:
        """Do what there is to do: take what waits, follow the connection, connect anew.

        Arguments: the sockets that a poll found ``ready``; ``now``, as above.

        Returns:
            How many messages were taken.
        """
        # The connection first: what arrives was sent after it was made.
        if not self._closed and self._monitor in ready:
            self._follow(now)
        taken = self.take() if self._socket in ready else 0
        if not self.connected and now >= self._reopen_at:
            self._reopen(now)
        return taken

    def take(self) -> int:
        """Take what waits, ``limit`` messages at most, and return how many; fewer say that nothing waits any more."""
        if self._closed:
            return 0
        messages: list[bytes] = []
        append, receive = messages.append, self._socket.recv
        try:
            for _ in range(self.limit):
                append(receive(zmq.NOBLOCK))
            self._backlog += self.limit
        except zmq.Again:
            self._backlog, self._overrun = 0, False
        if messages:
            self._listener.taken(self.endpoint, messages)
        if self._backlog >= self._queue and not self._overrun:
            # So many since the queue was last seen empty that it may have been full.
            self._overrun = True
            self._listener.overrun(self.endpoint)
        return len(messages)

    def _open(self, now: float) -> None:
        self._reopen_at = now + REOPEN
        sock = self._context.socket(zmq.SUB)
        try:
            sock.set_hwm(self._queue)
            # ZeroMQ resolves a name to one family only, and takes IPv6 for localhost although next to everybody binds
            # IPv4. So a name is tried as the one and as the other in turn.
            ipv6 = "[" in self.endpoint or self._openings % 2
            for option, value in (
                (zmq.MAXMSGSIZE, self._max_message),
                (zmq.IPV6, int(ipv6)),
                (zmq.HEARTBEAT_IVL, HEARTBEAT[0]),
                (zmq.HEARTBEAT_TIMEOUT, HEARTBEAT[1]),
                (zmq.RECONNECT_IVL, RECONNECT[0]),
                (zmq.RECONNECT_IVL_MAX, RECONNECT[1]),
            ):
                sock.setsockopt(option, value)
            sock.subscribe(b"")
            monitor = sock.get_monitor_socket(_CONNECTED | _DISCONNECTED)
        except zmq.ZMQError:
            sock.close(0)
            raise
        self._openings += 1
        self._closed = False
        self._socket, self._monitor = sock, monitor
        self._poller.register(sock, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)
        try:
            sock.connect(self.endpoint)
        except zmq.ZMQError:
            self.close()
            raise

    def _reopen(self, now: float) -> None:
        if not self._closed:
            # It may have connected just now.
            self._follow(now)
            if self.connected:
                return
            while self.take():
                pass
            self.close()
        try:
            self._open(now)
        except zmq.ZMQError as e:
            self._listener.hindered(self.endpoint, zmq.strerror(e.errno or 0))

    def _follow(self, now: float) -> None:
        try:
            while True:
                kind = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
                if kind == _CONNECTED:
                    self.connected = True
                    self._listener.connected(self.endpoint)
                elif self.connected:
                    # What came before the end comes before the notice of it.
                    while self.take():
                        pass
                    self.connected = False
                    self._reopen_at = now + REOPEN_LOST
                    self._listener.disconnected(self.endpoint)
                else:
                    # Someone took the connection, and did not become a publisher: another kind of socket for example.
                    self._listener.hindered(self.endpoint, "no ZeroMQ publisher answers there")
        except zmq.Again:
            pass
