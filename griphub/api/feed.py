"""Feed: from the outcome of a commit to the items of followers, in the order of the commits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from griphub.api.context import HubCounters
from griphub.store.event import Draft, Event
from griphub.store.publication import Published
from griphub.topics.fanout import FanOut

__all__ = ["Feed", "events_of"]


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


class Feed:
    """Passes stored events to the fan-out, and gives it its turns.

    Args:
        fanout: makes the items.
        counters: figures.
    """

    def __init__(self, fanout: FanOut, counters: HubCounters) -> None:
        self._fanout = fanout
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._turn: asyncio.Handle | None = None

    def published(self, published: Published, drafts: Sequence[Draft]) -> None:
        """Take the outcome of a publication.

        Args:
            published: the outcome.
            drafts: its content.
        """
        counters = self._counters
        counters.published += len(drafts)
        counters.published_bytes += sum([len(draft.data) for draft in drafts])
        counters.topics[published.topic] += len(drafts)
        if not self._fanout.skip(published.topic, published.ids[-1]):
            self.stored(published.topic, events_of(published, drafts))

    def stored(self, number: int, events: Sequence[Event]) -> None:
        """Take the events of one publication.

        Args:
            number: of their topic.
            events: all of them, in order.
        """
        if self._fanout.add(number, events) and self._turn is None:
            self._turn = self._loop.call_soon(self._work)

    def _work(self) -> None:
        self._turn = self._loop.call_soon(self._work) if self._fanout.work() else None
