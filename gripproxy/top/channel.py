"""Channels: the busiest ones are kept, each with its subscribers and what was published to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gripproxy.top.snapshot import ChannelRow, Figure

__all__ = ["IDLE", "MAX_CHANNELS", "MODES", "TRANSPORTS", "Channel", "Channels"]

MODES: Final = ("response", "stream", "ws")
"""Kinds of subscribers, and of the transports of ``message`` in the same order: that in which an item's are sent."""
TRANSPORTS: Final = {"http-response": 0, "http-stream": 1, "ws-message": 2}

MAX_CHANNELS: Final = 10_000
"""Channels kept in mind. For more of them the least busy go."""
ROOM: Final = 0.1
"""The part of them that goes at once, so that looking for them is rare."""
IDLE: Final = 300.0
"""Seconds without an item after which a channel without subscribers is forgotten."""


class Channel:
    """One channel: subscribers by mode; items and deliveries in all, and as they were at the last snapshot."""

    __slots__ = ("before", "deliveries", "item", "items", "last", "name", "rate", "subscribers")

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.subscribers = [0, 0, 0]
        self.items = self.deliveries = 0
        self.before = (0, 0)
        self.rate = 0.0
        """Deliveries per second at the last snapshot."""
        self.last = now
        """When the last item came; without one, when the channel did."""
        self.item: tuple[str, int] | None = None
        """Id and transport of the last ``message``."""

    def message(self, item: str, transport: int, count: int, now: float) -> bool:
        """An item went to ``count`` subscribers of a transport. Returns whether it is another item than the last.

        One item's messages follow each other, each for a later transport. Without id (empty) two items that look like
        that cannot be told from one.
        """
        last, self.item = self.item, (item, transport)
        self.deliveries += count
        self.last = now
        if last is not None and last[0] == item and last[1] < transport:
            return False
        self.items += 1
        return True


class Channels:
    """The busiest channels. ``subscribers(name)`` says how many there are of each mode, for one that comes (back)."""

    def __init__(self, subscribers: Callable[[str], list[int]], most: int = MAX_CHANNELS) -> None:
        self._subscribers = subscribers
        self._most = most
        self._channels: dict[str, Channel] = {}
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._channels)

    def get(self, name: str) -> Channel | None:
        """Return the channel if it is kept."""
        return self._channels.get(name)

    def need(self, name: str, now: float) -> Channel:
        """Return the channel, which is kept from now on."""
        channel = self._channels.get(name)
        if channel is None:
            if len(self._channels) >= self._most:
                self._make_room()
            channel = self._channels[name] = Channel(name, now)
            channel.subscribers = self._subscribers(name)
        return channel

    def _make_room(self) -> None:
        def busy(channel: Channel) -> tuple[float, int, float]:
            fresh = channel.deliveries - channel.before[1]
            return fresh + channel.rate, sum(channel.subscribers), channel.last

        least = sorted(self._channels.values(), key=busy)[: max(1, int(self._most * ROOM))]
        for channel in least:
            del self._channels[channel.name]
        self.left_out += len(least)

    def snapshot(self, now: float, seconds: float) -> list[ChannelRow]:
        """Return all rows, with rates over the ``seconds`` since the snapshot before; forget those that are idle."""
        rows = []
        idle = []
        for channel in self._channels.values():
            items, deliveries = channel.items, channel.deliveries
            old_items, old_deliveries = channel.before
            channel.before = items, deliveries
            channel.rate = (deliveries - old_deliveries) / seconds
            response, stream, ws = channel.subscribers
            age = now - channel.last
            if age >= IDLE and not response and not stream and not ws:
                idle.append(channel.name)
                continue
            rows.append(
                ChannelRow(
                    channel.name,
                    response,
                    stream,
                    ws,
                    Figure((items - old_items) / seconds, items),
                    Figure(channel.rate, deliveries),
                    age if items else None,
                )
            )
        for name in idle:
            del self._channels[name]
        return rows
