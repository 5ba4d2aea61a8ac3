"""Places of a subscriber in a topic, and events as links of the chain."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Self

from griphub.client.errors import BadAnswer
from griphub.client.received import ReceivedEvent

__all__ = ["Link", "Place", "seconds_of"]

_CURSOR: Final = re.compile(r"([0-9a-z]{1,32})\.([0-9]{1,19})")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Place:
    """Place in a topic: behind the event with the number. Numbers are compared within one epoch only.

    Attributes:
        epoch: of the publisher's store; empty for the beginning.
        number: id of the event; 0 for the beginning.
    """

    epoch: str
    number: int

    @classmethod
    def of(cls, cursor: str) -> Self:
        """Return the place of a cursor.

        Args:
            cursor: ``epoch.number``, or ``0`` for the beginning.

        Raises:
            BadAnswer: it is neither.
        """
        if cursor == "0":
            return cls("", 0)
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            raise BadAnswer(f"no cursor: {cursor[:80]!r}")
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}" if self.epoch else "0"

    def covers(self, other: Place) -> bool:
        """Return whether this place is certainly not before an ``other`` one."""
        return self.epoch == other.epoch and other.number <= self.number


class Link(NamedTuple):
    """Event as a link of the chain."""

    event: ReceivedEvent
    place: Place
    previous: int

    @classmethod
    def of(cls, event: ReceivedEvent) -> Link:
        """Return the link of an event.

        Args:
            event: as received.

        Raises:
            BadAnswer: it names no earlier event before it.
        """
        place = Place.of(event.cursor)
        if _NUMBER.fullmatch(event.prev_id) is None or not int(event.prev_id) < place.number:
            raise BadAnswer(f"prev_id {event.prev_id[:80]!r} of {place} is not the id of an earlier event")
        return cls(event, place, int(event.prev_id))


def seconds_of(time: str) -> float | None:
    """Return a time of RFC 3339 in seconds since 1970; None if it is none, or has no zone."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.timestamp()
