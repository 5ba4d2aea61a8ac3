"""Sweep of the SQLite engine: finds the floor that a retention demands, and the rows that it does not retain.

Each look is at a bounded number of rows. In a topic without compaction all rows below the floor are deleted before the
next demand, so that its counts are those of the retained events. In a compacted topic rows below the floor stay, so
those above it are counted here, a span at a time.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from griphub.store.retention import SLICE, SPAN, Excess, excess_of
from griphub.store.topic import Topic

__all__ = ["Doomed", "Sweep"]

_DELETE: Final = 1
"""Number of the operation ``delete`` in the table."""


@dataclass(frozen=True, slots=True)
class Doomed:
    """Rows to delete.

    Attributes:
        rows: id and size in bytes of each.
        passed: id up to which the topic was looked at; 0 if that is not remembered.
        more: whether further rows may follow.
    """

    rows: list[tuple[int, int]]
    passed: int
    more: bool


@dataclass(slots=True)
class _Retained:
    """Events above the floor of a compacted topic, as far as they were counted."""

    upto: int
    events: int = 0
    size: int = 0


class Sweep:
    """Finds rows of one store.

    Args:
        connection: of the only writer.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._fetch = connection.execute
        self._compacted: dict[int, int] = {}
        """Ids up to which compacted topics were looked at."""
        self._retained: dict[int, _Retained] = {}

    def forget(self, number: int) -> None:
        """Forget the topic with ``number``."""
        self._compacted.pop(number, None)
        self._retained.pop(number, None)

    def wanted(self, topic: Topic, now: int) -> int:
        """Return the floor that a topic's retention demands; never lower than its floor now.

        Args:
            topic: the topic.
            now: time in microseconds since 1970.
        """
        retention, floor = topic.settings.retention, topic.floor
        if retention.age is not None:
            floor = max(floor, self._before(topic.number, now - round(retention.age * 1_000_000)))
        if retention.events is None and retention.bytes is None:
            return floor
        if retention.compact:
            excess = self._excess_of_compacted(topic)
        elif self._fetch("select 1 from event where t = ? and id <= ? limit 1", (topic.number, topic.floor)).fetchone():
            return floor
        else:
            excess = excess_of(retention, topic.count, topic.bytes)
        if excess:
            rows = self._fetch(
                "select id, size from event where t = ? and id > ? order by id limit ?",
                (topic.number, topic.floor, SPAN),
            )
            floor = max(floor, excess.passed(rows))
        return floor

    def raised(self, topic: Topic, floor: int) -> None:
        """Take note of a floor that is about to rise.

        Args:
            topic: the topic before.
            floor: its next floor.
        """
        counted = self._retained.get(topic.number)
        if counted is None:
            return
        passed, size = self._fetch(
            "select count(*), coalesce(sum(size), 0) from"
            " (select size from event where t = ? and id > ? and id <= ? limit ?)",
            (topic.number, topic.floor, min(floor, counted.upto), SPAN + 1),
        ).fetchone()
        if passed > SPAN or floor > counted.upto:
            self._retained[topic.number] = _Retained(floor)
        else:
            counted.events -= passed
            counted.size -= size

    def doomed(self, topic: Topic) -> Doomed:
        """Return a slice of the rows of a ``topic`` that are not retained."""
        if topic.settings.retention.compact:
            return self._doomed_of_compacted(topic)
        rows = self._fetch(
            "select id, size from event where t = ? and id <= ? order by id limit ?", (topic.number, topic.floor, SLICE)
        ).fetchall()
        return Doomed(rows, 0, len(rows) == SLICE)

    def deleted(self, topic: Topic, doomed: Doomed) -> None:
        """Take note that rows were deleted.

        Args:
            topic: their topic.
            doomed: the rows, all of the slice.
        """
        if doomed.passed:
            self._compacted[topic.number] = doomed.passed

    def _before(self, number: int, moment: int) -> int:
        """Return the id of the last event of a topic not later than a time; 0 for none."""
        row = self._fetch("select id from event where ts <= ? order by ts desc limit 1", (moment,)).fetchone()
        if row is None:
            return 0
        (newest,) = self._fetch("select max(id) from event where t = ? and id <= ?", (number, row[0])).fetchone()
        return newest or 0

    def _excess_of_compacted(self, topic: Topic) -> Excess:
        counted = self._retained.setdefault(topic.number, _Retained(topic.floor))
        events, size, upto = self._fetch(
            "select count(*), coalesce(sum(size), 0), max(id) from"
            " (select id, size from event where t = ? and id > ? order by id limit ?)",
            (topic.number, counted.upto, SPAN),
        ).fetchone()
        if events:
            counted.upto = upto
            counted.events += events
            counted.size += size
        return excess_of(topic.settings.retention, counted.events, counted.size)

    def _doomed_of_compacted(self, topic: Topic) -> Doomed:
        """Return events below the floor that are superseded, deletions, and events without key."""
        fetch, number = self._fetch, topic.number
        passed = fetch(
            "select id, key, op, size from event where t = ? and id > ? and id <= ? order by id limit ?",
            (number, self._compacted.get(number, 0), topic.floor, SLICE),
        ).fetchall()
        rows: dict[int, int] = {}
        newest: dict[str, int] = {}
        for id, key, op, size in passed:
            if key is None or op == _DELETE:
                rows[id] = size
            if key is not None:
                newest[key] = id
        for key, id in newest.items():
            rows.update(fetch("select id, size from event where t = ? and key = ? and id < ?", (number, key, id)))
        return Doomed(sorted(rows.items()), passed[-1][0] if passed else 0, len(passed) == SLICE)
