"""The id of the item released last, per channel: what tells a new hold that it missed something."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

__all__ = ["ENTRY_COST", "MEMORY", "RecentIds"]

ENTRY_COST: Final = 256
"""Bytes that a channel costs besides its name and id."""

BATCH: Final = 100
ROOM: Final = 64
"""Channels looked at together, and what part of the memory is made free when it is full: the first key of a dict is
found by going over all places at its beginning that are empty."""

MEMORY: Final = 128 * 1024 * 1024
"""Bytes in all, unless configured: 480,000 channels with names and ids of ten bytes."""


class RecentIds:
    """Remembers the id of the last item released with one on each channel, with or without subscribers. Sans-I/O.

    It serves one question: a backend read its data, then an item was published, then the hold began. The backend's
    ``prev-id`` then differs from the id remembered here, and the worker repairs it at once. This is not the sequencer's
    last id (docs/grip.md §6.1): items that bypass the sequencer count here, and waiting ones do not.

    Arguments: ``ttl`` in seconds, how long the id of a channel without subscribers is kept; ``memory`` is a number of
    bytes, beyond which the channel that was quiet longest is forgotten.
    """

    __slots__ = ("_ids", "_memory", "_ttl", "size")

    def __init__(self, ttl: float, memory: int = MEMORY) -> None:
        # In order of release. A plain dict costs half of what an ordered one does; only its first key is dear to find.
        self._ids: dict[bytes, tuple[bytes, float]] = {}
        self._ttl = ttl
        self._memory = memory
        self.size = 0
        """Bytes that are in use, at most ``memory``."""

    def __len__(self) -> int:
        return len(self._ids)

    def released(self, channel: bytes, item_id: bytes | None, now: float) -> None:
        """Note that an item was released on ``channel``. One without id tells nothing, and changes nothing: who has
        not seen the last one with an id still lacks that."""
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
        """Return the id of the last item with one released on ``channel``, or None if unknown or forgotten."""
        entry = self._ids.get(channel)
        return None if entry is None else entry[0]

    def seed(self, channel: bytes, item_id: bytes, now: float) -> None:
        """Take ``item_id`` as the last one of ``channel`` unless one is known: a worker that outlived the former
        handler says what it received last."""
        if channel not in self._ids:
            self.released(channel, item_id, now)

    def forget(self, channel: bytes, item_id: bytes) -> None:
        """Forget the channel's id if it still is ``item_id``, so that one item causes at most one extra request."""
        entry = self._ids.get(channel)
        if entry is not None and entry[0] == item_id:
            self._drop(channel)

    def expire(self, now: float, keep: Callable[[bytes], object], limit: int = 10_000) -> None:
        """Forget channels quiet for ``ttl`` seconds; look at ``limit`` of them at most. Call once a second.

        ``keep(channel)`` is true for channels with subscribers: these stay known for as long as they have any.
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
        """Forget the channels that were quiet longest."""
        while self.size > self._memory:
            for channel in list(islice(self._ids, BATCH)):
                self._drop(channel)
                if self.size <= self._memory - self._memory // ROOM:
                    return

    def _drop(self, channel: bytes) -> None:
        self.size -= ENTRY_COST + len(channel) + len(self._ids.pop(channel)[0])
