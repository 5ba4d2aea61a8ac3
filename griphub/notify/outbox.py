"""Outbox: items on their way to the handler, and the channels that missed some. Sans-I/O.

Items leave in order, a batch per request; the next request follows the answer. Whenever it is not certain that the
handler has an item, the channel is remembered instead of the item, and gets a hint later: its followers ask the hub.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["BATCH_MAX", "QUEUE_MAX", "Outbox", "OutboxState"]

BATCH_MAX: Final = 1_000_000
"""Greatest size of a batch, in bytes, with which items are few enough not to delay others. One item may exceed it."""

QUEUE_MAX: Final = 8_000_000
"""Bytes of waiting items beyond which the handler counts as one that is away."""

_FRAME: Final = b'{"items":[%b]}'


class OutboxState(enum.Enum):
    """State of the way to the handler."""

    AWAY = "away"
    """No connection: channels are remembered."""
    READY = "ready"
    """Connected, no request under way."""
    SENDING = "sending"
    """A request is under way."""


class Outbox:
    """Items and missed channels.

    Args:
        hint: returns the hint for a channel by its name; None for a channel without followers.
        body_max: greatest size of a body that the handler takes, in bytes: a longer item becomes a hint.
        batch_max: greatest size of a body with several items, in bytes.
        queue_max: greatest size of all waiting items, in bytes.
    """

    def __init__(
        self,
        hint: Callable[[str], bytes | None],
        body_max: int,
        batch_max: int = BATCH_MAX,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        self._hint = hint
        self._item_max = body_max - len(_FRAME % b"")
        self._batch_max = min(batch_max, body_max)
        self._queue_max = queue_max
        self._items: list[tuple[str, bytes, bool]] = []
        self._size = 0
        self._under_way: list[str] = []
        self._missed: dict[str, None] = {}
        self.state = OutboxState.AWAY
        self.counts = False
        """True if the request under way asks for the numbers of subscribers of its items."""
        self.overflows = 0
        """Times at which the queue was full, since the start."""

    @property
    def missed(self) -> int:
        """Channels that will get a hint."""
        return len(self._missed)

    @property
    def waiting(self) -> int:
        """Bytes of waiting items."""
        return self._size

    def add(self, channel: str, item: bytes, *, counted: bool = False) -> None:
        """Add an item.

        Args:
            channel: name of its channel.
            item: its JSON.
            counted: whether its request asks for the numbers of subscribers.
        """
        if self.state is OutboxState.AWAY or channel in self._missed:
            self._missed[channel] = None
            return
        if len(item) > self._item_max:
            self._replace(channel)
            return
        if self._size + len(item) > self._queue_max:
            self.overflows += 1
            self._forget_items()
            self._missed[channel] = None
            return
        self._items.append((channel, item, counted))
        self._size += len(item)

    def miss(self, channels: Iterable[str]) -> None:
        """Remember ``channels``, whose followers have to ask the hub."""
        self._missed.update(dict.fromkeys(channels))

    def connected(self) -> None:
        """Begin to send: the handler is there."""
        self.state = OutboxState.READY

    def lost(self) -> None:
        """Turn all items, those under way included, into missed channels: the connection has ended."""
        self.state = OutboxState.AWAY
        self._miss_request()
        self._forget_items()

    def refused(self) -> None:
        """Turn the items of the request under way into missed channels: the handler has refused it."""
        self.state = OutboxState.READY
        self._miss_request()

    def delivered(self) -> list[str]:
        """End the request under way: the handler has its items.

        Returns:
            The channels of the items, in order.
        """
        self.state = OutboxState.READY
        channels, self._under_way = self._under_way, []
        return channels

    def next_body(self) -> bytes:
        """Return the body of the next request and begin it; empty if there is nothing to send, or one is under way."""
        if self.state is not OutboxState.READY:
            return b""
        parts: list[bytes] = []
        left = self._batch_max - len(_FRAME % b"")
        for channel in list(self._missed):
            item = self._hint(channel)
            if item is not None:
                if parts and len(item) > left:
                    break
                parts.append(item)
                self._under_way.append(channel)
                # One more for the comma.
                left -= len(item) + 1
            del self._missed[channel]
        taken, counts = 0, False
        for channel, item, counted in self._items:
            if parts and len(item) > left:
                break
            counts = counts or counted
            parts.append(item)
            self._under_way.append(channel)
            left -= len(item) + 1
            taken += 1
            self._size -= len(item)
        del self._items[:taken]
        if not parts:
            return b""
        self.counts = counts
        self.state = OutboxState.SENDING
        return _FRAME % b",".join(parts)

    def _replace(self, channel: str) -> None:
        """Turn the waiting items of a channel into its hint, which goes before all items."""
        self._missed[channel] = None
        self._items = [each for each in self._items if each[0] != channel]
        self._size = sum(len(item) for _, item, _ in self._items)

    def _miss_request(self) -> None:
        self._missed.update(dict.fromkeys(self._under_way))
        self._under_way = []

    def _forget_items(self) -> None:
        self._missed.update((channel, None) for channel, _, _ in self._items)
        self._items.clear()
        self._size = 0
