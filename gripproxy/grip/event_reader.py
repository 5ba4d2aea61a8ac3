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
        events: Events that are read already.
        position: Offset behind these, in bytes.
    """

    __slots__ = ("_body", "_position", "events")

    def __init__(self, body: bytes, events: list[Event], position: int) -> None:
        self._body = body
        self._position = position
        self.events = events

    def read(self) -> bool:
        """Read up to ``READ_MAX`` further events.

        Returns:
            True once all are read.

        Raises:
            EventError: The body is malformed (``gripproxy.grip.websocket_events.decode``).
        """
        events, self._position = decode_some(self._body, self._position, READ_MAX)
        self.events += events
        return self._position >= len(self._body)
