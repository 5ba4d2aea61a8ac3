"""Held channels: learns which channels of the hub have subscribers in the handler (docs/held-channels.md)."""

from __future__ import annotations

from collections.abc import Callable

import zmq

from gripproxy.process.zmq_reader import ZmqReader

__all__ = ["HeldChannels"]


class HeldChannels:
    """XPUB socket connected to the handler's SUB intake: subscriptions arrive as messages.

    Args:
        context: of ZeroMQ.
        spec: address of the intake.
        prefix: first part of the names of the hub's channels; others are left out.
        on_held: called with the name of a channel that has its first subscriber.
        on_left: called with the name of a channel that has lost its last one, also by the end of the handler.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        spec: str,
        prefix: str,
        on_held: Callable[[str], None],
        on_left: Callable[[str], None],
    ) -> None:
        self._prefix = prefix.encode()
        self._on_held = on_held
        self._on_left = on_left
        self._socket = context.socket(zmq.XPUB)
        # Without it the end of the handler is not seen, and its subscriptions never end.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 50)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        # Messages of an XPUB are subscriptions of the handler: as many as it has channels.
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.connect(spec)
        self._reader = ZmqReader(self._socket, self._take)

    def close(self) -> None:
        """Close the socket."""
        self._reader.close()
        self._socket.close()

    def _take(self) -> int:
        message = self._socket.recv(zmq.NOBLOCK)
        if message[1:].startswith(self._prefix):
            name = message[1:].decode("utf-8", "replace")
            (self._on_held if message[0] else self._on_left)(name)
        return len(message)
