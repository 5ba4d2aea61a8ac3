"""Duplicate suppression: each (channel, item id) passes once within a time (docs/grip.md §5.4)."""

from __future__ import annotations

import os
from collections import deque
from hashlib import blake2b
from typing import Final

__all__ = ["PAIR_COST", "DuplicateCache"]

KEY_MAX: Final = 64
"""Bytes of a pair that is kept as it is. Of a longer one a digest is kept, so that publishers cannot fill the memory
with long ids."""

DIGEST: Final = 16
"""Bytes of such a digest. It is keyed with a secret of the process: no publisher can make two pairs that collide."""

PAIR_COST: Final = 256
"""Bytes that a pair costs at most, all told: a key of KEY_MAX bytes, its time, and its places in the dict and the
queues. ``id_cache_max`` of them are the bound of the whole cache."""

SWEEP_STEP = 4
"""Entries looked at for expiry at each check. More than one, so that the cache shrinks while it is used; few, so that
no item pays for the ids of a burst a minute ago."""


class DuplicateCache:
    """Remembers (channel, id) pairs for a time. Sans-I/O.

    Arguments: ``ttl`` in seconds, 0 switches it off; ``limit`` is the greatest number of pairs, each of at
    most PAIR_COST bytes. Beyond it the oldest
    is forgotten before its time: a late duplicate that passes is better than memory without bound.

    Time is any clock in seconds that does not run backwards.
    """

    __slots__ = ("_ends", "_limit", "_order", "_secret", "_times", "_ttl", "forced")

    def __init__(self, ttl: float, limit: int = 1_000_000) -> None:
        self._ttl = ttl
        self._limit = limit
        self._secret = os.urandom(32)
        # One flat bytes key per pair: a tuple would cost 56 bytes more and be one more object for the collector.
        self._ends: dict[bytes, float] = {}
        # The order of arrival, kept aside: finding the first key of a dict whose head was deleted is linear.
        self._order: deque[bytes] = deque()
        self._times: deque[float] = deque()
        self.forced = 0
        """Pairs forgotten before their time because the cache was full."""

    def __len__(self) -> int:
        return len(self._order)

    def seen(self, channel: bytes, item_id: bytes, now: float) -> bool:
        """Whether the pair passed within the last ``ttl`` seconds; if not, it is remembered from ``now`` on.

        A duplicate does not prolong the time, so an id repeated for ever passes once per ``ttl``.
        """
        if not self._ttl:
            return False
        # The length makes the key unambiguous whatever bytes the two parts hold.
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
        """Forget pairs whose time is over, at most ``limit`` of them. Call once a second, so that an idle cache
        empties; ``seen`` sweeps a little by itself."""
        times = self._times
        while times and limit and times[0] <= now:
            self._forget_oldest()
            limit -= 1

    def _forget_oldest(self) -> None:
        key, end = self._order.popleft(), self._times.popleft()
        # A pair that came again between its end and the sweep stands in the order twice: only its last place counts.
        if self._ends.get(key) == end:
            del self._ends[key]
