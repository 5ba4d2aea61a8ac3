"""Ring: the stream of a broker that retains the newest entries.

It behaves as Redis Streams does with ``XADD key MAXLEN n`` and ``XREAD STREAMS key id``: a reader that asks behind an
id gets the entries above it *that are there*. If some of them were trimmed it gets those above the hole, and no sign of
it. (A consumer of Kafka gets an error below the first entry, which the default of ``auto.offset.reset`` answers by a
jump to the end.)
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class Entry:
    """Event in a ring.

    Attributes:
        id: number of the entry, increasing by one.
        key: of the event.
        number: value of the key from now on; None if the key is deleted.
        time: monotonic time of the event, seconds.
    """

    id: int
    key: str
    number: int | None
    time: float


class Ring:
    """Newest entries of a stream.

    Args:
        size: number of entries that are retained.
    """

    def __init__(self, size: int) -> None:
        self.last = 0
        """Id of the newest entry; 0 if there was none."""
        self._entries: deque[Entry] = deque(maxlen=size)
        self._added = asyncio.Event()

    @property
    def first(self) -> int:
        """Id of the oldest entry that is retained; 1 if there was none."""
        return self._entries[0].id if self._entries else 1

    def add(self, key: str, number: int | None, time: float) -> None:
        """Add an entry; beyond the size the oldest one is dropped.

        Args:
            key: of the event.
            number: value of the key from now on; None if the key is deleted.
            time: monotonic time, seconds.
        """
        self.last += 1
        self._entries.append(Entry(self.last, key, number, time))
        self._added.set()
        self._added = asyncio.Event()

    async def read(self, after: int, count: int = 10) -> list[Entry]:
        """Return the next entries, or wait for one.

        Args:
            after: id behind which they are.
            count: greatest number of entries.
        """
        while self.last <= after:
            await self._added.wait()
        return self.behind(after, count)

    def behind(self, after: int, count: int | None = None) -> list[Entry]:
        """Return the entries behind an id that are there.

        Args:
            after: the id.
            count: greatest number of entries; None for all.
        """
        skipped = max(0, after + 1 - self.first)
        return list(islice(self._entries, skipped, None if count is None else skipped + count))
