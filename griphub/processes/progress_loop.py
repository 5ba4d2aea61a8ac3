"""Progress loop: gives progress to the watchers of all topics, a few ranges in each turn, and has stamps reserved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from griphub.processes.writer import WriterProcess
from griphub.store.errors import StoreError
from griphub.topics.channel_index import HeldRange
from griphub.topics.fanout import FanOut
from griphub.topics.progress import ProgressSchedule, ProgressStamps
from griphub.topics.topic_table import TopicTable
from gripproxy.process.log import log

__all__ = ["INTERVAL", "SLICE", "WAITING_MAX", "ProgressLoop"]

INTERVAL: Final = 0.05
"""Seconds between two looks, so that progress is spread over each second; without watchers there is none."""

SLICE: Final = 200
"""Ranges of one turn of the loop, which takes some milliseconds. Further ones that are due have the next turn."""

WAITING_MAX: Final = 2_000_000
"""Bytes that wait for the handler, beyond which progress waits in the schedule: events have the queue."""

RESERVE_INTERVAL: Final = 1.0
"""Seconds between two looks at the stamps that are reserved."""


class ProgressLoop:
    """Carries out the schedule of progress.

    Args:
        writer: keeps a stamp above all that were given.
        topics: all topics, for their intervals.
        fanout: makes the items.
        waiting: returns the bytes that wait for the handler; None while it is away.
        wall: seconds since 1970.
    """

    def __init__(
        self,
        writer: WriterProcess,
        topics: TopicTable,
        fanout: FanOut,
        waiting: Callable[[], int | None],
        wall: Callable[[], float],
    ) -> None:
        self._writer = writer
        self._topics = topics
        self._fanout = fanout
        self._waiting = waiting
        self._wall = wall
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._reserving: asyncio.Task[None] | None = None
        self._begun = False
        """True once the stamp that an earlier process has kept is known."""
        self._look = 0.0
        """Time in seconds at which reserved stamps are looked at again."""
        self.schedule: Final = ProgressSchedule()
        """Ranges with watchers."""
        self.stamps: Final = ProgressStamps()
        """Stamps of progress."""

    async def open(self, newest_time: int) -> None:
        """Reserve the first stamps.

        Args:
            newest_time: of the newest event, in microseconds since 1970: stamps are above it, if no others are known.
        """
        self.stamps.begin(newest_time)
        until = self.stamps.wanted(self._now())
        assert until is not None
        await self._reserve(until)

    @property
    def rests(self) -> bool:
        """True if there is nothing to do, and no timer."""
        return self._timer is None

    def close(self) -> None:
        """End all work."""
        if self._timer is not None:
            self._timer.cancel()
        if self._reserving is not None:
            self._reserving.cancel()

    def watch(self, held: HeldRange) -> None:
        """Begin to give progress to the watchers of a range; one that gets it already stays as it is.

        Args:
            held: a range of the index.
        """
        if held.watched:
            return
        self.schedule.add(held, self._interval(held), self._loop.time())
        if self._timer is None:
            self._timer = self._loop.call_later(INTERVAL, self._turn)

    def mark(self, version: int) -> str:
        """Return the cursor of progress that is given in an answer.

        Args:
            version: of the progress.
        """
        return self._fanout.mark(version, self.stamps.next(self._now()))

    def _now(self) -> int:
        return int(self._wall() * 1_000_000)

    def _interval(self, held: HeldRange) -> float:
        topic = self._topics.numbered(held.number)
        return 1.0 if topic is None else topic.settings.progress

    def _turn(self) -> None:
        now = self._loop.time()
        if now >= self._look:
            self._look = now + RESERVE_INTERVAL
            self._reserve_more()
        more = self._work(now)
        if more:
            self._timer = self._loop.call_soon(self._turn)
        else:
            self._timer = self._loop.call_later(INTERVAL, self._turn) if len(self.schedule) else None

    def _work(self, now: float) -> bool:
        """Give progress to the ranges of a turn; return whether more are due."""
        waiting = self._waiting()
        if waiting is None or waiting > WAITING_MAX:
            return False
        for _ in range(SLICE):
            taken = self.schedule.take(now)
            if taken is None:
                return False
            held, due = taken
            watchers = [channel for channel in held.channels if channel.watches]
            if not watchers:
                self.schedule.end(held)
                continue
            due = due and any(channel.subscribed for channel in watchers)
            if due and not self._fanout.progress(held, self.stamps.next(self._now())):
                self.schedule.soon(held, now)
                continue
            self.schedule.again(held, self._interval(held), now)
        return True

    def _reserve_more(self) -> None:
        until = self.stamps.wanted(self._now())
        if until is not None and (self._reserving is None or self._reserving.done()):
            self._reserving = self._loop.create_task(self._reserve(until), name="reserve stamps")

    async def _reserve(self, until: int) -> None:
        try:
            kept = await self._writer.reserve_stamps(until)
        except StoreError as error:
            # Watchers need progress also when the disk is full. Only a clock that goes back until the next start could
            # bring a stamp again.
            log.warning("stamps of progress are not reserved", reason=error)
            self.stamps.failed()
        else:
            if not self._begun:
                self.stamps.begin(kept)
                self._begun = True
            self.stamps.reserved(until)
