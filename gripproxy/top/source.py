"""One stats socket to listen to: a SUB socket, and whether it is connected.

ZeroMQ connects again when a connection breaks, but gives up for good on who breaks its protocol once, for example with
a message that is too large. So the socket is made anew when there is no connection for a while.
"""

from __future__ import annotations

from typing import Any, Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from gripproxy.top.picture import Picture

__all__ = ["QUEUE", "Source", "SourceError", "reachable"]

QUEUE: Final = 200_000
"""Messages that wait in memory while we are busy, as many as the publisher's own queue takes. Behind both it drops."""
MAX_MESSAGE: Final = 65_536
"""Bytes of a message; ZeroMQ disconnects from who sends a larger one. Events have some hundred."""
TAKE: Final = 2000
"""Messages taken in one go."""
REOPEN: Final = 5.0
"""Seconds without a connection after which the socket is made anew."""
HEARTBEAT: Final = (5_000, 15_000)
"""ms between questions whether the publisher is there, and until it counts as gone."""
RECONNECT: Final = (100, 1_000)
"""ms between attempts to connect: the first ones, and the most."""

_CONNECTED: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED
_DISCONNECTED: Final = zmq.EVENT_DISCONNECTED
_FAILED: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class SourceError(ValueError):
    """The operator's address is none that can be connected to."""


def reachable(spec: str) -> str:
    """Return the address to connect to, of one that is written for binding: all interfaces are the own machine."""
    for everywhere, here in (("tcp://*:", "tcp://127.0.0.1:"), ("tcp://0.0.0.0:", "tcp://127.0.0.1:")):
        if spec.startswith(everywhere):
            return here + spec[len(everywhere) :]
    return spec.replace("tcp://[::]:", "tcp://[::1]:", 1)


class Source:
    """The socket of one endpoint. What comes goes into ``picture``; all of its sockets are to be polled for reading."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, picture: Picture, poller: zmq.Poller, now: float
    ) -> None:
        """Begin to connect. Raises SourceError."""
        self.endpoint = endpoint
        self.connected = False
        self._context = context
        self._picture = picture
        self._poller = poller
        self._backlog = 0
        self._overrun = False
        self._reopen_at = 0.0
        self._socket: zmq.Socket[bytes]
        self._monitor: zmq.Socket[Any]
        self._open(now)

    def _open(self, now: float) -> None:
        self._reopen_at = now + REOPEN
        sock = self._socket = self._context.socket(zmq.SUB)
        sock.set_hwm(QUEUE)
        for option, value in (
            (zmq.MAXMSGSIZE, MAX_MESSAGE),
            (zmq.IPV6, 1),
            (zmq.HEARTBEAT_IVL, HEARTBEAT[0]),
            (zmq.HEARTBEAT_TIMEOUT, HEARTBEAT[1]),
            (zmq.RECONNECT_IVL, RECONNECT[0]),
            (zmq.RECONNECT_IVL_MAX, RECONNECT[1]),
        ):
            sock.setsockopt(option, value)
        sock.subscribe(b"")
        self._monitor = sock.get_monitor_socket(_CONNECTED | _DISCONNECTED | _FAILED)
        self._poller.register(sock, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        try:
            sock.connect(self.endpoint)
        except zmq.ZMQError as e:
            self.close()
            raise SourceError(
                f"cannot connect to '{self.endpoint}': {zmq.strerror(e.errno or 0)}; an address is for example "
                "ipc:///run/gripproxy/pushpin-stats or tcp://localhost:5564"
            ) from e

    def close(self) -> None:
        """Close the sockets; what waits in them is lost."""
        self._poller.unregister(self._socket)
        self._poller.unregister(self._monitor)
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)

    def turn(self, ready: dict[Any, int], now: float) -> int:
        """Do what there is to do, with what a poll said; return how many messages were taken."""
        # The connection first: what arrives was sent after it was made.
        if self._monitor in ready:
            self._follow(now)
        taken = self._take(now) if self._socket in ready else 0
        if not self.connected and now >= self._reopen_at:
            while self._take(now):
                pass
            self.close()
            try:
                self._open(now)
            except zmq.ZMQError as e:
                raise SourceError(f"cannot connect to '{self.endpoint}' again: {zmq.strerror(e.errno or 0)}") from e
        return taken

    def _take(self, now: float) -> int:
        take, receive, endpoint = self._picture.take, self._socket.recv, self.endpoint
        taken = 0
        try:
            while taken < TAKE:
                take(endpoint, receive(zmq.NOBLOCK), now)
                taken += 1
            self._backlog += TAKE
            if self._backlog >= QUEUE and not self._overrun:
                # So many since the queue was last seen empty that it may have been full.
                self._overrun = True
                self._picture.overrun(endpoint)
        except zmq.Again:
            self._backlog, self._overrun = 0, False
        return taken

    def _follow(self, now: float) -> None:
        try:
            while True:
                kind = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
                if kind == _CONNECTED:
                    self.connected = True
                    self._picture.connected(self.endpoint, now)
                elif kind == _DISCONNECTED:
                    # What came before the end comes before the notice of it.
                    while self._take(now):
                        pass
                    if self.connected:
                        self._reopen_at = now + REOPEN
                    self.connected = False
                    self._picture.disconnected(self.endpoint, now)
                else:
                    self._picture.hindered(self.endpoint, "no ZeroMQ publisher answers there")
        except zmq.Again:
            pass
