"""Load on both kinds of caches: writers, readers and moves, then quiet."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

from journal import Journal
from judge import Shown, StoreLog
from pubsub_node import PubsubNode, channel, one
from sharder import Sharder
from watch_node import WatchNode

from griphub import CachedValue, KeyRange, NewEvent, NotKnown, Publisher, ReceivedEvent, Selection, Version, View
from griphub.client.connection import HubConnection
from griphub.client.history import read_history

TOPIC = "items"
KEYS = [f"item-{number:03}" for number in range(500)]
RANGES = [KeyRange(f"item-{low:03}", f"item-{low + 10:03}") for low in range(0, 500, 10)]
ALL = KeyRange(RANGES[0].low, RANGES[-1].high)
SERVERS = [f"cache-{number}" for number in range(1, 5)]

WRITERS, WRITER_PAUSE = 4, 0.03  # seconds between two writes of one
READERS, READER_PAUSE = 4, 0.01  # seconds between two reads of one key by one
MOVE_PAUSE = 0.2  # seconds between two moves
TOGETHER_PAUSE = 0.1  # seconds between two reads of all keys together
REPORT_PAUSE = 2.0  # seconds between two lines of progress
QUIET = 3.0  # seconds after the last message until the caches are compared with the store
PATIENCE = 60.0  # seconds until all that was sent has to have arrived

ENOUGH_WRITES, ENOUGH_MOVES, ENOUGH_TOGETHER = 300, 30, 30  # a run is not shorter, however slow the machine is


class Load:
    """The store, the servers, and all that is done with them.

    Args:
        hub: its URL.
        newest: whether watching servers are read at the newest version of each, to see that one of all is needed.
    """

    def __init__(self, hub: str, newest: bool = False) -> None:
        self.journal = Journal()
        self.pubsub_nodes = {name: PubsubNode(name, hub, TOPIC, self.journal) for name in SERVERS}
        self.watch_nodes = {name: WatchNode(hub, TOPIC) for name in SERVERS}
        self.sharder = Sharder(RANGES, (self.pubsub_nodes, self.watch_nodes), self.journal)
        self.pubsub, self.watch = Shown(), Shown()
        self.writes = 0
        self._hub = hub
        self._newest = newest
        self._channels = {name: Publisher(hub, channel(name)) for name in SERVERS}
        self._values = itertools.count(1)
        self._ending = False

    async def write(self) -> None:
        """Change values: first in the store, then in the cache, so that an old value is not read again."""
        async with Publisher(self._hub, TOPIC) as store:
            while not self._ending:
                key, value = random.choice(KEYS), next(self._values)
                version = Version.of((await store.publish(value, key=key)).version_cursor).number
                owner = self.sharder.known_to_writers[self.sharder.range_of(key)]
                text = f"a writer stores {key} = {value} as version {version}, and invalidates it at {owner}"
                self.journal.note(one(key), text)
                await self._channels[owner].publish(key)
                self.writes += 1
                await asyncio.sleep(WRITER_PAUSE)

    async def move(self) -> None:
        """Move ranges."""
        while True:
            await asyncio.sleep(MOVE_PAUSE)
            keys = random.choice(RANGES)
            self.sharder.move(keys, random.choice([name for name in SERVERS if name != self.sharder.owners[keys]]))

    async def read(self) -> None:
        """Read keys, one at a time, where they are."""
        while True:
            key = random.choice(KEYS)
            owner = self.sharder.owners[self.sharder.range_of(key)]
            self.watch.answer(self.watch_nodes[owner].get(key))
            self.pubsub.answer(await self.pubsub_nodes[owner].get(key))
            await asyncio.sleep(READER_PAUSE)

    async def read_together(self) -> None:
        """Read all keys of all servers at one moment."""
        while True:
            await asyncio.sleep(TOGETHER_PAUSE)
            self.pubsub.show(self._cached())
            found = self._views()
            views = [view for view in found if isinstance(view, View)]
            if len(views) < len(found):
                self.watch.show(None)
            else:
                self.watch.show(plain(views), min(view.version.number for view in views))

    def _cached(self) -> dict[str, int]:
        return {key: value for node in self.pubsub_nodes.values() for key, value in node.values.items()}

    def _views(self) -> Sequence[View[CachedValue] | NotKnown]:
        first, *others = caches = [node.cache for node in self.watch_nodes.values()]
        if self._newest:
            return [cache.read([keys for keys, _ in cache.ranges]) for cache in caches]
        return [first.read([ALL], others)]

    @property
    def enough(self) -> bool:
        """True if enough has happened for a verdict."""
        together = min(len(self.pubsub.together), len(self.watch.together))
        return self.writes >= ENOUGH_WRITES and self.sharder.moves >= ENOUGH_MOVES and together >= ENOUGH_TOGETHER

    async def run(self, seconds: float) -> None:
        """Do all of that for some ``seconds``, and until enough has happened."""
        end = self.journal.now + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self.write())
            tasks = [group.create_task(each()) for each in (*[self.read] * READERS, self.move, self.read_together)]
            while self.journal.now < end or not self.enough:
                await asyncio.sleep(REPORT_PAUSE)
                print(f"{self.journal.now:6.0f} s  {self.writes:6,} writes  {self.sharder.moves:4} moves")
            self._ending = True  # not cancelled: each write is followed by its invalidation
            for task in tasks:
                task.cancel()

    async def settle(self) -> StoreLog:
        """Wait until all messages have arrived and more; then read the caches.

        Returns:
            The log of the store.
        """
        async with asyncio.timeout(PATIENCE):
            for name, publisher in self._channels.items():
                await publisher.publish(None)  # behind all invalidations
                await self.pubsub_nodes[name].quiet.wait()
        print("\nThe writers have stopped, and all invalidations have arrived. Now it is quiet.\n")
        await asyncio.sleep(QUIET)
        self.pubsub.quiet.update(self._cached())
        async with HubConnection(self._hub) as connection, asyncio.timeout(PATIENCE):
            history = read_history(connection, TOPIC, Selection(after="0"))
            events = [event async for event in history if isinstance(event, ReceivedEvent)]
            first, *others = (node.cache for node in self.watch_nodes.values())
            view = await first.wait([ALL], others, at_least=events[-1].version_cursor)
        self.watch.quiet.update(plain([view]))
        return StoreLog((Version.of(event.version_cursor).number, event.key or "", event.data) for event in events)

    async def close(self) -> None:
        """End all servers."""
        for name in SERVERS:
            await self.pubsub_nodes[name].close()
            await self.watch_nodes[name].close()
            await self._channels[name].close()


async def prepare(hub: str) -> None:
    """Make the topics of a ``hub`` anew, and the first value of each key."""
    async with HubConnection(hub) as connection:
        for topic in (TOPIC, *map(channel, SERVERS)):
            await connection.request("DELETE", ("topics", topic))
            await connection.request("PUT", ("topics", topic), body=b'{"progress": 1}')
    async with Publisher(hub, TOPIC) as store:
        await store.publish_many(NewEvent(0, key) for key in KEYS)


def plain(views: Sequence[View[CachedValue]]) -> dict[str, int]:
    """Return the values of views."""
    return {key: value.data for view in views for key, value in view.items()}
