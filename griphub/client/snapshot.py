"""Snapshot: the last event of each key of a topic at one version, and whether it is whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final

from griphub.client.connection import ANSWER_MAX, HubConnection
from griphub.client.errors import BadAnswer, ConnectionLost
from griphub.client.received import ReceivedEvent, document_of

__all__ = ["SnapshotLines", "SnapshotVersion", "read_snapshot"]

LINES: Final = "application/x-ndjson"

PATIENCE: Final = 60.0
"""Seconds that a snapshot may take without a byte, in all."""

RATE: Final = 1_000
"""Bytes that give it a second more: one that arrives more slowly than so many in a second is given up."""

VALUE_SIZE: Final = 64
"""Bytes of a value in memory, beside its text."""


@dataclass(frozen=True, slots=True)
class SnapshotVersion:
    """First line of a snapshot.

    Attributes:
        version: decimal id of the store at which it was taken.
        cursor: place of the version, to follow the topic from.
    """

    version: str
    cursor: str


class SnapshotLines:
    """Lines of a snapshot as they arrive. Sans-I/O."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._first: SnapshotVersion | None = None
        self.size = 0
        """Bytes that the last line counts for in memory, about: those of its text, and of each value in it."""
        self.complete = False
        """True once the last line was received, without which the snapshot is void."""

    def feed(self, data: bytes) -> Iterator[SnapshotVersion | ReceivedEvent]:
        """Yield the lines that a part of the answer completes.

        Args:
            data: the part.

        Yields:
            The version, and behind it the events.

        Raises:
            BadAnswer: a line is not one of a snapshot, or has more than 32 MB.
        """
        self._rest += data
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                message = self._message(document_of(bytes(line)))
                if message is not None:
                    values = line.count(b",") + line.count(b"[") + line.count(b"{")
                    self.size = len(line) + VALUE_SIZE * values
                    yield message
        if len(self._rest) > ANSWER_MAX:
            raise BadAnswer(f"a line has more than {ANSWER_MAX} bytes")

    def _message(self, document: dict[str, Any]) -> SnapshotVersion | ReceivedEvent | None:
        if self._first is None:
            version, cursor = document.get("version"), document.get("cursor")
            if document.get("type") != "snapshot" or not isinstance(version, str) or not isinstance(cursor, str):
                raise BadAnswer(f"no snapshot: {str(document)[:200]}")
            self._first = SnapshotVersion(version, cursor)
            return self._first
        if self.complete:
            raise BadAnswer("a snapshot goes on behind its last line")
        if "complete" in document:
            if document["complete"] != self._first.version:
                raise BadAnswer(f"the snapshot of {self._first.version} ends with {str(document)[:200]}")
            self.complete = True
            return None
        return ReceivedEvent.of(document)


async def read_snapshot(
    connection: HubConnection,
    topic: str,
    low: str | None = None,
    high: str | None = None,
    version: str | None = None,
    lines: SnapshotLines | None = None,
) -> AsyncIterator[SnapshotVersion | ReceivedEvent]:
    """Yield the version of a snapshot and its events, by key; it is whole if the iteration ends without an error.

    Args:
        connection: to the hub.
        topic: name of the topic.
        low: least key; None for no bound.
        high: key below which the others are; None for no bound.
        version: cursor of the version; None for the newest.
        lines: its lines, whose ``size`` is that of the last message; None for others.

    Yields:
        The version, then the last event of each key that has a value.

    Raises:
        ConnectionLost: the hub was not reached, or the answer broke off or was too slow: the snapshot is void.
        RequestFailed: the hub refuses it; ``Gone`` if the version is not retained.
        BadAnswer: the answer is not a hub's.
    """
    bounds = (("low", low), ("high", high), ("version", version))
    query = [(name, value) for name, value in bounds if value is not None]
    lines = SnapshotLines() if lines is None else lines
    async with connection.stream(("topics", topic, "snapshot"), query, [("Accept", LINES)]) as response:
        if response.content_type != LINES:
            raise BadAnswer(f"{response.content_type or 'no type'} in place of a snapshot")
        async for chunk in _in_time(response.chunks()):
            for message in lines.feed(chunk):
                yield message
    if not lines.complete:
        text = "the snapshot broke off before its last line and is void: take it again"
        raise ConnectionLost(text, maybe_stored=False)


async def _in_time(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts of an answer. The time that the caller takes does not count.

    Raises:
        ConnectionLost: they arrive too slowly.
    """
    now, waited, received = asyncio.get_running_loop().time, 0.0, 0
    while True:
        began = now()
        try:
            async with asyncio.timeout(PATIENCE + received / RATE - waited):
                chunk = await anext(chunks, None)
        except TimeoutError as error:
            text = f"the snapshot is too slow: {received} bytes in {waited + now() - began:.0f} s"
            raise ConnectionLost(text, maybe_stored=False) from error
        if chunk is None:
            return
        waited += now() - began
        received += len(chunk)
        yield chunk
