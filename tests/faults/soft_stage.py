"""Stage of short runs with a soft topic: the hub's real processes, a double of the handler, a source, held watchers."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import pytest

from griphub.topics.ranges import key_range
from griphub.windows.span import span_of
from griphub.windows.window import Window
from tests.faults.hub_stage import TOPIC, HeldReader, Stage
from tests.support import soft_records
from tests.support.hub_api import Response
from tests.support.hub_recorder import Recorder
from tests.support.hub_records import Keys
from tests.support.soft_api import append, ingest
from tests.support.soft_records import Began, Commit, Got, Progressed

__all__ = ["EVERYTHING", "SoftReader", "SoftStage"]

EVERYTHING: Final = Keys()
"""All keys."""

WatchForm = Literal["watch-sse", "watch-lines"]

Lines = Sequence[dict[str, Any]]


class SoftRecorder(Recorder):
    """Writes the history of a soft topic."""

    def __init__(self) -> None:
        super().__init__(TOPIC)
        self.soft = soft_records.History()
        self.cursors: dict[str, str] = {}
        """Last cursor of each watcher; none after a resync."""

    def reader(self, name: str, keys: Keys, *, watches: bool = False, polls: bool = False) -> None:
        """Record a watcher of a range."""
        self.soft.watchers[name] = keys

    def take(self, reader: str, objects: Iterable[Mapping[str, Any]]) -> None:
        """Record what a watcher received."""
        for value in objects:
            floor = value.get("floor")
            if value["type"] == "resync":
                self.cursors.pop(reader, None)
                self.soft.steps.append(soft_records.Told(reader, None if floor is None else int(floor)))
                continue
            cursor, version = value["cursor"], int(value["version"])
            epoch = cursor.split(".")[0]
            self.cursors[reader] = cursor
            if value["type"] == "event":
                self.soft.steps.append(Got(reader, epoch, version, value["key"], value.get("data")))
            else:
                self.soft.steps.append(Progressed(reader, epoch, version, cursor))

    def opened(self, reader: str, after: str, right: str = "valid") -> None:
        """Record nothing: the snapshot before a request is recorded."""


class SoftReader(HeldReader):
    """Watcher that begins with a snapshot of the source, and after a resync waits until it is told to begin again.

    Args:
        stage: of the run.
        name: in the history.
        form: of its requests.
        keys: range that it watches.
    """

    def __init__(self, stage: SoftStage, name: str, form: WatchForm, keys: Keys) -> None:
        self._soft = stage
        self._keys = keys
        self._again = asyncio.Event()
        self._place = ""
        super().__init__(stage, name, form, keys)

    async def leave(self) -> None:
        """End its connection; ``come_back`` goes on at its last cursor."""
        await self.close()
        self._place = self._soft.recorder.cursors[self.name]
        self.idle = True

    def come_back(self) -> None:
        """Connect again."""
        self.idle = False
        self._task = asyncio.ensure_future(self._run())

    def begin_again(self) -> None:
        """Read a snapshot, and begin again, if a resync has ended the watch."""
        self._again.set()

    async def _run(self) -> None:
        while True:
            place, self._place = self._place or self._soft.snapshot_of(self.name, self._keys), ""
            await self._request(self._target.format(after=place))
            self._again.clear()
            self.ended, self.idle = False, True
            await self._again.wait()
            self.idle = False


class SoftStage(Stage):
    """One run.

    Args:
        directory: of the store and the sockets.
        patch: of the test; its changes are undone at the end.
        settings: further values of ``[hub]``.

    Attributes:
        soft: the history.
        replica: version at which snapshots are read, of a replica that is behind; None for the newest.
    """

    recorder: SoftRecorder

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch, settings: Mapping[str, str]) -> None:
        super().__init__(directory, patch, settings, {"store": "none", "progress": 3600})
        self.recorder = SoftRecorder()
        self.soft = self.recorder.soft
        self.replica: int | None = None
        self._soft_readers: dict[str, SoftReader] = {}

    @property
    def window(self) -> Window:
        """Window of the topic."""
        context = self.api.hub._context
        assert context is not None
        topic = context.topics.named(TOPIC)
        assert topic is not None
        return context.soft.window(topic)

    # --- the source

    def commit(self, version: int, *keys: str, truncated: Keys | None = None) -> list[dict[str, Any]]:
        """Commit a transaction, and return the lines that give it.

        Args:
            version: its version.
            keys: that it puts; with a minus before them that it deletes.
            truncated: range that is removed without an event.
        """
        number = self.soft.source.number
        changes = {key.lstrip("-"): None if key[0] == "-" else f"{number}.{version}" for key in keys}
        self.soft.source.add(Commit(version, changes, truncated))
        return [
            append(key, version, value)
            if value is not None
            else {"append": {"key": key, "version": str(version), "op": "delete"}}
            for key, value in changes.items()
        ]

    def snapshot_of(self, name: str, keys: Keys) -> str:
        """Give a watcher a snapshot, and return the place to watch from.

        Args:
            name: of the watcher.
            keys: its range.
        """
        source = self.soft.source
        version = source.newest if self.replica is None else self.replica
        self.soft.steps.append(Began(name, source.number, version, source.state(version, keys)))
        return str(version)

    async def give(self, *lines: dict[str, Any], epoch: str = "") -> Response:
        """Send lines as an ingester, and return the answer.

        Args:
            lines: the lines.
            epoch: that the request names; empty for none.
        """
        response = await ingest(self.api, TOPIC, *lines, epoch=epoch)
        if response.status == 200:
            self.soft.answered(response.json["epoch"], self.soft.source.number)
        return response

    # --- watchers

    def watch(self, name: str, form: WatchForm = "watch-lines", keys: Keys = EVERYTHING) -> SoftReader:
        """Begin a watcher.

        Args:
            name: of the watcher.
            form: of its requests.
            keys: range that it watches.
        """
        self.recorder.reader(name, keys)
        reader = SoftReader(self, name, form, keys)
        self.readers[name] = self._soft_readers[name] = reader
        return reader

    async def again(self) -> None:
        """Have the watchers that a resync has ended begin again, and wait until all are held."""
        await self.settle()
        for reader in self._soft_readers.values():
            reader.begin_again()
        await self.settle()

    def progress(self) -> None:
        """Give progress to the watchers of all ranges now."""
        context = self.api.hub._context
        assert context is not None
        topic = context.topics.named(TOPIC)
        assert topic is not None
        for keys in {*self.soft.watchers.values()}:
            if context.index.range(topic.number, key_range(keys.low, keys.high)) is not None:
                self.window.beat(span_of(keys.low, keys.high))
        context.soft.wake(topic)

    def _waiting(self) -> list[str]:
        """Return the names of the parts that are not at rest."""
        return [*super()._waiting(), *["window"] * self.window.busy]

    async def end(self) -> None:
        """Settle, with progress at the end; all watchers had their time."""
        await self.again()
        self.progress()
        await self.settle()
        self.soft.complete = set(self.soft.watchers)
