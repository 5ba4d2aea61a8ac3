"""Cursors: places in the order of all events, as clients keep them.

An id alone is no place: a store restored from a backup has other events above it. So each restore begins an epoch and
skips ids, and the store keeps the interval of ids of each epoch. A cursor outside the interval of its epoch, or above
the newest id, is *gone*: its events do not exist, and a request with it does not wait for them.

Progress of a watch has a cursor with a third part, which makes it different from all others: it is read as the place of
its version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from griphub.store.errors import BadCursor

__all__ = ["BEGINNING", "EPOCH_SKIP", "Cursor", "EpochInterval", "is_known", "parse_cursor"]

EPOCH_SKIP: Final = 2**32
"""Ids skipped by a restore: those issued after the backup, and lost with the disk, are not issued again."""

_CURSOR: Final = re.compile(r"([0-9a-z]{1,32})\.([0-9]{1,19})(?:\.[0-9]{1,19})?")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place: behind the event with ``id``.

    Attributes:
        epoch: of the store when the client received the cursor; empty for the beginning.
        id: of the event; 0 for the beginning.
    """

    epoch: str
    id: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.id}" if self.epoch else str(self.id)


BEGINNING: Final = Cursor("", 0)
"""Place before the first event of a topic."""


@dataclass(frozen=True, slots=True)
class EpochInterval:
    """Ids issued in an epoch.

    Attributes:
        epoch: its name.
        first: least id of the epoch.
        last: greatest id of the epoch; None for the current one.
    """

    epoch: str
    first: int
    last: int | None


def parse_cursor(text: str) -> Cursor:
    """Read a parameter that names a place.

    Args:
        text: ``epoch.id``, ``epoch.version.microseconds`` of progress, or ``0``. A bare id is refused: after a restore
            it may name another event.

    Returns:
        The cursor.

    Raises:
        BadCursor: it is neither.
    """
    if text == "0":
        return BEGINNING
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise BadCursor(f"{text[:80]!r} is no cursor: expected EPOCH.ID as an answer of the hub gave it, or 0")
    return Cursor(match[1], int(match[2]))


def is_known(cursor: Cursor, intervals: Sequence[EpochInterval], newest: int) -> bool:
    """Return whether a place is one of this store: False means that it is gone.

    Args:
        cursor: the place.
        intervals: those of all epochs of the store.
        newest: the store's newest id.
    """
    if cursor.id > newest:
        return False
    if not cursor.epoch:
        return cursor.id == 0
    return any(
        interval.epoch == cursor.epoch
        and interval.first - 1 <= cursor.id <= (newest if interval.last is None else interval.last)
        for interval in intervals
    )
