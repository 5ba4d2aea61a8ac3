"""Retention loop: raises the floors of topics, and deletes events below them, a slice at a time.

Before a floor passes the tail of a channel, the tail is moved up to the newest event, so that a client that has
everything is never found below the floor. No floor passes an event that is still to be given to followers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from griphub.processes.readers import ReaderPool
from griphub.processes.writer import WriterProcess
from griphub.store.errors import StoreError
from griphub.store.topic import Topic
from griphub.topics.channel_index import ChannelIndex
from griphub.topics.fanout import FanOut
from griphub.topics.leases import SnapshotLeases
from griphub.topics.topic_table import TopicTable
from gripproxy.process.log import log

__all__ = ["INTERVAL", "RetentionLoop"]

INTERVAL: Final = 1.0
"""Seconds between two rounds over all topics."""

ROUND_MAX: Final = 500
"""Topics of a round: with very many, a topic is looked at every few rounds."""


STEPS: Final = 20
"""Steps of the floor of a topic in one round; each finds a bounded number of events."""


class RetentionLoop:
    """Carries out the retention of all topics.

    Args:
        writer: writing process of the store.
        readers: reading processes.
        topics: all topics.
        index: channels with followers.
        fanout: moves tails.
        leases: versions that are being read.
        now: monotonic time in seconds.
    """

    def __init__(
        self,
        writer: WriterProcess,
        readers: ReaderPool,
        topics: TopicTable,
        index: ChannelIndex,
        fanout: FanOut,
        leases: SnapshotLeases,
        now: Callable[[], float],
    ) -> None:
        self._writer = writer
        self._readers = readers
        self._topics = topics
        self._index = index
        self._fanout = fanout
        self._leases = leases
        self._now = now
        self._next = 0
        """Place in the list of topics at which the next round begins."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                await self.round()
            except StoreError as error:
                log.warning("retention waits", reason=error)

    async def round(self) -> None:
        """Carry out the retention of the next topics, and of deleted ones.

        Raises:
            StoreError: the store cannot do it now.
        """
        bounded = [topic for topic in self._topics if _bounded(topic)]
        if self._next >= len(bounded):
            self._next = 0
        part = bounded[self._next : self._next + ROUND_MAX]
        self._next += ROUND_MAX
        for topic in part:
            await self._retain(topic)
        for number in await self._writer.gone_topics():
            self._leases.forget(number)
            await self._repeat(partial(self._writer.delete_slice, number))
        await self._repeat(self._writer.forget_names)

    async def _retain(self, topic: Topic) -> None:
        for _ in range(STEPS):
            raised = await self._step(topic)
            if raised is None:
                return
            topic = raised

    async def _step(self, topic: Topic) -> Topic | None:
        """Raise the floor of a topic as far as one look finds it, and delete; None if it is where it belongs."""
        wanted = min(await self._writer.wanted_floor(topic.number), self._fanout.newest)
        if self._leases.leased(topic.number, self._now()):
            known = await self._readers.topic(topic.name)
            size = 0 if known is None else known.bytes
            wanted = self._leases.floor(topic.number, self._now(), wanted, topic.floor, size)
        raised: Topic | None = None
        if wanted > topic.floor:
            for held in self._index.of_topic(topic.number):
                if held.tail < wanted:
                    self._fanout.move(held)
            raised = await self._writer.raise_floor(topic.number, wanted)
            if raised is None or self._topics.numbered(topic.number) is None:
                return None
            self._topics.set(raised)
        await self._repeat(partial(self._writer.delete_slice, topic.number))
        return raised

    async def _repeat(self, delete: Callable[[], Awaitable[bool]]) -> None:
        """Delete slice after slice; publications are stored between two of them."""
        while await delete():
            pass


def _bounded(topic: Topic) -> bool:
    retention = topic.settings.retention
    return retention.age is not None or retention.events is not None or retention.bytes is not None
