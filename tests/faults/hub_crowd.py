"""Crowd of a run with a hub: readers of every representation that come back by themselves, and publishers."""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import aiohttp

from tests.support.hub_recorder import Recorder
from tests.support.hub_records import WHOLE, Keys

__all__ = ["AWAY", "FORMS", "KEYS", "PAUSE", "QUIET", "UNCONFIRMED", "Form", "Publisher", "Reader", "Topic"]

Form = Literal["sse", "lines", "ws", "poll", "pages"]

FORMS: Final[tuple[Form, ...]] = ("sse", "lines", "ws", "poll", "pages")

KEYS: Final = "abcdefgh"

PAUSE: Final = 0.05
"""Seconds before a request is repeated."""

QUIET: Final = 0.4
"""Seconds instead if the request before has brought nothing: a crowd must not keep a service from starting."""

PAGE: Final = 100
"""Events of a page: more than a publication has, which is not divided then."""

AWAY: Final = (502, 503)
"""Statuses while a part of the service is being started again."""

UNCONFIRMED: Final = "Accept service unavailable."
"""Text of the 500 with which a worker refuses a hold that the handler has not confirmed in time."""

DELETIONS: Final = 0.15
"""Share of the events with a key that delete it."""

PADDING: Final = 2_500
"""Blanks behind each content of a large publication, which another process reads: sixty are more than 128 kB."""

SIZES: Final = (1, 1, 1, 2, 3, 5, 60)
"""Numbers of events of a publication."""

CURSORS: Final = 200
"""Cursors that a topic remembers."""


@dataclass
class Topic:
    """Topic of a run.

    Attributes:
        name: of the topic.
        url: of the topic.
        recorder: writes its history.
        lock: held while it is published to, deleted or made again.
        last: id of the last answered event of each key, since the topic was made; None for events without key.
    """

    name: str
    url: str
    recorder: Recorder
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: dict[str | None, int] = field(default_factory=dict)
    cursors: deque[str] = field(default_factory=lambda: deque(["0"], CURSORS))
    """Cursors of answered publications, of earlier topics of the name and of a lost future too."""

    def last_in(self, keys: Keys) -> int:
        """Return the id of the last answered event of a range; 0 for none.

        Args:
            keys: the range.
        """
        return max((id for key, id in self.last.items() if keys.has(key)), default=0)

    def place(self, chance: random.Random) -> str:
        """Return a cursor to begin at: of the beginning, of the newest publication, or of any remembered one.

        Args:
            chance: decides.
        """
        return chance.choice(["0", self.cursors[-1], chance.choice(self.cursors)])


