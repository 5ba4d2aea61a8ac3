"""Reader of the events of a WebSocket-over-HTTP body, a part at a time. Sans-I/O."""

from __future__ import annotations

from typing import Final

from gripproxy.grip.websocket_events import Event, decode_some

__all__ = ["READ_MAX", "EventReader"]

READ_MAX: Final = 1000
"""Events read in one call. A body of a megabyte may have a hundred thousand: reading them all delays everything."""


class EventReader:
    """Reads a body; ``events`` has those read so far, in order.

    Args:
        body: The whole body.
    """

    __slots__ = ("_body", "_position", "events")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._position = 0
        self.events: list[Event] = []

    def read(self) -> bool:
        """Read up to ``READ_MAX`` further events.

        Returns:
            True once all are read.

        Raises:
            EventError: The body is malformed (``gripproxy.grip.websocket_events.decode``).
        """
        events, self._position = decode_some(self._body, self._position, READ_MAX)
        if self.events:
            self.events += events
        else:
            self.events = events
        return self._position >= len(self._body)
