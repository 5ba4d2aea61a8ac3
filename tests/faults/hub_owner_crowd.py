"""Ordinary owners of a hub: each publishes to a topic of its own and follows it, and notes how long both take."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from tests.faults.hostile.verdict import Phase
from tests.faults.hub_owner_tokens import token

__all__ = ["Owners", "Sent"]

WAIT: Final = 20
"""Seconds of a long-poll."""


@dataclass
class Sent:
    """One event.

    Attributes:
        at: time at which its publication began, in seconds of the monotonic clock.
        stored: seconds until it was answered.
        arrived: seconds until its follower had it.
    """

    at: float
    stored: float = math.inf
    arrived: float = math.inf


@dataclass
class Owners:
    """All ordinary owners.

    Args:
        url: of the hub.
        number: of owners.
        interval: seconds between two events of an owner.
        soft: number of owners whose topic is a soft one.

    Attributes:
        sent: all events.
        errors: whatever an ordinary owner should not see.
    """

    url: str
    number: int
    interval: float
    soft: int = 0
    sent: list[Sent] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    following: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def begin(self) -> None:
        """Make the topics, and start followers and publishers."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=60)
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)
        owners = [(_SoftOwner if number < self.soft else _Owner)(self, number) for number in range(self.number)]
        for owner in owners:
            await owner.make()
        self.tasks = [asyncio.ensure_future(owner.follow()) for owner in owners]
        deadline = time.monotonic() + 30
        while self.following < self.number:
            assert time.monotonic() < deadline, f"{self.following} of {self.number} owners follow: {self.errors[:5]}"
            await asyncio.sleep(0.01)
        self.tasks += [asyncio.ensure_future(owner.publish()) for owner in owners]

    async def end(self) -> None:
        """Stop all."""
        for task in self.tasks:
            task.cancel()
        for ended in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                self.errors.append(repr(ended))
        await self.session.close()

    async def settle(self, patience: float) -> None:
        """Wait until all events of so far have been answered and have arrived, for ``patience`` seconds at most."""
        events, deadline = [*self.sent], time.monotonic() + patience
        for event in events:
            while math.isinf(max(event.stored, event.arrived)) and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def stored(self, phase: Phase) -> list[float]:
        """Return the seconds that publications of a phase took."""
        return [event.stored for event in self.sent if phase.begun <= event.at < phase.ended]

    def arrived(self, phase: Phase) -> list[float]:
        """Return the seconds from the beginning of publications of a phase to their arrival."""
        return [event.arrived for event in self.sent if phase.begun <= event.at < phase.ended]


