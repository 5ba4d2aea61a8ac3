"""Sharder of a run with a hub: caches whose ranges it moves about, and reads over all of them, at one version each."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

from griphub import KeyRange, NotKnown, SnapshotCache, View, WatchReportKind
from griphub.client.cached_value import CachedValue
from griphub.client.key_range import WHOLE as ALL_KEYS
from griphub.client.region import Region
from griphub.client.snapshot_cache_state import FeedPhase
from tests.faults.hub_crowd import KEYS, Topic
from tests.support.hub_records import WHOLE

__all__ = ["Sharder"]

CACHES: Final = 3

HISTORY: Final = 15.0
"""Seconds for which caches keep earlier versions."""

INTERVAL: Final = 3.0
"""Seconds between progress that caches expect: more than the topics have, since the machine may be busy."""

PAUSE: Final = 1.5
"""Greatest number of seconds between two steps."""

READS: Final = 4
"""Greatest number of reads between two moves."""

VERSIONS: Final = 50
"""Versions that were read and may be asked for again."""


class Sharder:
    """Moves the ranges of a topic between caches as an auto-sharder does, and records what they give together.

    A new owner may get the knowledge of the old one, of that moment or of an earlier one, or none; and it may be told
    before or after the old owner is.

    Args:
        url: of the hub.
        topic: the topic.
        chance: decides bounds, owners and reads.
    """

    def __init__(self, url: str, topic: Topic, chance: random.Random) -> None:
        self.topic = topic
        self.name = f"caches of {topic.name}"
        self._url = url
        self._chance = chance
        self._caches: list[SnapshotCache] = []
        self._versions: deque[str] = deque(maxlen=VERSIONS)
        self.moves = 0
        """Assignments of ranges to all caches."""
        self.reads = 0
        """Reads that gave values."""
        self.unknown = 0
        """Reads whose values were not known."""
        self.reports: Counter[WatchReportKind] = Counter()
        """Reports of the watchers of the caches, by kind."""
        self.ended = 0
        """Ranges of which the hub refused the watch, as while there is no topic."""
        self.version = -1
        """Newest version at which all values were read."""
        self.moving = True
        """Whether ranges are moved; else all values are read again and again."""
        topic.recorder.reader(self.name, WHOLE)

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(CACHES):
                cache = SnapshotCache(
                    self._url,
                    self.topic.name,
                    history=HISTORY,
                    interval=INTERVAL,
                    on_report=lambda _, report: self.reports.update([report.kind]),
                    on_ended=self._has_ended,
                )
                self._caches.append(await stack.enter_async_context(cache))
            yield

    def _has_ended(self, range: KeyRange, reason: str) -> None:
        self.ended += 1

    async def run(self) -> None:
        """Move ranges and read until cancelled."""
        async with self._open():
            while True:
                # At the end ranges that were refused are assigned once more.
                await self._move()
                while not self.moving:
                    await asyncio.sleep(PAUSE / READS)
                    self._look_at_all()
                    if any(phase is FeedPhase.ENDED for cache in self._caches for _, phase in cache.ranges):
                        await self._move()
                for _ in range(self._chance.randrange(READS)):
                    self._look()
                    await asyncio.sleep(self._chance.random() * PAUSE / READS)
                self._look_at_all()

    # --- ranges

    async def _move(self) -> None:
        """Assign all ranges anew."""
        chance = self._chance
        bounds = sorted(chance.sample(KEYS, chance.randrange(1, 5)))
        ranges = [KeyRange.of(low, high) for low, high in zip([None, *bounds], [*bounds, None], strict=True)]
        owners = [chance.randrange(CACHES) for _ in ranges]
        kind = chance.randrange(4)
        known = self._known() if kind else []
        if kind == 1:
            # The knowledge is under way for a while, and the old owners go on.
            await asyncio.sleep(chance.random() * PAUSE)
        for cache in chance.sample(range(CACHES), CACHES):
            wanted = [each for each, owner in zip(ranges, owners, strict=True) if owner == cache]
            self._caches[cache].assign(wanted, known if kind < 3 else self._known())
            self._look()
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        self.moves += 1

    def _known(self) -> list[Region[CachedValue]]:
        return [region for cache in self._caches for region in cache.regions()]

    # --- reads

    def _look(self) -> None:
        """Read a few ranges, at the newest version that is known, and sometimes at an earlier one."""
        chance = self._chance
        ranges = [_range(chance) for _ in range(chance.randrange(1, 4))]
        self._read(ranges)
        if self._versions and chance.random() < 0.5:
            self._read(ranges, chance.choice(self._versions))

    def _look_at_all(self) -> None:
        """Read all values."""
        view = self._read([ALL_KEYS])
        if view is not None:
            self.version = view.version.number

    def _read(self, ranges: Sequence[KeyRange], at: str | None = None) -> View[CachedValue] | None:
        first, *others = self._chance.sample(self._caches, CACHES)
        view = first.read(ranges, others, at=at)
        if isinstance(view, NotKnown):
            self.unknown += 1
            return None
        self.reads += 1
        self._versions.append(str(view.version))
        self.topic.recorder.viewed(self.name, view)
        return view


def _range(chance: random.Random) -> KeyRange:
    return KeyRange(*sorted(chance.sample([*KEYS, "z"], 2)))
