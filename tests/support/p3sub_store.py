"""Store of a publisher in memory: one topic and its subscriptions, backups and restores."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field, replace
from typing import Final

from griphub.callbacks.push_event import PushEvent, push_event
from griphub.store.cursor import BEGINNING, EPOCH_SKIP, EpochInterval, is_known, parse_cursor
from griphub.topics.event_text import Epochs

__all__ = ["Row", "Store"]


@dataclass(frozen=True, slots=True)
class Row:
    """Subscription as it is stored.

    Attributes:
        number: of this one only.
        id: chosen by the reader.
        owner: key of its owner.
        callback: URL.
        after: cursor that was asked for.
        position: id up to which events were delivered.
        confirmed: whether the callback has answered its challenge.
        rest: reason of its rest; empty for none.
        failure: class of its last failure; empty for none.
    """

    number: int
    id: str
    owner: str
    callback: str
    after: str
    position: int
    confirmed: bool = False
    rest: str = ""
    failure: str = ""


@dataclass
class _Content:
    """Content of a store: all that a backup has."""

    intervals: list[EpochInterval] = field(default_factory=lambda: [EpochInterval("e0", 1, None)])
    floor: int = 0
    newest: int = 0
    time: int = 0
    numbers: int = 0
    ids: list[int] = field(default_factory=list)
    events: list[PushEvent] = field(default_factory=list)
    rows: dict[int, Row] = field(default_factory=dict)

    def next(self, wall: int, skip: int) -> tuple[int, int]:
        """Return id and time of a new event."""
        self.newest += 1 + skip
        self.time = max(wall, self.time + 1)
        return self.newest, self.time

    def trim(self, floor: int) -> None:
        """Raise the floor."""
        self.floor = max(self.floor, floor)

    def number(self) -> int:
        """Return the number of a new subscription."""
        self.numbers += 1
        return self.numbers

    def copy(self) -> _Content:
        """Return a copy."""
        return replace(self, intervals=[*self.intervals], ids=[*self.ids], events=[*self.events], rows={**self.rows})


class Store:
    """Store as it is committed.

    Args:
        content: of a backup; None for an empty store.

    Attributes:
        epochs: names of the epochs.
        rows: subscriptions by number.
    """

    def __init__(self, content: _Content | None = None) -> None:
        self._content = content or _Content()
        self.epochs: Final = Epochs(self._content.intervals)
        self.rows: Final = self._content.rows

    @property
    def floor(self) -> int:
        """Id up to which events are not retained."""
        return self._content.floor

    @property
    def newest(self) -> int:
        """Greatest id that was issued, also to events of other topics."""
        return self._content.newest

    @property
    def last(self) -> int:
        """Id of the topic's last event; 0 for none."""
        ids = self._content.ids
        return ids[-1] if ids else 0

    def commit(self, wall: float, skip: int, size: int = 0) -> PushEvent:
        """Store an event.

        Args:
            wall: seconds since 1970 by the publisher's clock.
            skip: events of other topics before it.
            size: bytes of its content at least.

        Returns:
            The event.
        """
        id, time = self._content.next(int(wall * 1e6), skip)
        row = (
            id,
            self.last,
            id,
            time,
            b"%d" % id if not size else b'"%b"' % (b"x" * size),
            "application/json",
            None,
            0,
            None,
            size,
        )
        event = push_event(row, self.epochs)
        self._content.ids.append(id)
        self._content.events.append(event)
        return event

    def page(self, after: int, limit: int, until: int) -> tuple[list[PushEvent], int, bool]:
        """Return events, the id up to which they are complete, and whether further ones follow.

        Args:
            after: id below the first event.
            limit: greatest number of events.
            until: greatest id.
        """
        ids = self._content.ids
        begin = bisect.bisect_right(ids, max(after, self.floor))
        end = bisect.bisect_right(ids, until)
        events = self._content.events[begin : min(end, begin + limit)]
        more = end - begin > limit
        return events, events[-1].id if more else max(until, after), more

    def knows(self, cursor: str, newest: int) -> int | None:
        """Return the id of a place; None if it is gone, or lies below the floor.

        Args:
            cursor: of the place.
            newest: greatest id that counts.
        """
        place = parse_cursor(cursor)
        if not is_known(place, self._content.intervals, newest) or place.id < self.floor:
            return None
        return 0 if place == BEGINNING else place.id

    def trim(self, events: int) -> str:
        """Raise the floor.

        Args:
            events: number of events that are kept.

        Returns:
            Cursor of the floor.
        """
        ids = self._content.ids
        if len(ids) > events:
            self._content.trim(ids[-events - 1])
        return self.epochs.cursor(self.floor)

    def next_number(self) -> int:
        """Return the number of a new subscription."""
        return self._content.number()

    def backup(self) -> Store:
        """Return a copy."""
        return Store(self._content.copy())

    def restored(self, epoch: str) -> Store:
        """Return a copy in a new epoch, as a restore of this backup makes it.

        Args:
            epoch: its name.
        """
        content = self._content.copy()
        last, newest = content.intervals[-1], content.newest
        first = newest + 1 + EPOCH_SKIP
        intervals = [*content.intervals[:-1], EpochInterval(last.epoch, last.first, newest)]
        return Store(replace(content, intervals=[*intervals, EpochInterval(epoch, first, None)], newest=first - 1))
