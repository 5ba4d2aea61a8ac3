"""Events, stored and drafted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

__all__ = ["NO_ATTRIBUTES", "Draft", "Event", "Operation", "size_of"]

Operation = Literal["put", "delete"]
"""Effect of an event on its key: a new value, or none any more."""

NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Draft:
    """Event that is not stored yet.

    Attributes:
        data: content in bytes.
        content_type: media type of the content.
        key: key that the event changes, UTF-8 of at most 1 KB; None for none.
        op: effect on the key.
        attributes: names and values beside the content.
    """

    data: bytes
    content_type: str = "application/octet-stream"
    key: str | None = None
    op: Operation = "put"
    attributes: Mapping[str, str] = field(default_factory=lambda: NO_ATTRIBUTES)


def size_of(event: Draft | Event) -> int:
    """Return the bytes that an ``event`` counts for in the bounds of its topic."""
    size = len(event.data) + len(event.content_type.encode())
    if event.key is not None:
        size += len(event.key.encode())
    if event.attributes:
        size += sum(len(name) + len(value) for name, value in event.attributes.items())
    return size


@dataclass(frozen=True, slots=True)
class Event:
    """Stored event.

    Attributes:
        id: strictly increasing over the store, never issued twice.
        prev_id: id of the topic's event before it; 0 for its first.
        version: id of the last event of the same publication.
        time: time of storing, in microseconds since 1970, strictly increasing over the store.
        data: content in bytes.
        content_type: media type of the content.
        key: key that the event changes; None for none.
        op: effect on the key.
        attributes: names and values beside the content.
    """

    id: int
    prev_id: int
    version: int
    time: int
    data: bytes
    content_type: str
    key: str | None
    op: Operation
    attributes: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes that the event counts for in the bounds of its topic."""
        return size_of(self)
