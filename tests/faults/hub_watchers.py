"""Watchers of a run with a hub: ranges, first versions and speeds by chance; after a resync a snapshot, then on."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Any, Final, Literal

import aiohttp

from tests.faults.hub_crowd import AWAY, KEYS, PAUSE, QUIET, UNCONFIRMED, Topic
from tests.support.hub_records import WHOLE, Keys

__all__ = ["WATCH_FORMS", "WatchForm", "Watcher"]

WatchForm = Literal["watch-sse", "watch-lines", "watch-ws"]

WATCH_FORMS: Final[tuple[WatchForm, ...]] = ("watch-sse", "watch-lines", "watch-ws")

_ACCEPT: Final[Mapping[WatchForm, str]] = {
    "watch-sse": "text/event-stream",
    "watch-lines": "application/x-ndjson",
}

SPEEDS: Final = (0.0, 0.0, 0.0, 0.002, 0.02)
"""Seconds that a watcher takes for each part that it reads."""

LEAVE: Final = 0.002
"""Share of messages after which a watcher connects again by itself."""

AWHILE: Final = 6.0
"""Seconds for which some of those stay away at most: the floor may pass their place."""


class Watcher:
    """Client that watches a range of a topic, and comes back with its last cursor whenever a connection ends.

    Args:
        session: of HTTP.
        topic: the topic.
        name: in the history.
        form: of its requests.
        chance: decides the range, the first version, and its speed.
    """

    def __init__(
        self, session: aiohttp.ClientSession, topic: Topic, name: str, form: WatchForm, chance: random.Random
    ) -> None:
        self._session = session
        self._recorder = topic.recorder
        self._chance = chance
        self._form: WatchForm = form
        self._speed = chance.choice(SPEEDS)
        self.topic = topic
        self.name = name
        self.keys = _range(chance)
        self._params = {
            bound: text for bound, text in (("low", self.keys.low), ("high", self.keys.high)) if text is not None
        }
        self._after = topic.place(chance)
        """Cursor to go on from; empty after a resync, for a snapshot."""
        self._left = False
        """Whether it has ended the last connection itself."""
        self._version = -1
        self.got = 0
        """Events received."""
        self.progress = 0
        """Reports of progress received."""
        self.told = 0
        """Resyncs received."""
        self.snapshots = 0
        """Snapshots read whole."""
        self.earlier = 0
        """Those of another version than the newest."""
        self._recorder.reader(name, self.keys, watches=True)

    @property
    def place(self) -> int:
        """Version that it knows by progress."""
        return self._version

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                if not self._after:
                    await self._snapshot()
                if self._after:
                    self._recorder.opened(self.name, self._after)
                    await (self._socket() if self._form == "watch-ws" else self._stream())
            except (aiohttp.ClientError, ConnectionError):
                # The service was hurt: the next connection goes on behind the last event or progress.
                pass
            chance, left, self._left = self._chance, self._left, False
            away = left and chance.random() < 0.5
            await asyncio.sleep(chance.random() * AWHILE if away else PAUSE if left else chance.uniform(PAUSE, QUIET))

    async def _snapshot(self) -> None:
        """Read a snapshot of the range, at the newest version or at another one; without its last line it is void."""
        version = self.topic.place(self._chance) if self._chance.random() < 0.3 else "0"
        params = self._params if version == "0" else self._params | {"version": version}
        async with self._session.get(f"{self.topic.url}/snapshot", params=params) as response:
            if response.status != 200:
                assert response.status in (*AWAY, 404, 410, 429), await response.text()
                return
            lines = [json.loads(line) for line in (await response.text()).splitlines() if line]
        if lines and "complete" in lines[-1]:
            self._recorder.snapshot(self.name, lines)
            self.snapshots += 1
            self.earlier += version != "0"
            self._after = lines[-1]["cursor"]

    async def _stream(self) -> None:
        params = self._params | {"version": self._after}
        timeout = aiohttp.ClientTimeout(total=None)
        headers = {"Accept": _ACCEPT[self._form]}
        url = f"{self.topic.url}/watch"
        async with self._session.get(url, params=params, headers=headers, timeout=timeout) as response:
            if response.status != 200:
                refusal = await response.text()
                assert response.status in (*AWAY, 404) or refusal.strip() == UNCONFIRMED, refusal
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
        params = self._params | {"version": self._after}
        try:
            async with self._session.ws_connect(f"{self.topic.url}/watch", params=params) as socket:
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT and not self._take(json.loads(message.data)):
                        return
                    if self._speed:
                        await asyncio.sleep(self._speed)
        except aiohttp.WSServerHandshakeError as error:
            if error.status not in (*AWAY, 404):
                raise

    def _take(self, value: Mapping[str, Any]) -> bool:
        """Take an object; return whether the stream goes on."""
        self._recorder.take(self.name, [value])
        match value["type"]:
            case "resync":
                self.told += 1
                self._after = ""
                return False
            case "event":
                self.got += 1
            case "progress":
                self.progress += 1
                self._version = int(value["version"])
        self._after = value["cursor"]
        self._left = self._chance.random() < LEAVE
        return not self._left


def _range(chance: random.Random) -> Keys:
    """Return the whole topic, a key, or a range of some keys."""
    kind = chance.randrange(4)
    if kind == 0:
        return WHOLE
    low, high = sorted(chance.sample(range(len(KEYS) + 1), 2))
    if kind == 1:
        return Keys(KEYS[low], KEYS[low] + "\0")
    names = [*KEYS, "z"]
    open_end = chance.randrange(10)
    return Keys(None if open_end == 0 else names[low], None if open_end == 1 else names[high])
