"""Faults: misfortunes of workers, each at the moment where it hurts: around the write that ends an action.

In production chance finds that moment, in one of thousands of actions. Here the fault waits for it, at a certain
machine and release, so that a short run shows it.
"""

from __future__ import annotations

import asyncio
import enum

STOP_MAX = 30.0
"""Seconds after which a stopped worker goes on in any case."""


class Fault(enum.Enum):
    """Kind of a misfortune."""

    STOP = "a worker is stopped before it writes, and goes on when the others have gone ahead"
    """A pause of garbage collection, a swapped or suspended machine, a network that delivers late."""
    DIE_BEFORE = "a worker dies before it writes"
    """A crash, or a deployment of the worker itself."""
    DIE_AFTER = "a worker dies after it has written, before it can note that"


class Death(Exception):
    """End of a worker in the middle of its work: all that it had in memory is lost."""


class Faults:
    """Faults that wait for a write, and the state of the machines, by which a stopped worker is woken.

    Args:
        last: last release that will be desired.
    """

    def __init__(self, last: int) -> None:
        self._last = last
        self._armed: list[tuple[str, int, Fault]] = []
        self._newest: dict[str, int] = {}
        self._written = asyncio.Event()

    def arm(self, fault: Fault, machine: str, version: int) -> None:
        """Add a fault.

        Args:
            fault: its kind.
            machine: name of the machine whose write meets it.
            version: number of the release from which on it does.
        """
        self._armed.append((machine, version, fault))

    def strike(self, machine: str, version: int) -> Fault | None:
        """Return the fault that a write meets, if there is one. It is used up.

        Args:
            machine: name of the machine.
            version: number of the release.
        """
        for armed in self._armed:
            if armed[0] == machine and armed[1] <= version:
                self._armed.remove(armed)
                return armed[2]
        return None

    def written(self, machine: str, version: int) -> int:
        """Note a write.

        Args:
            machine: its name.
            version: number of the release.

        Returns:
            The newest release that the machine ever had before.
        """
        before = self._newest.get(machine, 0)
        self._newest[machine] = max(version, before)
        self._written.set()
        self._written = asyncio.Event()
        return before

    async def gone_ahead(self, machine: str, version: int) -> None:
        """Wait until a machine is two releases ahead of a version, or at the last one.

        Args:
            machine: its name.
            version: number of the release.
        """
        async with asyncio.timeout(STOP_MAX):
            while self._newest.get(machine, 0) < min(version + 2, self._last):
                await self._written.wait()
