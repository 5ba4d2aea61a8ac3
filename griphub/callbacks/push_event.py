"""Push event: stored event with its text, one for all subscriptions that it is delivered to."""

from __future__ import annotations

from typing import Final

from griphub.store.plain_records import OPERATIONS, Row
from griphub.topics.event_text import Epochs, event_json_of

__all__ = ["OVERHEAD", "PushEvent", "push_event"]

OVERHEAD: Final = 300
"""Bytes that an event takes beside its text."""


class PushEvent:
    """Event to be delivered.

    Args:
        id: strictly increasing over the store.
        prev_id: id of the topic's event before it; 0 for the first.
        time: of storing, in microseconds since 1970.
        text: JSON object of one line.

    Attributes:
        id: that of the arguments, as are ``prev_id``, ``time`` and ``text``.
        size: bytes that it takes in memory.
    """

    __slots__ = ("id", "prev_id", "size", "text", "time")

    def __init__(self, id: int, prev_id: int, time: int, text: bytes) -> None:
        self.id: Final = id
        self.prev_id: Final = prev_id
        self.time: Final = time
        self.text: Final = text
        self.size: Final = len(text) + OVERHEAD


def push_event(row: Row, epochs: Epochs) -> PushEvent:
    """Return the event of a row.

    Args:
        row: with ``EVENT_COLUMNS``.
        epochs: those of the store.
    """
    id, previous, version, moment, data, content_type, key, op, attributes, *_ = row
    text = event_json_of(
        id, previous, version, moment, data, content_type, key, OPERATIONS[op], attributes or None, epochs
    )
    return PushEvent(id, previous, moment, text)
