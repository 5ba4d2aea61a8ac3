"""Worker: has ranges from the sharder, a task for each, and sometimes bad luck."""

from __future__ import annotations

import abc
import asyncio
from datetime import UTC, datetime

from crew import Crew, now
from faults import Death, Fault

from griphub import KeyRange, Publisher, Receipt

BEAT = 0.1
"""Seconds between two questions to the sharder."""

ACTION = 0.2
"""Seconds that it takes to install a release."""

RESTART = 0.5
"""Seconds until a worker that has died is started again."""


class Worker(abc.ABC):
    """Worker of a crew. A subclass has its way of working.

    Args:
        crew: the crew.
        name: of the worker.
    """

    def __init__(self, crew: Crew, name: str) -> None:
        self.crew = crew
        self.name = name
        self._awake = asyncio.Event()
        self._awake.set()
        self._publisher: Publisher

    async def live(self) -> None:
        """Work, die, and work again, until cancelled."""
        while True:
            try:
                await self._run()
            except* Death:
                pass
            await asyncio.sleep(RESTART)

    async def _run(self) -> None:
        """Keep a task for each range that the sharder gives."""
        tasks: dict[KeyRange, tuple[asyncio.Task[None], asyncio.Lock]] = {}
        async with Publisher(self.crew.url, self.crew.topic) as self._publisher, asyncio.TaskGroup() as group:
            while True:
                await self._awake.wait()
                ranges = self.crew.sharder.beat(self.name, now())
                for range in tasks.keys() - ranges:
                    task, step = tasks.pop(range)
                    async with step:
                        task.cancel()
                for range in ranges - tasks.keys():
                    step = asyncio.Lock()
                    tasks[range] = group.create_task(self.work(range, step)), step
                await asyncio.sleep(BEAT)

    @abc.abstractmethod
    async def work(self, range: KeyRange, step: asyncio.Lock) -> None:
        """Bring machines to their desired state until cancelled, which happens when the range is lost.

        Args:
            range: the machines.
            step: held for as long as the work must not be cancelled.
        """

    async def install(self) -> str:
        """Install a release: the slow part of an action. Repeating it does no harm.

        Returns:
            Time at which it began, RFC 3339.
        """
        began = datetime.now(UTC).isoformat()
        await asyncio.sleep(ACTION)
        return began

    async def write(self, machine: str, version: int, began: str, if_match: str | None = None) -> Receipt:
        """Write that a machine has a release now: the moment at which the action has its effect.

        Args:
            machine: its name.
            version: number of the release.
            began: time at which the action began.
            if_match: cursor of the write that the machine's last one must be; None for any.

        Returns:
            Place and time of the write.

        Raises:
            Death: the worker dies.
            RequestFailed: the machine's last write is another one (412).
        """
        await self._awake.wait()
        fault = self.crew.faults.strike(machine, version)
        if fault is Fault.STOP:
            await self._stop(machine, version)
        if fault is Fault.DIE_BEFORE:
            self.crew.note(f"{self.name} dies before it writes {machine} := {version}")
            raise Death
        data = {"version": version, "worker": self.name, "began": began}
        receipt = await self._publisher.publish(data, key=machine, if_match=if_match)
        before = self.crew.faults.written(machine, version)
        if before > version:
            self.crew.note(f"{self.name} has written {machine} := {version} over {before}")
        if fault is Fault.DIE_AFTER:
            self.crew.note(f"{self.name} dies after it has written {machine} := {version}")
            raise Death
        return receipt

    async def _stop(self, machine: str, version: int) -> None:
        """Stand still, with all tasks, like a stopped process."""
        self.crew.note(f"{self.name} is stopped before it writes {machine} := {version}")
        self._awake.clear()
        begin = now()
        try:
            await self.crew.faults.gone_ahead(machine, version)
        except TimeoutError:
            self.crew.note(f"{machine} has no newer release")
        self._awake.set()
        self.crew.note(f"{self.name} goes on after {now() - begin:.1f} s where it was stopped")
