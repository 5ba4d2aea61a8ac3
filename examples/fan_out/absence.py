"""Absence: a consumer is away for longer than events are retained. Two others stay, and two systems are compared."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from itertools import cycle

from ring import Ring
from shelf import Shelf, table_of
from verdict import AbsenceVerdict, judged

from griphub import Change, Resync, Snapshot, Version, Watcher

ARTICLES = [f"article-{number:02}" for number in range(1, 31)]

SELDOM = ARTICLES[:6]
"""Articles that change once, while the consumer is away: the last two of them are withdrawn."""

RETAINED = 150
"""Events that stream and topic retain: days of events in production."""

PATIENCE = 60.0
"""Seconds for the hub to trim, and for all consumers to have all events."""

RETENTION = {"retention": {"events": RETAINED, "compact": True}, "progress": 1}


class RingConsumer:
    """Table kept by reading a stream on from the last id, which is all that such a consumer keeps.

    Args:
        ring: the stream.
    """

    def __init__(self, ring: Ring) -> None:
        self.table: dict[str, int] = {}
        self.last = 0
        self._ring = ring

    async def run(self) -> None:
        """Keep the table until cancelled."""
        while True:
            for entry in await self._ring.read(self.last):
                if entry.number is None:
                    self.table.pop(entry.key, None)
                else:
                    self.table[entry.key] = entry.number
                self.last = entry.id


class WatchConsumer:
    """Table kept by watching a topic on from the last cursor.

    Args:
        shelf: its topic.
        note: prints a line.
        snapshots: whether a resync is answered by a snapshot. Without it the watch goes on at the floor, and the table
            is as wrong as that of the stream: try it.
    """

    def __init__(self, shelf: Shelf, note: Callable[[str], None], snapshots: bool = True) -> None:
        self.table: dict[str, int] = {}
        self.cursor: str | None = None
        self.resyncs = 0
        self._shelf = shelf
        self._note = note
        self._on_resync = None if snapshots else self._go_on

    @property
    def last(self) -> int:
        """Number of the version that the table has."""
        return Version.of(self.cursor).number if self.cursor else 0

    async def run(self) -> None:
        """Keep the table until cancelled."""
        shelf = self._shelf
        async with Watcher(shelf.url, shelf.topic, cursor=self.cursor, on_resync=self._on_resync) as watcher:
            async for message in watcher:
                match message:
                    case Snapshot():
                        self._replace(message)
                    case Change(events=events):
                        for event in events:
                            if event.op == "delete":
                                self.table.pop(str(event.key), None)
                            else:
                                self.table[str(event.key)] = event.data["number"]
                self.cursor = watcher.cursor

    def _replace(self, snapshot: Snapshot) -> None:
        """Take a snapshot in place of the table. The difference is all that was missed."""
        old, self.table = self.table, table_of(list(snapshot.events))
        if self.cursor is not None:
            self.resyncs += 1
            changed = [key for key in self.table if self.table[key] != old.get(key)]
            gone = sorted(old.keys() - self.table.keys())
            self._note(f"watch: resync, events behind {self.last} are not retained; snapshot {snapshot.version.number}")
            self._note(f"watch: meanwhile {len(changed)} articles were changed, and withdrawn: {', '.join(gone)}")

    async def _go_on(self, resync: Resync) -> str | None:
        self.resyncs += 1
        return resync.floor_cursor


@contextlib.asynccontextmanager
async def present(*consumers: RingConsumer | WatchConsumer) -> AsyncIterator[None]:
    """Run consumers for as long as the context lasts."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(consumer.run()) for consumer in consumers]
        yield
        for task in tasks:
            task.cancel()


class Absence:
    """The act.

    Args:
        url: of the hub.
        seconds: time of the act, in seconds, without waiting for the hub to trim.
        note: prints a line.
        snapshots: as of ``WatchConsumer``.
    """

    def __init__(self, url: str, seconds: float, note: Callable[[str], None], snapshots: bool = True) -> None:
        self._ring = Ring(RETAINED)
        self._shelf = Shelf(url, "stock", RETENTION, lambda _: self._ring)
        self._trade = cycle(ARTICLES[len(SELDOM) :])
        self._number = 0
        self._pause = seconds / (len(ARTICLES) + len(SELDOM) + 3 * RETAINED)
        self._note = note
        self._watching = [WatchConsumer(self._shelf, note, snapshots) for _ in range(2)]
        self._reading = [RingConsumer(self._ring) for _ in range(2)]

    async def play(self) -> tuple[AbsenceVerdict, AbsenceVerdict]:
        """Play the act.

        Returns:
            Verdicts about the stream and the watch.
        """
        reader, watcher = self._reading[0], self._watching[0]
        async with self._shelf, present(self._reading[1], self._watching[1]):
            async with present(reader, watcher):
                for article in ARTICLES:
                    await self._change(article)
                await self._all_have_it()
            self._note(f"a consumer of each goes away: it has {reader.last} events, and {len(reader.table)} articles")
            place, cursor = reader.last, watcher.last
            for article in SELDOM[:-2]:
                await self._change(article)
            for article in SELDOM[-2:]:
                await self._shelf.put(article, None)
            withdrawn = await self._shelf.stored()
            self._note(f"{', '.join(SELDOM[:-2])} change, {' and '.join(SELDOM[-2:])} are withdrawn; trade goes on")
            await self._go_on(2 * RETAINED)
            # The hub looks at its retention once a second: it may have looked when only some of this was too old.
            async with asyncio.timeout(PATIENCE):
                while await self._shelf.floor() < withdrawn:
                    await self._go_on(1)
            hole, floor = (place, self._ring.first), (cursor, await self._shelf.floor() + 1)
            self._note(f"both come back, {self._ring.last - place} events later; the stream begins at {hole[1]} now")
            async with present(reader, watcher):
                await self._go_on(RETAINED)
                await self._all_have_it()
                self._note("both have all that they were given")
                store = await self._shelf.table()
        return (
            judged(store, reader.table, self._reading[1].table, hole, 0),
            judged(store, watcher.table, self._watching[1].table, floor, watcher.resyncs),
        )

    async def _change(self, article: str) -> None:
        self._number += 1
        await self._shelf.put(article, self._number)
        await asyncio.sleep(self._pause)

    async def _go_on(self, events: int) -> None:
        for _ in range(events):
            await self._change(next(self._trade))

    async def _all_have_it(self) -> None:
        """Wait until all consumers that are there have all events."""
        last = await self._shelf.stored()
        async with asyncio.timeout(PATIENCE):
            while True:
                read = min(consumer.last for consumer in self._reading)
                watched = min(consumer.last for consumer in self._watching)
                if read >= self._ring.last and watched >= last:
                    return
                await asyncio.sleep(0.05)
