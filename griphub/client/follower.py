"""Follower: the events of a topic from a place on, over an event stream that is opened again wherever it ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Self

from griphub.client.connection import HubConnection, Token
from griphub.client.errors import BadAnswer, ConnectionLost, HubError, RequestFailed
from griphub.client.event_stream import Block, EventStreamParser
from griphub.client.received import ReceivedEvent, Truncated, document_of, gone_of
from griphub.client.retry import REPEATED, Backoff

__all__ = ["Follower", "Following", "Selection"]

EVENT_STREAM: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Selection:
    """Part of a topic's events.

    Attributes:
        after: cursor behind which it begins; ``0`` for the beginning. None for ``since``, or the beginning.
        since: time after which it begins, RFC 3339 with zone; None for ``after``.
        until: last time, RFC 3339 with zone; None for no end.
        low: least key; None for no bound. With a bound, events without key are not among them.
        high: key below which the others are; None for no bound.
        truncated: whether it may begin at the floor, with a report, if earlier events are not retained.
    """

    after: str | None = None
    since: str | None = None
    until: str | None = None
    low: str | None = None
    high: str | None = None
    truncated: bool = False

    def __post_init__(self) -> None:
        if self.after is not None and self.since is not None:
            raise ValueError("after and since exclude each other: both name the beginning")

    def query(self) -> list[tuple[str, str]]:
        """Return the parameters of a request.

        Returns:
            Names and values.
        """
        names = ("after", "since", "until", "low", "high")
        pairs = [(name, value) for name in names if (value := getattr(self, name)) is not None]
        return [*pairs, ("truncated", "allow")] if self.truncated else pairs


class Following:
    """State of a follower: the place that it has reached, and the meaning of blocks. Sans-I/O.

    Args:
        selection: the events, without end.

    Raises:
        ValueError: the selection has an end.
    """

    def __init__(self, selection: Selection) -> None:
        if selection.until is not None:
            raise ValueError("a follower has no end: until is for the history")
        self._selection = selection
        self._parser = EventStreamParser()
        self.cursor: str | None = None
        """Place up to which all events were received; None until the first block."""

    def query(self) -> list[tuple[str, str]]:
        """Return the parameters of the next request.

        Returns:
            Names and values; they are those of the first request, and ``Last-Event-ID`` goes before.
        """
        return self._selection.query()

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers of the next request, and begin a new stream.

        Returns:
            Names and values.
        """
        self._parser = EventStreamParser()
        headers = [("Accept", EVENT_STREAM), ("Cache-Control", "no-store")]
        return headers if self.cursor is None else [*headers, ("Last-Event-ID", self.cursor)]

    def feed(self, chunk: bytes) -> list[ReceivedEvent | Truncated | HubError]:
        """Take bytes of the stream.

        Args:
            chunk: the next ones.

        Returns:
            Events and reports, in order; an error as the last one if the follower cannot go on.
        """
        found: list[ReceivedEvent | Truncated | HubError] = []
        try:
            for block in self._parser.feed(chunk):
                message = self._read(block)
                if message is not None:
                    found.append(message)
        except HubError as error:
            found.append(error)
        return found

    def _read(self, block: Block) -> ReceivedEvent | Truncated | None:
        """Return the meaning of a block; None if it only moves the place, or announces the end of the stream."""
        if block.event == "resync":
            raise gone_of(document_of(block.data or ""))
        if block.event == "truncated":
            return Truncated.of(document_of(block.data or ""))
        if block.event:
            # ``expired``, and kinds to be made: the stream ends, or goes on, by itself.
            return None
        event = None if block.data is None else ReceivedEvent.of(document_of(block.data))
        self.cursor = block.id if block.id is not None else self.cursor
        return event


class Follower:
    """Events of a topic as they are stored, each once and in order, over as many connections as it takes.

    Iteration yields events, and ``Truncated`` in place of those that are not retained if the selection allows it. It
    raises ``Gone`` where the events that follow are not retained any more, and ``RequestFailed`` where the hub refuses
    it; lost connections, 429, 502, 503 and 504 are followed by another attempt after a growing pause, without end.

    Args:
        url: of the hub with the prefix of its route.
        topic: name of the topic.
        selection: the events; all if None.
        token: bearer token, or a function that returns one for each request; None for none.
        on_pause: receives the reason of each lost connection and the seconds until the next attempt. An exception
            that it raises ends the iteration.

    Raises:
        ValueError: the URL is not one of HTTP, or the selection has an end.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        selection: Selection | None = None,
        *,
        token: Token = None,
        on_pause: Callable[[HubError, float], None] | None = None,
    ) -> None:
        self._connection = HubConnection(url, token)
        self._path = ("topics", topic, "events")
        self._following = Following(selection or Selection())
        self._on_pause = on_pause
        self.connections = 0
        """Streams that were opened."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    @property
    def cursor(self) -> str | None:
        """Place up to which all events were received; None until the first one."""
        return self._following.cursor

    async def __aiter__(self) -> AsyncIterator[ReceivedEvent | Truncated]:
        backoff = Backoff()
        while True:
            lost: HubError = ConnectionLost("the stream ended", maybe_stored=False)
            try:
                async with aclosing(self._one_stream()) as messages:
                    async for message in messages:
                        backoff.reset()
                        yield message
            except ConnectionLost as error:
                lost = error
            except RequestFailed as error:
                if error.status not in REPEATED:
                    raise
                lost = error
            pause = backoff.pause(random.random(), lost.retry_after if isinstance(lost, RequestFailed) else None)
            if self._on_pause is not None:
                self._on_pause(lost, pause)
            await asyncio.sleep(pause)

    async def _one_stream(self) -> AsyncGenerator[ReceivedEvent | Truncated, None]:
        following = self._following
        async with self._connection.stream(self._path, following.query(), following.headers()) as response:
            if response.content_type != EVENT_STREAM:
                raise BadAnswer(f"{response.content_type or 'no type'} in place of an event stream")
            self.connections += 1
            async for chunk in response.chunks():
                for message in following.feed(chunk):
                    if isinstance(message, HubError):
                        raise message
                    yield message
