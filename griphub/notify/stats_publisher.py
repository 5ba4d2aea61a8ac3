"""Statistics of the hub on a ZeroMQ PUB socket: events as those of the handler (docs/stats.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import zmq

from gripproxy.grip.stats_format import encode
from gripproxy.process.endpoints import bind

__all__ = ["StatsPublisher"]

WAITING_MAX: Final = 20_000
"""Events queued for a subscriber; further ones are dropped for it, as by any PUB socket."""


class StatsPublisher:
    """Socket that events are sent to.

    Args:
        context: owner of the socket.
        json: whether events are JSON; else they are tnetstrings.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], *, json: bool) -> None:
        self._json = json
        self._sock = context.socket(zmq.PUB)
        self._sock.setsockopt(zmq.SNDHWM, WAITING_MAX)
        self._sock.setsockopt(zmq.LINGER, 0)
        self._sock.setsockopt(zmq.IPV6, 1)

    def open(self, spec: str, mode: int | None) -> str:
        """Bind the socket.

        Args:
            spec: address.
            mode: ``ipc_file_mode``; None keeps the mode of an ipc socket.

        Returns:
            The address that it is bound to.

        Raises:
            BindError: the address cannot be used.
        """
        return bind(self._sock, spec, "stats_spec", mode)

    def send(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Send an event to its subscribers.

        Args:
            kind: its type.
            fields: bytes, numbers and booleans by name.
        """
        self._sock.send(encode(kind, fields, self._json), zmq.NOBLOCK)

    def close(self) -> None:
        """Close the socket; events that wait for subscribers are dropped."""
        self._sock.close()
