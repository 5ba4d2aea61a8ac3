"""A replica that parallel consumers of an event stream keep, as it is often built.

No event is lost here: each partition is complete and in order, and the table is right as soon as it is quiet.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from griphub import Follower, KeyRange, ReceivedEvent, Selection, Version


@dataclass(frozen=True)
class Row:
    """Value of a key, and the version that it is of."""

    version: int
    value: list[str]


class PubsubReplica:
    """Table of all keys. Each worker consumes a partition of the stream, and applies each event directly.

    Args:
        hub: its URL.
        topic: the store.
    """

    def __init__(self, hub: str, topic: str) -> None:
        self._hub = hub
        self._topic = topic
        self.rows: dict[str, Row] = {}
        self.applied: dict[int, float] = {}
        """Times at which versions were applied."""

    async def work(self, keys: KeyRange, pace: float) -> None:
        """Apply the events of a partition.

        Args:
            keys: the partition.
            pace: seconds that an event takes.
        """
        async with Follower(self._hub, self._topic, Selection("0", low=keys.low, high=keys.high)) as partition:
            async for event in partition:
                assert isinstance(event, ReceivedEvent)
                await asyncio.sleep(pace)
                version = Version.of(event.version_cursor).number
                self.rows[event.key or ""] = Row(version, event.data)
                self.applied[version] = time.monotonic()

    def read(self) -> dict[str, Row]:
        """Return the table as it is at this moment."""
        return dict(self.rows)
