"""The id of the item released last, per channel: what tells a new hold that it missed something."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

__all__ = ["RecentIds"]


class RecentIds:
    """Remembers the id of the last item released with one on each channel, with or without subscribers. Sans-I/O.

    It serves one question: a backend read its data, then an item was published, then the hold began. The backend's
    ``prev-id`` then differs from the id remembered here, and the worker repairs it at once. This is not the sequencer's
    last id (docs/grip.md §6.1): items that bypass the sequencer count here, and waiting ones do not.

    Arguments: ``ttl`` in seconds, how long the id of a channel without subscribers is kept; ``limit`` is the greatest
    number of channels, beyond which the one that was quiet longest is forgotten.
    """

    __slots__ = ("_ids", "_limit", "_ttl")

    def __init__(self, ttl: float, limit: int = 1_000_000) -> None:
        self._ids: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()
        self._ttl = ttl
        self._limit = limit

    def __len__(self) -> int:
        return len(self._ids)

    def released(self, channel: bytes, item_id: bytes | None, now: float) -> None:
        """Note that an item was released on ``channel``. One without id tells nothing, and changes nothing: who has
        not seen the last one with an id still lacks that."""
        if item_id is None:
            return
        ids = self._ids
        ids[channel] = (item_id, now)
        ids.move_to_end(channel)
        if len(ids) > self._limit:
            ids.popitem(last=False)

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
            del self._ids[channel]

    def expire(self, now: float, keep: Callable[[bytes], object], limit: int = 10_000) -> None:
        """Forget channels quiet for ``ttl`` seconds; look at ``limit`` of them at most. Call once a second.

        ``keep(channel)`` is true for channels with subscribers: these stay known for as long as they have any.
        """
        ids, oldest = self._ids, now - self._ttl
        while ids and limit:
            channel = next(iter(ids))
            item_id, since = ids[channel]
            if since > oldest:
                return
            if keep(channel):
                self.released(channel, item_id, now)
            else:
                del ids[channel]
            limit -= 1
