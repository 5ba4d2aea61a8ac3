"""Requests of WebSockets over HTTP that are in flight in one worker, and the bytes of their incomplete answers."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Posted", "Posting"]


class Posted(Protocol):
    """A WebSocket with a request in flight."""

    def sweep(self, now: float) -> None:
        """End a request that has taken too long; called about once a second, ``now`` in seconds."""

    def weight(self) -> int:
        """Return the bytes that its incomplete answer counts for."""

    def give_up(self) -> None:
        """Fail the request in flight."""


class Posting(dict[Posted, None]):
    """WebSockets of one worker with a request in flight; ``size``: bytes of their incomplete answers."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
