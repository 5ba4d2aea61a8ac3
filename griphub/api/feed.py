"""Feed: from the outcome of a commit to the items of followers, in the order of the commits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from griphub.api.context import HubCounters
from griphub.store.event import Draft, Event
from griphub.store.publication import Published
from griphub.topics.fanout import FanOut

__all__ = ["Feed", "Listener", "StoredEvent", "events_of"]

StoredEvent = tuple[int, Event]
"""Number of a topic, and an event of it."""


def events_of(published: Published, drafts: Sequence[Draft]) -> tuple[Event, ...]:
    """Return the events that a publication has become.

    Args:
        published: its outcome.
        drafts: its content.
    """
    previous, version = published.first_prev, published.ids[-1]
    events = []
    for draft, number, time in zip(drafts, published.ids, published.times, strict=True):
        events.append(
            Event(
                number,
                previous,
                version,
                time,
                draft.data,
                draft.content_type,
                draft.key,
                draft.op,
                draft.attributes,
            )
        )
        previous = number
    return tuple(events)


class Listener(Protocol):
    """Receiver of events beside the fan-out."""

    def wants(self, number: int) -> bool:
        """Return whether the events of the topic with a ``number`` are to be given to ``take``."""

    def take(self, number: int, events: Sequence[Event]) -> None:
        """Take the events of one publication.

        Args:
            number: of their topic.
            events: all of them, in order.
        """


class Feed:
    """Passes stored events to the fan-out, and gives it its turns.

    Args:
        fanout: makes the items.
        counters: figures.
        listeners: take the events as well.
    """

    def __init__(self, fanout: FanOut, counters: HubCounters, listeners: Sequence[Listener]) -> None:
        self._fanout = fanout
        self._listeners = tuple(listeners)
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._turn: asyncio.Handle | None = None
        self._wanted = 0
        """Id up to which events are read from the store, in place of those that are reported; 0 for none."""
        self._reading = False

    def published(self, published: Published, drafts: Sequence[Draft]) -> None:
        """Take the outcome of a publication.

        Args:
            published: the outcome.
            drafts: its content.
        """
        size = sum([len(draft.data) for draft in drafts])
        if self.counted(published.topic, published.ids[-1], len(drafts), size):
            self.stored(published.topic, events_of(published, drafts))

    def counted(self, number: int, last: int, events: int, size: int) -> bool:
        """Count a publication.

        Args:
            number: of its topic.
            last: id of its last event.
            events: how many it has.
            size: of their contents, in bytes.

        Returns:
            True if its events have to be given to ``stored`` now: the topic has followers.
        """
        counters = self._counters
        counters.published += events
        counters.published_bytes += size
        counters.topics[number] += events
        if self._wanted:
            # Events before it are missing still: it is read with them.
            self._wanted = max(self._wanted, last)
            self._fanout.expect(last)
            return False
        for listener in self._listeners:
            if listener.wants(number):
                return True
        return not self._fanout.skip(number, last)

    def stored(self, number: int, events: Sequence[Event]) -> None:
        """Take the events of one publication.

        Args:
            number: of their topic.
            events: all of them, in order.
        """
        for listener in self._listeners:
            if listener.wants(number):
                listener.take(number, events)
        if self._fanout.add(number, events) and self._turn is None:
            self._turn = self._loop.call_soon(self._work)

    async def catch_up(self, newest: int, read: Callable[[int], Awaitable[Sequence[StoredEvent]]]) -> None:
        """Take the events of commits whose outcome was not seen: the writer has ended before it could report them.

        Args:
            newest: id of the newest event that was stored then.
            read: returns stored events above an id, in order.

        Raises:
            StoreError: they cannot be read now. Those that are reported from now on wait for the next call.
        """
        self._wanted = max(self._wanted, newest)
        self._fanout.expect(newest)
        if self._reading:
            # The writer has ended again meanwhile: the catch-up under way goes on to the newer id.
            return
        self._reading = True
        try:
            while (after := self._fanout.added) < self._wanted:
                events = await read(after)
                for (number, _), group in itertools.groupby(events, key=lambda pair: (pair[0], pair[1].version)):
                    self.stored(number, [event for _, event in group])
                if not events:
                    # The others were deleted meanwhile.
                    self._fanout.pass_over(self._wanted)
            # Issued meanwhile, and not those of events.
            self._fanout.pass_over(self._fanout.stored)
            self._wanted = 0
        finally:
            self._reading = False

    def _work(self) -> None:
        self._turn = self._loop.call_soon(self._work) if self._fanout.work() else None
