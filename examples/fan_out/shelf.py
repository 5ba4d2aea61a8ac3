"""Shelf: the stock of a shop's articles. Each event is ingested into a topic of the hub, and into a broker's stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Self

from ring import Ring

from griphub import Publisher, ReceivedEvent
from griphub.client.connection import HubConnection
from griphub.client.snapshot import read_snapshot


class Shelf:
    """Producer of events, and the state that they make.

    Args:
        url: of the hub.
        topic: name of the topic.
        settings: of the topic.
        ring_of: returns the broker's stream of an article.
    """

    def __init__(self, url: str, topic: str, settings: dict[str, Any], ring_of: Callable[[str], Ring]) -> None:
        self.url = url
        self.topic = topic
        self._settings = settings
        self._ring_of = ring_of
        self._connection = HubConnection(url)
        self._publisher = Publisher(url, topic)

    async def __aenter__(self) -> Self:
        await self._connection.request("DELETE", ("topics", self.topic))
        await self._connection.request("PUT", ("topics", self.topic), body=json.dumps(self._settings).encode())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._publisher.close()
        await self._connection.close()

    async def put(self, article: str, number: int | None) -> None:
        """Ingest how many pieces of an article there are.

        Args:
            article: its name.
            number: of pieces; None if the article is withdrawn.
        """
        time = asyncio.get_running_loop().time()
        self._ring_of(article).add(article, number, time)
        if number is None:
            await self._publisher.submit(key=article, op="delete")
        else:
            await self._publisher.submit({"number": number, "time": time}, key=article)

    async def stored(self) -> int:
        """Return the id of the last event, when all are stored."""
        await self._publisher.flush()
        return int(self._publisher.last.id) if self._publisher.last else 0

    async def floor(self) -> int:
        """Return the id above which the hub retains all events."""
        answer = await self._connection.request("GET", ("topics", self.topic))
        return int(json.loads(answer.body)["floor"])

    async def table(self) -> dict[str, int]:
        """Return the number of pieces of each article, from a snapshot of the store."""
        snapshot = read_snapshot(self._connection, self.topic)
        return table_of([event async for event in snapshot if isinstance(event, ReceivedEvent)])


def table_of(events: list[ReceivedEvent]) -> dict[str, int]:
    """Return the number of pieces of each article.

    Args:
        events: of a snapshot.
    """
    return {str(event.key): event.data["number"] for event in events}
