"""What few WebSocket sessions have; one that has nothing of it carries no record of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gripproxy.grip.deflate import Deflater, Parameters
from gripproxy.sessions.filtering import FilterQueue
from gripproxy.sessions.upkeep import Upkeep
from gripproxy.sessions.wheel import Alarm

if TYPE_CHECKING:
    from gripproxy.sessions.reliable_socket import ReliableSocket

__all__ = ["FRAME_OVERHEAD", "NO_META", "Extras"]

FRAME_OVERHEAD: Final = 10
"""Bytes that a frame which waits counts for beside its payload."""

NO_META: Final[dict[bytes, bytes]] = {}
"""The meta of those that have none. Not to be written to."""


class Extras:
    """Filled by its session when first needed.

    ``parts`` wait for a ``blocked`` client or for a subscription, ``after`` for the end of a backend's message; sizes
    are in bytes. ``sharers``: sessions that the write was for which blocked the client.
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
        self.reliable: ReliableSocket | None = None

    @property
    def in_the_way(self) -> bool:
        """Whether items cannot simply be written."""
        return self.blocked or bool(self.after) or (self.upkeep is not None and self.upkeep.active)

    def compressed(self, agreed: Parameters, data: bytes, first: bool, fin: bool) -> bytes:
        """Return a piece of a message as it is in a frame (RFC 7692 §7.2.1)."""
        deflater = self.deflater
        if first or deflater is None:
            deflater = self.deflater = Deflater(agreed)
        if fin:
            self.deflater = None
        return deflater.deflate(data, fin)
