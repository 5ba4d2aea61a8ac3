"""A cache server of the usual kind: it reads through, and forgets a key when it gets the message that it has changed.

It is a careful one. Its messages are not lost on their way, since their channel is a topic of the hub too. A value that
was invalidated while it was read is not kept. A range that goes away is forgotten, and a new one is warmed up.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from journal import Journal

from griphub import Follower, KeyRange, ReceivedEvent, Selection, Version
from griphub.client.connection import HubConnection
from griphub.client.snapshot import read_snapshot


class PubsubNode:
    """Values of the ranges that the sharder has assigned to this server.

    Args:
        name: of the server.
        hub: its URL.
        topic: the store.
        journal: receives reads of the store, and messages that have missed the right server.
    """

    def __init__(self, name: str, hub: str, topic: str, journal: Journal) -> None:
        self.values: dict[str, int] = {}
        self.quiet = asyncio.Event()
        """Set by the last message of all: all invalidations were obeyed."""
        self._name = name
        self._topic = topic
        self._journal = journal
        self._ranges: list[KeyRange] = []
        self._store = HubConnection(hub)
        self._channel = Follower(hub, channel(name), Selection(after="0"))
        self._numbers = itertools.count()
        self._reads: dict[int, set[str]] = {}
        """Reads under way, and the keys that were invalidated meanwhile."""
        self._tasks: set[asyncio.Task[Any]] = {asyncio.create_task(self._listen())}

    def assign(self, ranges: Sequence[KeyRange], knowledge: None = None) -> None:
        """Have exactly these ``ranges``; there is no ``knowledge``."""
        gained = [keys for keys in ranges if keys not in self._ranges]
        self._ranges = list(ranges)
        self.values = {key: value for key, value in self.values.items() if self._owns(key)}
        self._reads.clear()  # they may be of keys that were lost, and will perhaps be regained
        for keys in gained:
            self._tasks.add(task := asyncio.create_task(self._read(keys)))
            task.add_done_callback(self._tasks.discard)

    def knowledge(self, keys: KeyRange) -> None:
        """Hand nothing over of ``keys``: values without versions are worth nothing in another place."""

    async def get(self, key: str) -> int:
        """Return the value of a ``key``, from the store if it is not here."""
        return self.values[key] if key in self.values else (await self._read(one(key)))[key]

    async def close(self) -> None:
        """End the server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._store.close()
        await self._channel.__aexit__()

    def _owns(self, key: str) -> bool:
        return any(key in keys for keys in self._ranges)

    async def _listen(self) -> None:
        async for event in self._channel:
            if isinstance(event, ReceivedEvent) and event.data is not None:
                self._invalidate(event.data)
            else:
                self.quiet.set()

    def _invalidate(self, key: str) -> None:
        if not self._owns(key):
            self._journal.note(one(key), f"{self._name} gets the invalidation of {key}, which it does not have")
        self.values.pop(key, None)
        for invalidated in self._reads.values():
            invalidated.add(key)

    async def _read(self, keys: KeyRange) -> dict[str, int]:
        """Read keys from the store, and keep the values."""
        number = next(self._numbers)
        self._reads[number] = set()
        lines = read_snapshot(self._store, self._topic, keys.low, keys.high)
        found = {line.key or "": line async for line in lines if isinstance(line, ReceivedEvent)}
        invalidated = self._reads.pop(number, None)
        if invalidated is not None:
            for key in filter(self._owns, found.keys() - invalidated):
                self.values[key] = found[key].data
                version = Version.of(found[key].version_cursor).number
                self._journal.note(one(key), f"{self._name} reads {key} = {self.values[key]}, of version {version}")
        return {key: line.data for key, line in found.items()}


def one(key: str) -> KeyRange:
    """Return the range of one ``key``."""
    return KeyRange(key, key + "\0")


def channel(name: str) -> str:
    """Return the topic of the invalidations for the server of a ``name``."""
    return f"invalidations-{name}"
