"""Optional state of a WebSocket session, allocated on first use to keep idle sessions small."""

from __future__ import annotations

from typing import Final

from gripproxy.delivery.filter_queue import FilterQueue
from gripproxy.grip.permessage_deflate import Deflater, Parameters
from gripproxy.sessions.reliable_websocket import ReliableWebSocket
from gripproxy.sessions.timer_wheel import Alarm
from gripproxy.sessions.websocket_timers import Upkeep

__all__ = ["FRAME_OVERHEAD", "NO_META", "Extras"]

FRAME_OVERHEAD: Final = 10
"""Bytes that a buffered frame counts beside its payload."""

NO_META: Final[dict[bytes, bytes]] = {}
"""Meta of sessions that have none. Read-only."""


class Extras:
    """Optional state of one session.

    Attributes:
        blocked: the client does not read.
        sharers: sessions that shared the write with which the client was blocked.
        parts: frames for a blocked client, or until a subscription is confirmed.
        size: of ``parts``, in bytes.
        after: frames until the end of a backend's message.
        after_size: of ``after``, in bytes.
        upkeep: keep-alives and delayed messages.
        deflater: of a message that is sent in pieces.
        closing: timer of the closing handshake.
        confirming: timer of subscriptions that the handler has not confirmed.
        filters: of the subscriptions.
        reliable: of channels with ids.
    """

    __slots__ = (
        "after",
        "after_size",
        "blocked",
        "closing",
        "confirming",
        "deflater",
        "filters",
        "parts",
        "reliable",
        "sharers",
        "size",
        "upkeep",
    )

    def __init__(self) -> None:
        self.blocked = False
        self.sharers = 1
        self.parts: list[bytes] = []
        self.size = 0
        self.after: list[bytes] = []
        self.after_size = 0
        self.upkeep: Upkeep | None = None
        self.deflater: Deflater | None = None
        self.closing: Alarm | None = None
        self.confirming: Alarm | None = None
        self.filters: FilterQueue | None = None
        self.reliable: ReliableWebSocket | None = None

    @property
    def in_the_way(self) -> bool:
        """True while items must not be written directly."""
        return self.blocked or bool(self.after) or (self.upkeep is not None and self.upkeep.active)

    def compressed(self, agreed: Parameters, data: bytes, first: bool, fin: bool) -> bytes:
        """Return a piece of a message as it is sent in a frame (RFC 7692 §7.2.1).

        Args:
            agreed: parameters of the extension.
            data: the piece.
            first: the piece begins the message.
            fin: the piece ends the message.
        """
        deflater = self.deflater
        if first or deflater is None:
            deflater = self.deflater = Deflater(agreed)
        if fin:
            self.deflater = None
        return deflater.deflate(data, fin)
