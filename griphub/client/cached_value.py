"""Value of a key in a cache, made from its event."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from griphub.client.received import ReceivedEvent
from griphub.client.region import Mutation
from griphub.client.watch_messages import Version

__all__ = ["CachedValue", "mutation_of"]

VALUE_SIZE: Final = 640
"""Bytes of a value without key and data, measured for Python 3.11 with no attributes."""


@dataclass(frozen=True, slots=True)
class CachedValue:
    """Value of a key.

    Attributes:
        data: JSON value, text, or bytes, by the content type.
        content_type: media type of the data.
        attributes: texts by name.
        version: of the transaction that stored it; of a value in a snapshot of a source, that of the snapshot.
        cursor: place of the event; the condition (``If-Match``) for a change of this value.
        time: time of storing, RFC 3339; empty if the topic has none.
    """

    data: Any
    content_type: str
    attributes: Mapping[str, str]
    version: Version
    cursor: str
    time: str


def mutation_of(event: ReceivedEvent) -> Mutation[CachedValue] | None:
    """Return the change that an event makes.

    Args:
        event: of a watch, or of a snapshot.

    Returns:
        The change; None for an event without key.

    Raises:
        BadAnswer: the event has no version.
    """
    if event.key is None:
        return None
    if event.op == "delete":
        return Mutation(event.key, None)
    version = Version.of(event.version_cursor)
    value = CachedValue(event.data, event.content_type, event.attributes, version, event.cursor, event.time)
    texts = sum(len(name) + len(text) for name, text in event.attributes.items())
    return Mutation(event.key, value, VALUE_SIZE + texts + _size(event.data))


def _size(data: Any) -> int:
    if data is None:
        return 0
    if isinstance(data, bytes | str):
        return len(data)
    # Objects take about four times as much as their text.
    return 4 * len(json.dumps(data))
