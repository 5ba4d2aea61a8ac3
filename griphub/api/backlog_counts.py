"""Counts of unread events of subscriptions of the push API, made a few at a time for their figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from griphub.api.pubsub_figures import PubsubFigures
from griphub.processes.readers import ReaderPool
from griphub.store.errors import StoreError
from griphub.topics.pubsub_table import PubsubTable
from gripproxy.process.log import log

__all__ = ["COUNTED_MAX", "BacklogCounts"]

PART: Final = 100
"""Subscriptions that are counted by one call."""

COUNTED_MAX: Final = 1_000_000
"""Greatest number of events that one call counts: some hundredths of a second of a reader."""

INTERVAL: Final = 2.0
"""Seconds between two rounds."""

SHARE: Final = 9.0
"""Pause behind a call, in times that it took: counting has a tenth of one reader at most."""


class BacklogCounts:
    """Rounds of counting.

    Args:
        table: the subscriptions.
        figures: where the counts belong.
        readers: of the store.
        newest: returns the id of the newest event of the store.
    """

    def __init__(
        self, table: PubsubTable, figures: PubsubFigures, readers: ReaderPool, newest: Callable[[], int]
    ) -> None:
        self._table = table
        self._figures = figures
        self._readers = readers
        self._newest = newest

    async def run(self) -> None:
        """Count without end."""
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                await self.round()
            except StoreError as error:
                log.warning("backlogs not counted: reason=%s", error)

    async def round(self) -> None:
        """Count for each subscription once.

        Raises:
            StoreError: the store cannot be read now.
        """
        numbers = [*self._figures]
        while numbers:
            part, numbers = numbers[:PART], numbers[PART:]
            places, some = [], []
            for number in part:
                figures, subscription = self._figures.of(number), self._table.numbered(number)
                if figures is None or subscription is None:
                    continue
                after = max(figures.read, subscription.position)
                if after >= self._newest() or not subscription.topic:
                    figures.unread = 0
                else:
                    some.append(number)
                    places.append((subscription.topic, after))
            if some:
                began = time.monotonic()
                counts = await self._readers.counts_after(places, COUNTED_MAX)
                self._figures.counted(some, counts)
                if None in counts[1:]:
                    # The others have their turn; the first one is always counted, if only in part.
                    numbers = [each for each, count in zip(some, counts, strict=True) if count is None] + numbers
                await asyncio.sleep(SHARE * (time.monotonic() - began))
