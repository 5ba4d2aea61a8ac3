"""Recent ids: the id of the last item released on each channel, by which a new hold detects a missed item."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

__all__ = ["ENTRY_COST", "MEMORY", "RecentIds"]

ENTRY_COST: Final = 256
"""Cost of a channel besides its name and id, in bytes."""

BATCH: Final = 100
ROOM: Final = 64
"""Channels visited together, and the fraction of the memory that is freed when it is full: finding the first key of a
dict skips all empty places at its beginning."""

MEMORY: Final = 128 * 1024 * 1024
"""Bytes of all channels, unless configured: 480,000 with names and ids of ten bytes."""


class RecentIds:
    """Id of the last item released with one on each channel, with or without subscribers. Sans-I/O.

    It closes a window: a backend reads its data, an item is published, the hold begins. The backend's ``prev-id`` then
    differs from the id kept here, and the worker recovers immediately. It is not the sequencer's last id (docs/grip.md
    §6.1): items that bypass the sequencer count here, and waiting ones do not.

    Args:
        ttl: seconds the id of a channel without subscribers is kept.
        memory: bytes of all channels; beyond them the channel that was quiet longest is dropped.
    """

    __slots__ = ("_ids", "_memory", "_ttl", "size")

    def __init__(self, ttl: float, memory: int = MEMORY) -> None:
        # In order of release. A plain dict costs half of an ordered one; finding its first key is expensive.
        self._ids: dict[bytes, tuple[bytes, float]] = {}
        self._ttl = ttl
        self._memory = memory
        self.size = 0
        """Bytes in use, at most ``memory``."""

    def __len__(self) -> int:
        return len(self._ids)

    def released(self, channel: bytes, item_id: bytes | None, now: float) -> None:
        """Set the id of ``channel`` to that of a released item.

        An item without id changes nothing: a session that lacks the last one with an id still lacks it.

        Args:
            channel: the channel.
            item_id: id of the item, or None.
            now: time in seconds.
        """
        if item_id is None:
            return
        ids = self._ids
        old = ids.pop(channel, None)
        ids[channel] = (item_id, now)
        if old is None:
            self.size += ENTRY_COST + len(channel) + len(item_id)
        else:
            self.size += len(item_id) - len(old[0])
        if self.size > self._memory:
            self._make_room()

    def get(self, channel: bytes) -> bytes | None:
        """Return the id of the last item with one released on ``channel``; None if it is unknown or was dropped."""
        entry = self._ids.get(channel)
        return None if entry is None else entry[0]

    def seed(self, channel: bytes, item_id: bytes, now: float) -> None:
        """Set the id of ``channel`` unless one is known: a worker that outlived the former handler reports it.

        Args:
            channel: the channel.
            item_id: id of the last item that the worker received.
            now: time in seconds.
        """
        if channel not in self._ids:
            self.released(channel, item_id, now)

    def forget(self, channel: bytes, item_id: bytes) -> None:
        """Drop the channel's id if it is still ``item_id``, so that an item causes one extra request at most."""
        entry = self._ids.get(channel)
        if entry is not None and entry[0] == item_id:
            self._drop(channel)

    def expire(self, now: float, keep: Callable[[bytes], object], limit: int = 10_000) -> None:
        """Drop channels without an item for ``ttl`` seconds; called once a second.

        Args:
            now: time in seconds.
            keep: returns whether a channel has subscribers: its id is kept.
            limit: greatest number of channels to visit.
        """
        ids, oldest = self._ids, now - self._ttl
        while ids and limit > 0:
            for channel in list(islice(ids, min(limit, BATCH))):
                item_id, since = ids[channel]
                if since > oldest:
                    return
                if keep(channel):
                    self.released(channel, item_id, now)
                else:
                    self._drop(channel)
            limit -= BATCH

    def _make_room(self) -> None:
        """Drop the channels that were quiet longest."""
        while self.size > self._memory:
            for channel in list(islice(self._ids, BATCH)):
                self._drop(channel)
                if self.size <= self._memory - self._memory // ROOM:
                    return

    def _drop(self, channel: bytes) -> None:
        self.size -= ENTRY_COST + len(channel) + len(self._ids.pop(channel)[0])
