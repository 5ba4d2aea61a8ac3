"""Duplicate suppression: a pair of channel and item id passes once within ``id_cache_ttl`` (docs/grip.md §5.4)."""

from __future__ import annotations

import os
from collections import deque
from hashlib import blake2b
from typing import Final

__all__ = ["PAIR_COST", "DuplicateCache"]

KEY_MAX: Final = 64
"""Bytes of a pair up to which it is stored itself. Of a longer one a digest is stored, so that publishers cannot fill
the memory with long ids."""

DIGEST: Final = 16
"""Bytes of a digest, which is keyed with a secret of the process: no publisher can make two pairs that collide."""

PAIR_COST: Final = 256
"""Greatest cost of a pair in bytes: a key of KEY_MAX bytes, its time, and its places in the dict and the queues.
``id_cache_max`` of them bound the whole cache."""

SWEEP_STEP = 4
"""Entries checked for expiry at each lookup. More than one, so that the cache shrinks while it is used; few, so that
no item pays for the ids of a burst a minute ago."""


class DuplicateCache:
    """Cache of (channel, id) pairs. Sans-I/O; times are seconds of any clock that does not run backwards.

    Args:
        ttl: seconds a pair is kept; 0 switches the cache off.
        limit: greatest number of pairs, each of PAIR_COST bytes at most. Beyond it the oldest is dropped before its
            time: a late duplicate that passes is better than memory without bound.
    """

    __slots__ = ("_ends", "_limit", "_order", "_secret", "_times", "_ttl", "forced")

    def __init__(self, ttl: float, limit: int = 1_000_000) -> None:
        self._ttl = ttl
        self._limit = limit
        self._secret = os.urandom(32)
        # A flat bytes key per pair: a tuple would cost 56 bytes more and be a further object for the collector.
        self._ends: dict[bytes, float] = {}
        # Order of arrival, kept aside: finding the first key of a dict whose head was deleted is linear.
        self._order: deque[bytes] = deque()
        self._times: deque[float] = deque()
        self.forced = 0
        """Pairs dropped before their time because the cache was full."""

    def __len__(self) -> int:
        return len(self._order)

    def seen(self, channel: bytes, item_id: bytes, now: float) -> bool:
        """Look up a pair, and add it unless it is known. A duplicate does not extend the pair's time.

        Args:
            channel: of the item.
            item_id: of the item.
            now: time in seconds.

        Returns:
            Whether the pair was added within the last ``ttl`` seconds.
        """
        if not self._ttl:
            return False
        # The length makes the key unambiguous for any bytes in both parts.
        key = b"%d:%b%b" % (len(channel), channel, item_id)
        if len(key) > KEY_MAX:
            key = blake2b(key, digest_size=DIGEST, key=self._secret).digest()
        ends, order = self._ends, self._order
        end = ends.get(key)
        if end is not None and end > now:
            return True
        if self._times and self._times[0] <= now:
            self.expire(now, SWEEP_STEP)
        if len(order) >= self._limit:
            self._forget_oldest()
            self.forced += 1
        end = now + self._ttl
        ends[key] = end
        order.append(key)
        self._times.append(end)
        return False

    def expire(self, now: float, limit: int = 10_000) -> None:
        """Drop expired pairs; called once a second, so that an idle cache empties. ``seen`` drops a few as well.

        Args:
            now: time in seconds.
            limit: greatest number of pairs to drop.
        """
        times = self._times
        while times and limit and times[0] <= now:
            self._forget_oldest()
            limit -= 1

    def _forget_oldest(self) -> None:
        key, end = self._order.popleft(), self._times.popleft()
        # A pair added again between its end and the sweep is in the order twice: its last place counts.
        if self._ends.get(key) == end:
            del self._ends[key]
