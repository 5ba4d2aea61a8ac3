"""Watchers of a soft topic in a run: ranges and speeds by chance; after a resync a snapshot of the source, then on.

Some are clients of HTTP in each of the three forms, some have ``griphub.Watcher``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Literal

import aiohttp

from griphub import Change, Progress, Resync
from griphub import Watcher as HubWatcher
from tests.faults.soft_source import CUTS, Source
from tests.support.hub_records import Keys
from tests.support.soft_records import Began, Got, Progressed, Told

__all__ = ["FORMS", "Follower", "LibraryWatcher", "RawWatcher"]

Form = Literal["sse", "lines", "ws", "library"]

FORMS: Final[tuple[Form, ...]] = ("sse", "lines", "ws", "library")

_ACCEPT: Final = {"sse": "text/event-stream", "lines": "application/x-ndjson"}

AWAY: Final = (502, 503)
"""Statuses while a part of the service, or the source, is being started again."""

PAUSE: Final = 0.05
"""Seconds before a request is repeated."""

SPEEDS: Final = (0.0, 0.0, 0.0, 0.01, 0.3)
"""Seconds that a watcher takes for each part that it reads."""

LEAVE: Final = 0.005
"""Share of messages after which a watcher connects again by itself."""

RESYNCS_MAX: Final = 4
"""Resyncs after which an application starts again: its watcher would wait longer and longer."""

AWAY_MAX: Final = 3.0
"""Seconds that a watcher which has left stays away, at most: what it needs may not be retained then."""


class Follower:
    """What all watchers have: a range, and the records of what they receive.

    Args:
        session: of HTTP.
        url: of the topic.
        source: the source.
        name: in the history.
        chance: decides the range, and what it does.
        counts: of what happened.

    Attributes:
        place: version that it knows by progress since its last snapshot; -1 for none.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        source: Source,
        name: str,
        chance: random.Random,
        counts: Counter[str],
    ) -> None:
        self._session = session
        self._url = url
        self._source = source
        self._name = name
        self._chance = chance
        self._counts = counts
        self._history = source.history
        low, high = sorted(chance.sample(range(len(CUTS) + 2), 2))
        bounds = [None, *CUTS, None]
        self._keys = Keys(bounds[low], bounds[high])
        self._params = {
            bound: text for bound, text in (("low", self._keys.low), ("high", self._keys.high)) if text is not None
        }
        self.place = -1
        self._history.watchers[name] = self._keys

    async def run(self) -> None:
        """Watch until cancelled."""
        raise NotImplementedError

    async def _snapshot(self) -> int | None:
        """Read a snapshot of the source, now and then by way of the hub; return its version, or None for none."""
        url = f"{self._url}/snapshot" if self._chance.random() < 0.3 else self._source.url
        async with self._session.get(url, params=self._params) as response:
            if response.status != 200:
                assert response.status in AWAY, await response.text()
                return None
            found = await response.json()
        self._history.steps.append(Began(self._name, found["timeline"], found["version"], found["table"]))
        self._counts["snapshots"] += 1
        self.place = -1
        return int(found["version"])

    def _got(self, epoch: str, version: int, key: str, value: str | None) -> None:
        self._history.steps.append(Got(self._name, epoch, version, key, value))
        self._counts["received"] += 1

    def _progressed(self, epoch: str, version: int, cursor: str) -> None:
        self._history.steps.append(Progressed(self._name, epoch, version, cursor))
        self._counts["progress"] += 1
        self.place = version

    def _told(self, floor: int | None) -> None:
        self._history.steps.append(Told(self._name, floor))
        self._counts["resyncs"] += 1
        self.place = -1


