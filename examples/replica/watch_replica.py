"""A replica that parallel watchers keep. It shows versions, and of each of them all or nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from griphub import Change, KeyRange, Progress, Snapshot, Watcher


@dataclass
class Part:
    """Table of one worker.

    Attributes:
        rows: values of each key with their versions, the newest last; None for a key that was deleted.
        bottom: version of the snapshot that the part began with; those before it are not known.
        top: version up to which all changes are there.
    """

    rows: dict[str, list[tuple[int, list[str] | None]]] = field(default_factory=dict)
    bottom: int = 0
    top: int = -1

    def begin(self, version: int, values: dict[str, list[str]]) -> None:
        """Begin with the ``values`` of a snapshot at a ``version``."""
        self.rows = {key: [(version, value)] for key, value in values.items()}
        self.bottom = self.top = version

    def put(self, key: str, version: int, value: list[str] | None, shown: int) -> None:
        """Add a value, and forget those that readers do not see any more.

        Args:
            key: its key.
            version: its version, above the top.
            value: the value; None for a deletion.
            shown: version that readers see.
        """
        rows = self.rows.setdefault(key, [])
        rows.append((version, value))
        while len(rows) > 1 and rows[1][0] <= shown:
            del rows[0]

    def reach(self, version: int) -> None:
        """Note that all changes up to a ``version`` are there."""
        self.top = version

    def at(self, version: int) -> dict[str, list[str]]:
        """Return the values at a ``version``, from the bottom to the top."""
        newest = {key: value for key, rows in self.rows.items() for at, value in rows if at <= version}
        return {key: value for key, value in newest.items() if value is not None}


class WatchReplica:
    """Table of all keys. Each worker watches a range, at its own pace.

    Workers write in parallel, and wait for no other. Readers see the version that all workers have reached: raising
    that number is the only thing that has to happen in one place.

    Args:
        hub: its URL.
        topic: the store.
        ranges: of the workers.
        newest: whether readers see the newest values of each worker instead, to see that one version of all is needed.
    """

    def __init__(self, hub: str, topic: str, ranges: list[KeyRange], newest: bool = False) -> None:
        self._hub = hub
        self._topic = topic
        self._newest = newest
        self._parts = {keys: Part() for keys in ranges}

    @property
    def version(self) -> int | None:
        """Newest version that is known of all parts; None if there is none, as at the start."""
        version = min(part.top for part in self._parts.values())
        return version if version >= max(part.bottom for part in self._parts.values()) else None

    def read(self) -> tuple[int, dict[str, list[str]]] | None:
        """Return version and table; None if it is not known."""
        version = self.version
        if version is None:
            return None
        tables = [part.at(part.top if self._newest else version) for part in self._parts.values()]
        return version, {key: value for table in tables for key, value in table.items()}

    async def work(self, keys: KeyRange, pace: float) -> None:
        """Apply the changes of a range.

        Args:
            keys: the range.
            pace: seconds that an event takes.
        """
        part = self._parts[keys]
        async with Watcher(self._hub, self._topic, keys.low, keys.high, interval=1) as watcher:
            async for message in watcher:
                match message:
                    case Snapshot(version=version, events=events):
                        part.begin(version.number, {event.key or "": event.data for event in events})
                    case Change(version=version, events=events):
                        for event in events:
                            await asyncio.sleep(pace)
                            value = None if event.op == "delete" else event.data
                            part.put(event.key or "", version.number, value, self.version or 0)
                        part.reach(version.number)
                    case Progress(version=version, whole=True):
                        part.reach(version.number)
