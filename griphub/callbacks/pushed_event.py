"""Pushed event: stored event as a message, shared by the subscriptions that it is delivered to; memories of such."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import orjson

from griphub.pubsub.message import ORDERING_KEY, Message
from griphub.store.plain_records import OPERATIONS, Row

__all__ = [
    "DELETION",
    "MEMORY_BYTES",
    "TAILS_BYTES",
    "TAIL_EVENTS",
    "EventMemory",
    "PushedEvent",
    "TailBudget",
    "TopicTail",
]

DELETION: Final = "hub-op"
"""Attribute of the message of an event that deletes its key; its value is ``delete``."""

MEMORY_BYTES: Final = 16_000_000
"""Bytes of events that are remembered for their next delivery."""

TAIL_EVENTS: Final = 1000
"""Last events of a topic that its subscriptions read together."""

TAIL_BYTES: Final = 1_000_000
"""Bytes of these."""

TAILS_BYTES: Final = 32_000_000
"""Bytes of the last events of all topics."""

OVERHEAD: Final = 500
"""Bytes that an event takes beside its contents."""

_NONE: Final[Mapping[str, str]] = {}


class PushedEvent:
    """Stored event.

    Args:
        row: with ``EVENT_COLUMNS``.

    Attributes:
        id: strictly increasing over the store.
        prev: id of the topic's event before it; 0 for the first.
        time: of storing, in microseconds since 1970.
        size: bytes that it takes in memory.
        content_type: media type of its contents.
        row: that of the arguments.
    """

    __slots__ = ("_attributes", "_data", "_key", "_text", "content_type", "id", "prev", "row", "size", "time")

    def __init__(self, row: Row) -> None:
        id, prev, _, time, data, content_type, key, op, attributes, size = row
        self.id: Final[int] = id
        self.prev: Final[int] = prev
        self.time: Final[int] = time
        self.size: Final[int] = size + OVERHEAD
        self.content_type: Final[str] = content_type
        self.row: Final = row
        self._data: bytes = data
        self._key: str | None = key
        self._text: str | None = attributes
        self._attributes: Mapping[str, str] | None = None
        if OPERATIONS[op] == "delete":
            self._attributes = {**(orjson.loads(attributes) if attributes else {}), DELETION: "delete"}

    @property
    def attributes(self) -> Mapping[str, str]:
        """Attributes of the event."""
        if self._attributes is None:
            self._attributes = orjson.loads(self._text) if self._text else _NONE
        return self._attributes

    @property
    def ordering_key(self) -> str:
        """Ordering key of the message; empty for none."""
        if self._text is None:
            # Most events.
            return self._key or ""
        return self.attributes.get(ORDERING_KEY) or self._key or ""

    def message(self) -> Message:
        """Return the message that the event is."""
        return Message.of_event(self.id, self.time, self._data, self.attributes, self._key)


class EventMemory:
    """Events for their next delivery, the latest ones.

    Args:
        bytes_max: greatest number of bytes.
    """

    __slots__ = ("_bytes_max", "_events", "size")

    def __init__(self, bytes_max: int = MEMORY_BYTES) -> None:
        self._bytes_max = bytes_max
        self._events: OrderedDict[int, PushedEvent] = OrderedDict()
        self.size = 0
        """Bytes of the events."""

    def __len__(self) -> int:
        return len(self._events)

    def get(self, id: int) -> PushedEvent | None:
        """Return the event with an ``id``; None if it is not remembered."""
        found = self._events.get(id)
        if found is not None:
            self._events.move_to_end(id)
        return found

    def put(self, event: PushedEvent) -> None:
        """Remember an ``event``, and forget the ones that were used longest ago."""
        if event.id in self._events or event.size > self._bytes_max // 4:
            return
        self._events[event.id] = event
        self.size += event.size
        while self.size > self._bytes_max:
            _, oldest = self._events.popitem(last=False)
            self.size -= oldest.size


class TailBudget:
    """Bytes that the last events of all topics have together; those of the topic that was published to longest ago go.

    Args:
        bytes_max: greatest number of bytes.

    Attributes:
        size: bytes of all events.
    """

    __slots__ = ("_bytes_max", "_tails", "size")

    def __init__(self, bytes_max: int = TAILS_BYTES) -> None:
        self._bytes_max = bytes_max
        self._tails: OrderedDict[TopicTail, None] = OrderedDict()
        self.size = 0

    def changed(self, tail: TopicTail, grown: int) -> None:
        """Count a tail with other events.

        Args:
            tail: the last events of a topic.
            grown: bytes by which it has grown; below 0 if it has shrunk.
        """
        self.size += grown
        if tail:
            self._tails[tail] = None
            self._tails.move_to_end(tail)
        else:
            self._tails.pop(tail, None)
        while self.size > self._bytes_max and self._tails:
            next(iter(self._tails)).clear()


class TopicTail:
    """Last events of a topic, without a gap between them.

    Args:
        budget: of all topics.

    Attributes:
        newest: id of the last event that is known to be there, whether it is among these or not; 0 for none.
    """

    __slots__ = ("_budget", "_events", "_size", "newest")

    def __init__(self, budget: TailBudget) -> None:
        self.newest = 0
        self._budget = budget
        self._events: deque[PushedEvent] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._events)

    def add(self, events: Iterable[PushedEvent]) -> None:
        """Add events that were stored.

        Args:
            events: in order.
        """
        before = self._size
        for event in events:
            if event.id <= self.newest:
                continue
            if self._events and event.prev != self._events[-1].id:
                # Some were only announced: these are read from the store.
                self._events.clear()
                self._size = 0
            self._events.append(event)
            self._size += event.size
            self.newest = event.id
        while len(self._events) > TAIL_EVENTS or (self._size > TAIL_BYTES and self._events):
            self._size -= self._events.popleft().size
        self._budget.changed(self, self._size - before)

    def clear(self) -> None:
        """Forget the events; they are read from the store."""
        size, self._size = self._size, 0
        self._events.clear()
        self._budget.changed(self, -size)

    def announce(self, newest: int) -> None:
        """Note that there are events up to an id, which are to be read from the store.

        Args:
            newest: id of the last one.
        """
        if newest > self.newest:
            self.newest = newest
            self.clear()

    def after(self, id: int, most: int) -> Sequence[PushedEvent] | None:
        """Return the events behind an id; None if they are to be read from the store.

        Args:
            id: below that of the first.
            most: greatest number of events.
        """
        if not self._events or self._events[-1].id < self.newest or id < self._events[0].prev:
            return None
        if id >= self.newest:
            return ()
        found = []
        for event in reversed(self._events):
            if event.id <= id:
                break
            found.append(event)
        return found[::-1][:most]
