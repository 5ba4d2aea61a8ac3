"""Reconciler: a worker that compares the desired and the actual state of its range, and moves the one to the other.

There are no steps. Both states are watched, each in a table that is never quietly wrong; an action goes from the state
that it has seen, and its write counts only if that is still the state (``If-Match``).
"""

from __future__ import annotations

import asyncio
import random

from crew import Crew
from worker import Worker

from griphub import Change, KeyRange, ReceivedEvent, Snapshot, Watcher
from griphub.client.errors import RequestFailed


class Table:
    """Values of a range of keys, kept by a watcher.

    Args:
        watcher: of the range, to begin with a snapshot.
        changed: set after each change.
    """

    def __init__(self, watcher: Watcher, changed: asyncio.Event) -> None:
        self.values: dict[str, ReceivedEvent] | None = None
        self._watcher = watcher
        self._changed = changed

    async def follow(self) -> None:
        """Keep the table up to date until cancelled."""
        async with self._watcher:
            async for message in self._watcher:
                match message:
                    case Snapshot(events=events):
                        self.values = {str(event.key): event for event in events}
                    case Change(events=events) if self.values is not None:
                        for event in events:
                            if event.op == "delete":
                                self.values.pop(str(event.key), None)
                            else:
                                self.values[str(event.key)] = event
                self._changed.set()


class Reconciler(Worker):
    """Worker that watches.

    Args:
        crew: the crew.
        name: of the worker.
        desired: name of the topic with the desired state.
        conditional: whether writes have a condition. Without it a late write gets through: try it.
    """

    def __init__(self, crew: Crew, name: str, desired: str, conditional: bool = True) -> None:
        super().__init__(crew, name)
        self._desired = desired
        self._conditional = conditional

    async def work(self, range: KeyRange, step: asyncio.Lock) -> None:
        """Compare and act, until the range is lost; then the action under way is cancelled too."""
        changed = asyncio.Event()
        desired, actual = (
            Table(Watcher(self.crew.url, topic, range.low, range.high), changed)
            for topic in (self._desired, self.crew.topic)
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(desired.follow())
            group.create_task(actual.follow())
            while True:
                changed.clear()
                if machines := different(desired, actual):
                    # In an order of its own choice: here any, in practice the urgent ones first.
                    await self._act(random.choice(machines), desired, actual, step, changed)
                else:
                    await changed.wait()

    async def _act(
        self, machine: str, desired: Table, actual: Table, step: asyncio.Lock, changed: asyncio.Event
    ) -> None:
        """Install the desired release, and write it if the machine is still in the state that was seen before."""
        assert desired.values is not None
        assert actual.values is not None
        version, seen = desired.values[machine].data["version"], actual.values.get(machine)
        condition = "0" if seen is None else seen.cursor
        with self.crew.action():
            try:
                began = await self.install()
            except asyncio.CancelledError:
                self.crew.counts["cancelled"] += 1
                raise
            # Only a request that is sent cannot be taken back. Its condition makes that harmless.
            async with step:
                await self._write(machine, version, began, condition if self._conditional else None)
        # Written or refused: the watch brings the state that is there now.
        while actual.values.get(machine) is seen:
            changed.clear()
            await changed.wait()

    async def _write(self, machine: str, version: int, began: str, condition: str | None) -> None:
        try:
            await self.write(machine, version, began, condition)
        except RequestFailed as error:
            if error.status != 412:
                raise
            self.crew.counts["refused"] += 1
            self.crew.note(f"{self.name} is refused (412): {machine} := {version}, but it has changed meanwhile")


def different(desired: Table, actual: Table) -> list[str]:
    """Return the keys whose actual state is not the desired one, once both are known."""
    if desired.values is None or actual.values is None:
        return []
    here = {key: event.data["version"] for key, event in actual.values.items()}
    return [key for key, event in desired.values.items() if here.get(key) != event.data["version"]]
