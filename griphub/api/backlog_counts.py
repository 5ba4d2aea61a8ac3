"""Counts of unread events of subscriptions of the push API, made a slice at a time for their figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from griphub.api.pubsub_figures import PubsubFigures
from griphub.processes.readers import ReaderPool
from griphub.store.errors import StoreError
from griphub.store.pubsub_subscription import PubsubSubscription
from griphub.topics.pubsub_table import PubsubTable
from gripproxy.process.log import log

__all__ = ["COUNTED_MAX", "SLICE", "BacklogCounts"]

SLICE: Final = 100_000
"""Greatest number of events that one call counts: some milliseconds of a reader."""

COUNTED_MAX: Final = 1_000_000
"""Greatest number of events that are counted for a subscription."""

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
                log.warning("backlogs not counted", reason=error)

    async def round(self) -> None:
        """Count for each subscription once.

        Raises:
            StoreError: the store cannot be read now.
        """
        for number in [*self._figures]:
            figures, subscription = self._figures.of(number), self._table.numbered(number)
            if figures is not None and subscription is not None:
                figures.unread = await self._count(subscription, max(figures.read, subscription.position))

    async def _count(self, subscription: PubsubSubscription, after: int) -> int:
        total = 0
        while subscription.topic and after < self._newest() and total < COUNTED_MAX:
            began = time.monotonic()
            count, after = await self._readers.count_after(subscription.topic, after, SLICE)
            total += count
            await asyncio.sleep(SHARE * (time.monotonic() - began))
            if count < SLICE:
                break
        return total
