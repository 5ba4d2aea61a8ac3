"""Messages of a watcher to its application: changes, progress, snapshots, and the request to take one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from griphub.client.errors import BadAnswer
from griphub.client.key_range import KeyRange
from griphub.client.received import ReceivedEvent

__all__ = ["Change", "Progress", "Resync", "Snapshot", "Version", "WatchMessage"]

STAMP_MAX: Final = 2**63 - 1
"""Microseconds in a cursor above all others."""

_CURSOR: Final = re.compile(r"([0-9a-z]{1,32})\.([0-9]{1,19})(?:\.[0-9]{1,19})?")


@dataclass(frozen=True, slots=True)
class Version:
    """Version of a store. Numbers are compared within one epoch only.

    Attributes:
        epoch: of the store; empty for the beginning.
        number: its number; 0 for the beginning.
    """

    epoch: str
    number: int

    @classmethod
    def of(cls, cursor: str) -> Self:
        """Return the version that a cursor names.

        Args:
            cursor: ``epoch.version``, ``epoch.version.microseconds``, or ``0`` for the beginning.

        Raises:
            BadAnswer: it is none of them.
        """
        if cursor == "0":
            return cls("", 0)
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            raise BadAnswer(f"no cursor: {cursor[:80]!r}")
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}" if self.epoch else "0"

    @property
    def end(self) -> str:
        """Cursor behind all events of the version, also of a topic in which several events share one."""
        return f"{self}.{STAMP_MAX}" if self.epoch else "0"


@dataclass(frozen=True, slots=True)
class Change:
    """All events of one transaction in the watched range. All earlier changes of the range were given before.

    Attributes:
        version: of the transaction.
        cursor: place behind it, to go on from.
        events: the events, in order, at least one.
        size: bytes of the events.
    """

    version: Version
    cursor: str
    events: tuple[ReceivedEvent, ...]
    size: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Promise that all changes of a range up to a version were given.

    Attributes:
        range: the watched range, or a part of it.
        version: the version.
        cursor: place of the version; for a part it is no place to go on from.
        whole: whether the range is the watched one.
    """

    range: KeyRange
    version: Version
    cursor: str
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the watched range at a version. It takes the place of all that was given before.

    Attributes:
        range: the watched range.
        version: the version.
        cursor: place of the version, to go on from.
        events: the last event of each key that has a value, as the hub gives them: by key.
        size: bytes of the events.
    """

    range: KeyRange
    version: Version
    cursor: str
    events: tuple[ReceivedEvent, ...]
    size: int = 0


@dataclass(frozen=True, slots=True)
class Resync:
    """Answer that changes are missing: a snapshot is needed, and the watch goes on at its version.

    Attributes:
        reason: text.
        floor_cursor: place from which all events are retained; None if the hub names none.
        snapshot: URL of the snapshot, perhaps relative to that of the watch; None if the hub names none.
    """

    reason: str
    floor_cursor: str | None = None
    snapshot: str | None = None


WatchMessage = Change | Progress | Snapshot