class _Owner:
    """One ordinary owner: one of three polls, one has a stream, and one a mailbox."""

    def __init__(self, owners: Owners, number: int) -> None:
        self.owners = owners
        self.number = number
        self.topic = f"{owners.url}/topics/o{number}%2Ft"
        self.headers = {"Authorization": f"Bearer {token(f'o{number}')}"}
        self.sent: list[Sent] = []
        self.expected = 0

    async def make(self) -> None:
        async with self.owners.session.put(self.topic, json={}, headers=self.headers) as response:
            assert response.status == 201, await response.text()

    def error(self, text: str) -> None:
        self.owners.errors.append(f"owner {self.number}: {text}")

    async def publish(self) -> None:
        interval = self.owners.interval
        # Owners begin one behind the other, so that their events are spread.
        due = time.monotonic() + interval * self.number / self.owners.number
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due += interval
            event = Sent(time.monotonic())
            number = len(self.sent)
            self.sent.append(event)
            self.owners.sent.append(event)
            try:
                async with self.request(number) as response:
                    text = await response.text()
            except (aiohttp.ClientError, TimeoutError) as error:
                self.error(f"publishing: {error!r}")
                continue
            if response.status not in (200, 201):
                self.error(f"publishing: {response.status} {text[:200]}")
            else:
                event.stored = time.monotonic() - event.at

    def request(self, number: int) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Publish the event with a number."""
        headers, body = {**self.headers, "Content-Type": "application/json"}, json.dumps({"number": number})
        return self.owners.session.post(f"{self.topic}/events", data=body, headers=headers)

    def take(self, event: dict[str, Any]) -> None:
        number = event["data"]["number"]
        if number != self.expected:
            self.error(f"event {number} arrived in place of {self.expected}")
        self.expected = number + 1
        self.sent[number].arrived = time.monotonic() - self.sent[number].at

    async def follow(self) -> None:
        try:
            await (self._stream, self._poll, self._mailbox)[self.number % 3]()
        except (aiohttp.ClientError, TimeoutError) as error:
            self.error(f"following: {error!r}")
        else:
            self.error("following: the stream has ended")

    async def _poll(self) -> None:
        after = "0"
        self.owners.following += 1
        while True:
            params = {"after": after, "wait": str(WAIT)}
            async with self.owners.session.get(f"{self.topic}/events", params=params, headers=self.headers) as response:
                if response.status != 200:
                    self.error(f"poll: {response.status} {(await response.text())[:200]}")
                    await asyncio.sleep(0.5)
                    continue
                page = await response.json()
            for event in page["events"]:
                self.take(event)
            after = page["cursor"]

    async def _mailbox(self) -> None:
        url = f"{self.owners.url}/subscribers/mine"
        batch = {"sequence": 1, "commands": [{"subscribe": {"topic": f"o{self.number}/t"}}]}
        async with self.owners.session.post(f"{url}/commands", json=batch, headers=self.headers) as response:
            if response.status != 200:
                self.error(f"commands: {response.status} {(await response.text())[:200]}")
                return
            params = {"publisher_id": (await response.json())["publisher_id"], "wait": str(WAIT)}
        self.owners.following += 1
        while True:
            async with self.owners.session.get(f"{url}/poll", params=params, headers=self.headers) as response:
                if response.status != 200:
                    self.error(f"mailbox: {response.status} {(await response.text())[:200]}")
                    await asyncio.sleep(0.5)
                    continue
                reply = await response.json()
            if reply["lost"] or reply["publisher_id"] != params["publisher_id"]:
                self.error(f"mailbox: {str(reply)[:200]}")
            for message in reply["messages"]:
                self.take(message["event"])
                params["max_processed_sequence_id"] = message["sequence_id"]

    async def _stream(self) -> None:
        headers = {**self.headers, "Accept": "text/event-stream"}
        async with self.owners.session.get(f"{self.topic}/events", headers=headers) as response:
            if response.status != 200:
                self.error(f"stream: {response.status} {(await response.text())[:200]}")
                return
            self.owners.following += 1
            async for line in response.content:
                if line.startswith(b"data: "):
                    self.take(json.loads(line[6:]))
                elif line.startswith(b"event: "):
                    self.error(f"stream: {line!r}")


class _SoftOwner(_Owner):
    """One ordinary owner of a soft topic, whose source has a version for each event, and a watcher."""

    async def make(self) -> None:
        async with self.owners.session.put(self.topic, json={"store": "none"}, headers=self.headers) as response:
            assert response.status == 201, await response.text()
        async with self._ingest({"progress": {"version": "0"}}) as response:
            assert response.status == 200, await response.text()

    def _ingest(self, *lines: dict[str, Any]) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        body = "".join(json.dumps(line) + "\n" for line in lines)
        headers = {**self.headers, "Content-Type": "application/x-ndjson"}
        return self.owners.session.post(f"{self.topic}/ingest", data=body, headers=headers)

    def request(self, number: int) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        version = str(number + 1)
        append = {"key": f"k{number % 10}", "version": version, "data": {"number": number}}
        return self._ingest({"append": append}, {"progress": {"version": version}})

    async def follow(self) -> None:
        sse = self.number % 2 == 0
        headers = {**self.headers, "Accept": "text/event-stream" if sse else "application/x-ndjson"}
        try:
            async with self.owners.session.get(f"{self.topic}/watch?version=0", headers=headers) as response:
                if response.status != 200:
                    self.error(f"watch: {response.status} {(await response.text())[:200]}")
                    return
                self.owners.following += 1
                async for line in response.content:
                    if (text := line.removeprefix(b"data: ")).startswith(b"{"):
                        self._object(json.loads(text))
        except (aiohttp.ClientError, TimeoutError) as error:
            self.error(f"watching: {error!r}")
        else:
            self.error("watching: the stream has ended")

    def _object(self, value: dict[str, Any]) -> None:
        if value["type"] == "event":
            self.take(value)
        elif value["type"] != "progress":
            self.error(f"watch: {value}")
        elif int(value["version"]) != self.expected:
            self.error(f"watch: {value} behind event {self.expected - 1}")
