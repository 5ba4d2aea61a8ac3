"""Events of soft topics, whose truth is in another store."""

from __future__ import annotations

from collections.abc import Mapping
from sys import getsizeof
from typing import Final, Literal, NamedTuple, TypeAlias

from griphub.windows.bounds import EVENT_COST, VERSION_MAX

__all__ = ["EVERYTHING", "Place", "SoftEvent", "complete"]

Place: TypeAlias = tuple[int, int]
"""Version and stamp: a place in the order of a window's events."""

ATTRIBUTES_COST: Final = 184
"""Bytes of a mapping with one attribute, without its texts."""

ATTRIBUTE_COST: Final = 40
"""Bytes of a further one: the greatest figure, of a mapping that has just grown."""

EVERYTHING: Final[Place] = (VERSION_MAX, VERSION_MAX)
"""Place behind all events."""


class SoftEvent(NamedTuple):
    """Event in a window. Its order as a tuple is that of versions, and within a version that of arrival.

    Attributes:
        version: the source's own.
        stamp: microseconds of the clock when it was taken in, never used twice; 0 before that.
        key: key that the event changes.
        op: effect on the key.
        data: content in bytes.
        content_type: media type of the content.
        attributes: names and values beside the content.
    """

    version: int
    stamp: int
    key: str
    op: Literal["put", "delete"]
    data: bytes
    content_type: str
    attributes: Mapping[str, str]

    @property
    def place(self) -> Place:
        """Place of the event in the order of the window's events."""
        return self[:2]

    @property
    def size(self) -> int:
        """Bytes that the event counts for in the bounds of its window."""
        size = len(self.data) + len(self.key) + EVENT_COST
        if self.attributes:
            size += ATTRIBUTES_COST
            for name, value in self.attributes.items():
                size += ATTRIBUTE_COST + getsizeof(name) + getsizeof(value)
        return size


def complete(version: int) -> Place:
    """Return the place behind all events of a ``version``."""
    return version, VERSION_MAX
