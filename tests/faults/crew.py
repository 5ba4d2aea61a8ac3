"""All clients of a run, in this process: their tasks, what they were told to be, and whether they have everything."""

from __future__ import annotations

import asyncio
import contextlib
import time

from tests.faults.client import Client, make_client
from tests.faults.history import History
from tests.faults.validators import Facts

__all__ = ["Crew"]


class Crew:
    """Clients of the proxy at ``port``; they note what they get in ``history``."""

    def __init__(self, port: int, history: History, seed: int) -> None:
        self.clients: dict[str, Client] = {}
        self.facts: dict[str, Facts] = {}
        self._port = port
        self.history = history
        self._seed = seed
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, form: str, channels: list[str], control: bool = False, slow: bool = False) -> Client:
        """Let one more client live. ``slow``: it has little room, and may be told to stop reading."""
        name = f"{'control-' if control else 'slow-' if slow else ''}{form}-{len(self.clients)}"
        client = make_client(
            name, form, channels, self._port, self.history, self._seed * 10_000 + len(self.clients), control
        )
        client.sleepy = slow
        self.clients[name] = client
        hostile = form == "hostile"
        self.facts[name] = Facts(form, tuple(channels), client.reliable and not hostile, control, slow)
        self._tasks.append(asyncio.get_running_loop().create_task(client.run(), name=name))
        return client

    @property
    def channels(self) -> list[str]:
        """Every channel that somebody listens to."""
        return sorted({channel for client in self.clients.values() for channel in client.channels})

    @property
    def reconnects(self) -> int:
        """Sessions of reliable clients beyond the first of each, without those of long-polls that were answered."""
        return sum(
            1
            for record in self.history.select("ended")
            if record.values[1] and record.who in self.facts and self.facts[record.who].reliable
        )

    def behind(self, truth: dict[str, int]) -> list[str]:
        """Return the reliable clients that have not all of their channels."""
        return sorted({name for name, _ in self.lacking(truth)})

    def lacking(self, truth: dict[str, int]) -> list[tuple[str, str]]:
        """Return the same with the channels that they have not all of; only channels in ``truth`` count."""
        return [
            (name, channel)
            for name, client in self.clients.items()
            if self.facts[name].reliable
            for channel in client.channels
            if client.last[channel] < truth.get(channel, 0)
        ]

    def complaints(self) -> dict[str, str]:
        """Return why clients that are not held are not, as far as they know."""
        return {name: client.complaint for name, client in self.clients.items() if not client.connection}

    def check(self) -> None:
        """Fail if a client has ended by a mistake of ours."""
        for task in self._tasks:
            if task.done():
                task.result()
                raise AssertionError(f"{task.get_name()} has ended by itself")

    async def until(self, what: str, number: int, patience: float = 60.0, client: Client | None = None) -> bool:
        """Return once there are ``number`` records of a kind (of that client); false if they do not come in time."""
        deadline = time.monotonic() + patience
        while sum(client is None or record.who == client.name for record in self.history.select(what)) < number:
            if time.monotonic() > deadline:
                return False
            self.check()
            await asyncio.sleep(0.05)
        return True

    async def converge(self, truth: dict[str, int], patience: float) -> bool:
        """Return once all reliable clients have all of their channels; false if they have not in time."""
        deadline = time.monotonic() + patience
        while self.behind(truth):
            if time.monotonic() > deadline:
                return False
            self.check()
            await asyncio.sleep(0.1)
        return True

    async def leave(self) -> None:
        """End all clients and return when their connections are closed."""
        for client in self.clients.values():
            client.go_on()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        # Aborted transports are closed in the next turns of the loop.
        for _ in range(5):
            await asyncio.sleep(0)
