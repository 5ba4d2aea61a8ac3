"""Snapshot of the source of a soft topic, as the application reads it. Sans-I/O.

The hub keeps the last changes of a source, and not its state. A watch of them begins at the version of a snapshot that
the application has read, in the epoch of the hub's window.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from griphub.client.key_range import KeyRange
from griphub.client.received import ReceivedEvent
from griphub.client.watch_messages import Version

__all__ = ["BEGINNING", "SourceSnapshot", "SourceSnapshots"]

BEGINNING: Final = "none.0"
"""Cursor of no store: the hub answers it with the epoch and the floor of its window, whichever they are. ``0`` would
be a place of a source whose progress began with version 0."""

VERSION_MAX: Final = 2**63 - 1
"""Greatest version of a source."""


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """Values of a range of keys at one version of the source of a soft topic.

    Attributes:
        version: of the source, as its ingester names it, from 0 below 2^63.
        values: JSON value, text or bytes of each key that has one. Keys of other ranges are passed over.
        content_type: media type of the values; None for ``application/octet-stream`` of bytes, and ``application/json``
            of others.

    Raises:
        ValueError: the version is none.
    """

    version: int
    values: Mapping[str, Any]
    content_type: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.version, bool) or not isinstance(self.version, int) or not 0 <= self.version <= VERSION_MAX:
            raise ValueError(f"version={self.version!r:.80}: expected a whole number from 0 to {VERSION_MAX}")

    def place(self, floor: Version) -> Version:
        """Return the version in the epoch of the hub's window.

        Args:
            floor: version behind which the window has all changes.
        """
        return Version(floor.epoch, self.version)

    def events(self, floor: Version) -> Iterator[ReceivedEvent]:
        """Yield the values as events of a snapshot of the hub.

        Args:
            floor: version behind which the window has all changes.

        Yields:
            An event for each key, in the order of the values.
        """
        place = str(self.place(floor))
        for key, data in self.values.items():
            content_type = self.content_type or _type_of(data)
            document = {"type": "event", "cursor": place, "version": str(self.version), "key": key, "op": "put"}
            document |= {"content_type": content_type, "data": data}
            yield ReceivedEvent("", place, "", place, "", key, "put", content_type, {}, data, document)


SourceSnapshots = Callable[[KeyRange], Awaitable[SourceSnapshot | None]]
"""Function of the application that reads a snapshot of the source; None if there is none at the moment."""


def _type_of(data: Any) -> str:
    return "application/octet-stream" if isinstance(data, bytes | bytearray) else "application/json"