class RawWatcher(Follower):
    """Client of HTTP that comes back with its last cursor whenever a connection ends.

    Args:
        session: of HTTP.
        url: of the topic.
        source: the source.
        name: in the history.
        chance: decides the range, and what it does.
        counts: of what happened.
        form: of its requests.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        source: Source,
        name: str,
        chance: random.Random,
        counts: Counter[str],
        form: Form,
    ) -> None:
        super().__init__(session, url, source, name, chance, counts)
        self._form = form
        self._speed = chance.choice(SPEEDS)
        self._epoch = ""
        """Epoch that the last resync has named."""
        self._floor = 0
        self._floor_cursor = ""
        self._cursor = ""
        """Place to go on from; empty after a resync, for a snapshot."""

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                if not self._cursor:
                    await self._begin()
                if self._cursor:
                    await (self._socket() if self._form == "ws" else self._stream())
            pause = self._chance.random() * AWAY_MAX if self._chance.random() < 0.3 else PAUSE
            await asyncio.sleep(pause)

    async def _begin(self) -> None:
        version = await self._snapshot()
        if version is None:
            return
        if version < self._floor:
            # The source is behind the hub for a moment; or it was restored since, and the hub has another floor.
            self._cursor = "0"
            return
        place = f"{self._epoch}.{version}" if self._epoch else str(version)
        self._cursor = self._floor_cursor if self._epoch and version == self._floor else place

    async def _stream(self) -> None:
        params = self._params | {"version": self._cursor}
        timeout = aiohttp.ClientTimeout(total=None)
        headers = {"Accept": _ACCEPT[self._form]}
        async with self._session.get(f"{self._url}/watch", params=params, headers=headers, timeout=timeout) as response:
            if response.status != 200:
                assert response.status in AWAY, await response.text()
                self._again()
                return
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    text = line.removeprefix(b"data: ")
                    if text.startswith(b"{") and not self._take(json.loads(text)):
                        return
                if self._speed:
                    await asyncio.sleep(self._speed)

    async def _socket(self) -> None:
        params = self._params | {"version": self._cursor}
        try:
            async with self._session.ws_connect(f"{self._url}/watch", params=params) as socket:
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT and not self._take(json.loads(message.data)):
                        return
                    if self._speed:
                        await asyncio.sleep(self._speed / 10)
        except aiohttp.WSServerHandshakeError as error:
            if error.status not in AWAY:
                raise
            self._again()

    def _again(self) -> None:
        # A version without its epoch is good for one attempt: later on it may be one of a restored source.
        if "." not in self._cursor:
            self._cursor = ""

    def _take(self, value: Mapping[str, Any]) -> bool:
        """Take an object; return whether the stream goes on."""
        if value["type"] == "resync":
            self._told(None if value["floor"] is None else int(value["floor"]))
            self._cursor = ""
            if value["floor_cursor"] is not None:
                self._floor_cursor = value["floor_cursor"]
                self._epoch, floor, _ = self._floor_cursor.split(".")
                self._floor = int(floor)
            return False
        self._cursor = value["cursor"]
        epoch, version = self._cursor.split(".")[0], int(value["version"])
        if value["type"] == "event":
            self._got(epoch, version, value["key"], value.get("data"))
        else:
            assert (value["low"], value["high"]) == (self._keys.low, self._keys.high), value
            self._progressed(epoch, version, self._cursor)
        return self._chance.random() >= LEAVE


class LibraryWatcher(Follower):
    """Application with ``griphub.Watcher``, whose ``on_resync`` reads a snapshot of the source.

    The snapshot is read when all messages before it are taken: it replaces what they have changed.
    """

    async def run(self) -> None:
        """Watch until cancelled."""
        cursor = "0"
        while True:
            cursor = await self._watch(cursor)

    async def _watch(self, cursor: str) -> str:
        """Watch until the application starts again; return the cursor that it goes on from."""
        asked: asyncio.Queue[tuple[Resync, asyncio.Future[str]]] = asyncio.Queue()
        resyncs = 0

        async def on_resync(resync: Resync) -> str:
            answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            await asked.put((resync, answer))
            return await answer

        base, _, topic = self._url.rpartition("/topics/")
        low, high = self._keys.low, self._keys.high
        async with HubWatcher(base, topic, low, high, cursor=cursor, on_resync=on_resync, interval=1.0) as watcher:
            message = asyncio.ensure_future(anext(watcher))
            question = asyncio.ensure_future(asked.get())
            try:
                while self._chance.random() >= LEAVE / 4 and resyncs < RESYNCS_MAX:
                    await asyncio.wait((message, question), return_when=asyncio.FIRST_COMPLETED)
                    # A message that is there is taken in one step.
                    await asyncio.sleep(0)
                    if message.done():
                        self._take(message.result())
                        message = asyncio.ensure_future(anext(watcher))
                        await asyncio.sleep(0)
                    elif question.done():
                        resync, answer = question.result()
                        answer.set_result(await self._resynced(resync))
                        question = asyncio.ensure_future(asked.get())
                        resyncs += 1
                if message.done():
                    # The cursor is behind it.
                    self._take(message.result())
                return watcher.cursor or cursor
            finally:
                message.cancel()
                question.cancel()
                await asyncio.gather(message, question, return_exceptions=True)

    def _take(self, message: object) -> None:
        if isinstance(message, Change):
            for event in message.events:
                value = None if event.op == "delete" else str(event.data)
                self._got(message.version.epoch, message.version.number, str(event.key), value)
        elif isinstance(message, Progress) and message.whole:
            self._progressed(message.version.epoch, message.version.number, message.cursor)

    async def _resynced(self, resync: Resync) -> str:
        """Return the place of a snapshot; ``0`` if there is none to begin at yet."""
        if resync.floor_cursor is None:
            self._told(None)
            return "0"
        epoch, floor, _ = resync.floor_cursor.split(".")
        self._told(int(floor))
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            version = await self._snapshot()
            if version is not None and version >= int(floor):
                return resync.floor_cursor if version == int(floor) else f"{epoch}.{version}"
        return "0"