class Reader:
    """Client that reads a topic, and comes back with its last cursor whenever a connection ends.

    Args:
        session: of HTTP.
        topic: the topic.
        name: in the history.
        form: of its requests.
        key: that it reads; empty for the whole topic.
        truncated: whether it accepts that events are left out, with a report.
    """

    def __init__(
        self, session: aiohttp.ClientSession, topic: Topic, name: str, form: Form, key: str, *, truncated: bool
    ) -> None:
        self._session = session
        self._recorder = topic.recorder
        self._url = f"{topic.url}/events"
        self.topic = topic
        self.name = name
        self.form = form
        self.keys = Keys(key, chr(ord(key) + 1)) if key else WHOLE
        self._params: dict[str, str] = {"low": key, "high": chr(ord(key) + 1)} if key else {}
        if truncated:
            self._params["truncated"] = "allow"
        self._after = "0"
        self.got = 0
        """Events received."""
        self.told = 0
        """Reports received."""
        self.returns = 0
        """Connections begun after the first."""
        self._recorder.reader(name, self.keys, polls=form == "poll")

    @property
    def place(self) -> int:
        """Id up to which it has everything."""
        return int(self._after.rpartition(".")[2])

    async def run(self) -> None:
        """Read until cancelled."""
        work: Mapping[Form, Callable[[], Any]] = {
            "sse": self._stream,
            "lines": self._stream,
            "ws": self._socket,
            "poll": self._page,
            "pages": self._page,
        }
        while True:
            self._recorder.opened(self.name, self._after)
            got = self.got
            try:
                await work[self.form]()
            except (aiohttp.ClientError, ConnectionError):
                # The service was hurt: the next connection goes on behind the last event.
                pass
            self.returns += 1
            await asyncio.sleep(PAUSE if self.got > got else QUIET)

    async def _stream(self) -> None:
        accept = "text/event-stream" if self.form == "sse" else "application/x-ndjson"
        params = self._params | {"after": self._after, "follow": "true"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(self._url, params=params, headers={"Accept": accept}, timeout=timeout) as response:
            if response.status != 200:
                await self._refused(response)
                return
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    text = line.removeprefix(b"data: ")
                    if text.startswith(b"{"):
                        self._take(json.loads(text))

    async def _socket(self) -> None:
        params = self._params | {"after": self._after}
        try:
            async with self._session.ws_connect(self._url, params=params) as socket:
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        self._take(json.loads(message.data))
        except aiohttp.WSServerHandshakeError as error:
            if error.status not in (*AWAY, 404):
                raise

    async def _page(self) -> None:
        params = self._params | {"after": self._after, "limit": str(PAGE)}
        if self.form == "poll":
            params["wait"] = "5"
        async with self._session.get(self._url, params=params) as response:
            if response.status != 200:
                await self._refused(response)
                return
            page = await response.json()
        self._recorder.page(self.name, page)
        self.got += len(page["events"])
        self.told += "truncated" in page
        self._after = page["cursor"]

    async def _refused(self, response: aiohttp.ClientResponse) -> None:
        if response.status == 410:
            self._told("gone", await response.json())
        else:
            text = await response.text()
            assert response.status in (*AWAY, 404) or text.strip() == UNCONFIRMED, text

    def _take(self, value: Mapping[str, Any]) -> None:
        match value["type"]:
            case "event":
                self._recorder.event(self.name, value)
                self._after = value["cursor"]
                self.got += 1
            case "truncated" | "resync":
                self._told(value["type"], value)

    def _told(self, kind: Literal["truncated", "resync", "gone"], value: Mapping[str, Any]) -> None:
        self._recorder.told(self.name, kind, value)
        self.told += 1
        if kind != "truncated":
            self._after = value["floor_cursor"] or "0"


class Publisher:
    """Client that publishes with names of requests, and repeats each until it is answered.

    Args:
        session: of HTTP.
        name: first part of its names.
        chance: decides topics, keys and sizes.
    """

    def __init__(self, session: aiohttp.ClientSession, name: str, chance: random.Random) -> None:
        self._session = session
        self._name = name
        self._chance = chance
        self._number = 0
        self.events = 0
        """Events answered."""
        self.repeated = 0
        """Answers that were those of an earlier attempt."""
        self.deletions = 0
        """Events answered that delete their key."""

    async def publish(self, topic: Topic, keys: Sequence[str | None] = (), *, large: bool = False) -> None:
        """Publish some events; now and then the answered request is sent once more.

        Args:
            topic: the topic.
            keys: of the events, none of which is a deletion; empty: a number of events with keys by chance.
            large: whether the request is so large that another process reads it; then it has sixty events.
        """
        chance = self._chance
        self._number += 1
        name = f"{self._name}-{self._number}"
        deletions: list[str] = []
        events: list[dict[str, str]] = []
        share = 0.0 if keys else DELETIONS
        keys = keys or [chance.choice([None, *KEYS]) for _ in range(60 if large else chance.choice(SIZES))]
        contents = [f"{name}.{place}" for place in range(len(keys))]
        for content, key in zip(contents, keys, strict=True):
            events.append({"data": content + " " * (PADDING if large else 0)})
            if key is not None:
                events[-1]["key"] = key
                if chance.random() < share:
                    events[-1]["op"] = "delete"
                    deletions.append(content)
        async with topic.lock:
            topic.recorder.requested(name, contents, keys, deletions)
            for _ in range(chance.choice((1, 1, 1, 2))):
                ids = await self._send(topic, name, events)
            for key, id in zip(keys, ids, strict=True):
                topic.last[key] = id
            self.events += len(keys)
            self.deletions += len(deletions)

    async def _send(self, topic: Topic, name: str, events: list[dict[str, str]]) -> list[int]:
        while True:
            try:
                async with self._session.post(
                    f"{topic.url}/events", json={"events": events}, headers={"Idempotency-Key": name}
                ) as response:
                    if response.status == 201:
                        answer = await response.json()
                        topic.recorder.answered(name, answer)
                        topic.cursors.append(answer["version_cursor"])
                        self.repeated += "Idempotency-Replayed" in response.headers
                        return [int(event["id"]) for event in answer["events"]]
                    assert response.status in AWAY, await response.text()
            except (aiohttp.ClientError, ConnectionError):
                # Whether it was stored is not known: it is repeated.
                pass
            await asyncio.sleep(PAUSE)
