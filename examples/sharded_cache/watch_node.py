"""A cache server that watches: it knows each value of its ranges, and from which version to which one."""

from __future__ import annotations

from collections.abc import Sequence

from griphub import CachedValue, KeyRange, NotKnown, SnapshotCache
from griphub.client.region import Region

Knowledge = Sequence[Region[CachedValue]]


class WatchNode:
    """Values of the ranges that the sharder has assigned to this server. No other program has to know of that.

    Args:
        hub: its URL.
        topic: the store.
    """

    def __init__(self, hub: str, topic: str) -> None:
        self.cache = SnapshotCache(hub, topic, interval=1)

    def assign(self, ranges: Sequence[KeyRange], knowledge: Knowledge | None = None) -> None:
        """Have exactly these ranges.

        A range whose knowledge is handed over is watched from the last version of that; any other one is read at some
        version, and watched from there. In both cases no change is between.

        Args:
            ranges: the ranges.
            knowledge: of new ranges, from their old owners; None for none.
        """
        self.cache.assign(ranges, knowledge or ())

    def knowledge(self, keys: KeyRange) -> Knowledge:
        """Return everything that is known of ``keys``, for their next owner."""
        return self.cache.regions(keys.low, keys.high)

    def get(self, key: str) -> int | None:
        """Return the value of a ``key``; None if it is not known, as directly after a crash of its former owner."""
        value = self.cache.get(key)
        return None if value is None or isinstance(value, NotKnown) else int(value.data)

    async def close(self) -> None:
        """End the server."""
        await self.cache.close()
