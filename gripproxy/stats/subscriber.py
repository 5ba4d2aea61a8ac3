"""Subscriber of one stats socket: a SUB socket, the state of its connection, and whether its queue overran.

ZeroMQ connects again when a connection breaks, but never again to a peer that broke its protocol once, for example with
a message that is too large. So the socket is made anew after some seconds without a connection.

The subscriber decides nothing: messages and changes go to a :class:`Listener`. ``gripproxy top`` is one, the recorder
of ``spark_stats`` another; each brings its clock.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final, Protocol

import zmq
from zmq.utils.monitor import recv_monitor_message

from gripproxy.grip.errors import OperatorError

__all__ = ["QUEUE", "Listener", "StatsSubscriber", "StatsSubscriberError", "reachable"]

QUEUE: Final = 200_000
"""Messages that wait in memory while we are busy, as many as the publisher's own queue takes. Behind both it drops."""
TAKE: Final = 2000
"""Messages taken in one go, at most, before it is another socket's turn."""
REOPEN: Final = 5.0
"""Seconds without a connection after which the socket is made anew."""
REOPEN_LOST: Final = 1.0
"""Seconds after the loss of a connection after which the socket is made anew."""
HEARTBEAT: Final = (5_000, 15_000)
"""Milliseconds between heartbeats, and without an answer until the publisher counts as gone."""
RECONNECT: Final = (100, 1_000)
"""Milliseconds between attempts to connect: at first, and at most."""

_CONNECTED: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED
_DISCONNECTED: Final = zmq.EVENT_DISCONNECTED


class StatsSubscriberError(OperatorError, ValueError):
    """The operator's address is none that can be connected to."""


class Listener(Protocol):
    """Receiver of the messages and connection changes of stats sockets, each named by its ``endpoint``, in order."""

    def taken(self, endpoint: str, messages: list[bytes]) -> None:
        """Take ``messages`` of ``endpoint``, at least one."""

    def connected(self, endpoint: str) -> None:
        """Note a new connection to ``endpoint``: later messages were sent after it was made."""

    def disconnected(self, endpoint: str) -> None:
        """Note the end of the connection to ``endpoint``; no message follows before the next :meth:`connected`."""

    def hindered(self, endpoint: str, why: str) -> None:
        """Note that connecting to ``endpoint`` failed, for the reason ``why``; it is tried again."""

    def overrun(self, endpoint: str) -> None:
        """Note that the queue of ``endpoint`` was full and messages may be missing; called once until it is empty."""


def reachable(spec: str) -> str:
    """Return the address to connect to for ``spec``, one written for binding: all interfaces mean this machine."""
    for everywhere, here in (("tcp://*:", "tcp://127.0.0.1:"), ("tcp://0.0.0.0:", "tcp://127.0.0.1:")):
        if spec.startswith(everywhere):
            return here + spec[len(everywhere) :]
    return spec.replace("tcp://[::]:", "tcp://[::1]:", 1)


class StatsSubscriber:
    """Subscriber of one endpoint; ``connected`` is true while there is a connection to a publisher.

    Args:
        context: context of ZeroMQ.
        endpoint: address of the stats socket.
        listener: receiver of messages and changes.
        poller: poller that the sockets are registered with for reading.
        now: seconds by a monotonic clock.
        max_message: bytes of a message; ZeroMQ disconnects from a peer that sends a larger one.
        queue: messages that wait in memory.
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
            StatsSubscriberError: the endpoint is not one of ZeroMQ's, or there are no more sockets.
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
            raise StatsSubscriberError(
                f"cannot connect to '{endpoint}': {zmq.strerror(e.errno or 0)}; an address is for example "
                "ipc:///run/gripproxy/pushpin-stats or tcp://localhost:5564"
            ) from e

    def close(self) -> None:
        """Close the sockets, if they are open; messages that wait in them are lost."""
        if not self._closed:
            self._closed = True
            self._poller.unregister(self._socket)
            self._poller.unregister(self._monitor)
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(0)

    def turn(self, ready: Container[object], now: float) -> int:
        """Take waiting messages, follow the connection, connect anew.

        Args:
            ready: sockets that a poll found readable.
            now: seconds by a monotonic clock.

        Returns:
            Number of messages taken.
        """
        # The connection first: messages that arrive were sent after it was made.
        if not self._closed and self._monitor in ready:
            self._follow(now)
        taken = self.take() if self._socket in ready else 0
        if not self.connected and now >= self._reopen_at:
            self._reopen(now)
        return taken

    def take(self) -> int:
        """Return the number of messages taken, at most ``limit``; fewer mean that no more wait."""
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
            # ZeroMQ resolves a name to one family only, and takes IPv6 for localhost although nearly all
            # publishers bind IPv4. So a name is tried as the one and as the other in turn.
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
                    # Messages sent before the end are passed on before the notice of it.
                    while self.take():
                        pass
                    self.connected = False
                    self._reopen_at = now + REOPEN_LOST
                    self._listener.disconnected(self.endpoint)
                else:
                    # The peer took the connection and is no publisher: another kind of socket for example.
                    self._listener.hindered(self.endpoint, "no ZeroMQ publisher answers there")
        except zmq.Again:
            pass
