"""Channels: the busiest ones, each with its subscribers, items and deliveries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gripproxy.live.snapshot import ChannelRow, Figure

__all__ = ["IDLE", "MAX_CHANNELS", "MODES", "TRANSPORTS", "Channel", "Channels"]

MODES: Final = ("response", "stream", "ws")
"""Modes of subscribers, in the order in which the transports of an item are reported."""
TRANSPORTS: Final = {"http-response": 0, "http-stream": 1, "ws-message": 2}
"""Positions in MODES by transport of ``message``."""

MAX_CHANNELS: Final = 10_000
"""Greatest number of channels; for more of them the least busy are dropped."""
ROOM: Final = 0.1
"""Fraction of the channels that is dropped together, so that sorting them is rare."""
IDLE: Final = 300.0
"""Seconds without an item after which a channel without subscribers is dropped."""


class Channel:
    """A channel: subscribers by mode; totals of items and deliveries, now and at the last snapshot.

    Args:
        name: its name.
        now: time in seconds.
        subscribers: numbers of subscribers by mode.
    """

    __slots__ = ("before", "deliveries", "item", "items", "last", "name", "rate", "subscribers")

    def __init__(self, name: str, now: float, subscribers: list[int]) -> None:
        self.name = name
        self.subscribers = subscribers
        self.items = self.deliveries = 0
        self.before = (0, 0)
        self.rate = 0.0
        """Deliveries per second at the last snapshot."""
        self.last = now
        """Time of the last item in seconds; without one, time of the channel's first event."""
        self.item: tuple[str, int] | None = None
        """Id and transport of the last ``message``."""

    def message(self, item: str, transport: int, count: int, now: float) -> bool:
        """Add an event ``message``.

        The messages of an item follow each other in the order of transports. Two items without id that look like one
        count as one.

        Args:
            item: id of the item; empty if it has none.
            transport: position in MODES.
            count: subscribers addressed.
            now: time in seconds.

        Returns:
            Whether it is the first message of an item.
        """
        last, self.item = self.item, (item, transport)
        self.deliveries += count
        self.last = now
        if last is not None and last[0] == item and last[1] < transport:
            return False
        self.items += 1
        return True


class Channels:
    """The busiest channels.

    Args:
        subscribers: returns the numbers of subscribers of a channel by mode, for one that is added.
        most: greatest number of channels.
    """

    def __init__(self, subscribers: Callable[[str], list[int]], most: int = MAX_CHANNELS) -> None:
        self._subscribers = subscribers
        self._most = most
        self._channels: dict[str, Channel] = {}
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._channels)

    def get(self, name: str) -> Channel | None:
        """Return the channel ``name``, or None if it is not among the busiest."""
        return self._channels.get(name)

    def need(self, name: str, now: float) -> Channel:
        """Return a channel, which is added if it is unknown.

        Args:
            name: its name.
            now: time in seconds.
        """
        channel = self._channels.get(name)
        if channel is None:
            if len(self._channels) >= self._most:
                self._make_room()
            channel = self._channels[name] = Channel(name, now, self._subscribers(name))
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
        """Return the rows of all channels, and drop idle ones.

        Args:
            now: time in seconds.
            seconds: seconds since the last snapshot, for rates.
        """
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
