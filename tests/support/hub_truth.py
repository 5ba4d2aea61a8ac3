"""Truth about one topic: the events of a history wherever they were seen, and the values at each version. Sans-I/O.

A restore takes events away, so what was true at a version is told from the side of that version: events that were lost
before it are not there, and those that were lost later are.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.support.hub_records import Event, Got, History, Keys

__all__ = ["Truth"]


class Truth:
    """Events of a history, with those of each range and of each key in order.

    Args:
        history: complete.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.versions: dict[int, int] = {}
        """Version of each event."""
        self.keys: dict[int, str | None] = {}
        """Key of each event."""
        self._deletions: set[int] = set()
        for event in history.store:
            self._store(event)
        for restored in history.restores:
            for event in restored.events or ():
                self._store(event)
        for answer in history.answers:
            request = history.requests[answer.request]
            for id, key, content in zip(answer.ids, request.keys, request.contents, strict=False):
                self._add(id, answer.version, key, deletes=content in request.deletions)
        for step in history.steps:
            if isinstance(step, Got):
                self._add(step.id, step.version, step.key, deletes=step.op == "delete")
        self._ids = sorted(self.versions)
        self._ranges: dict[Keys, list[int]] = {}
        self._of_key: dict[str, list[int]] = defaultdict(list)
        for id in self._ids:
            key = self.keys[id]
            if key is not None:
                self._of_key[key].append(id)

    def _store(self, event: Event) -> None:
        self._add(event.id, event.version, event.key, deletes=event.op == "delete")

    def _add(self, id: int, version: int, key: str | None, *, deletes: bool) -> None:
        if id not in self.versions:
            self.versions[id] = version
            self.keys[id] = key
            if deletes:
                self._deletions.add(id)

    def _of_range(self, keys: Keys) -> list[int]:
        found = self._ranges.get(keys)
        if found is None:
            found = self._ranges[keys] = [id for id in self._ids if keys.has(self.keys[id])]
        return found

    def lost(self, keys: Keys, place: int, id: int) -> bool:
        """Return whether a restore that has lost a place has lost an event of a range up to there too.

        Args:
            keys: the range.
            place: the place.
            id: that was issued later; restores behind it do not count, nor do those before the place.
        """
        ids = self._of_range(keys)
        ids = ids[: bisect.bisect_right(ids, place)]
        restores = [each for each in self.history.restores if each.lost(place) and id >= each.first - 1]
        return any(restored.lost(each) for restored in restores for each in ids)

    def between(self, keys: Keys, after: int, id: int, *, inclusive: bool = False) -> list[int]:
        """Return the ids of a range between two places, those that were lost before the second one left out.

        Args:
            keys: the range.
            after: id below all of them.
            id: the second place.
            inclusive: whether that one is among them.
        """
        ids, lost = self._of_range(keys), self.history.lost_before
        found = ids[bisect.bisect_right(ids, after) : bisect.bisect_left(ids, id + inclusive)]
        return [each for each in found if not lost(each, id)] if self.history.restores else found

    def previous(self, keys: Keys, id: int) -> int:
        """Return the id before one, of its range and topic; 0 for none.

        Args:
            keys: the range.
            id: of an event.
        """
        found = self._last(self._of_range(keys), id - 1, id)
        return found if found > self.history.birth(id) else 0

    def _last(self, ids: Sequence[int], most: int, later: int) -> int:
        """Return the last of some ids up to a greatest one that was not lost before another id; 0 for none."""
        place = bisect.bisect_right(ids, most) - 1
        while place >= 0 and self.history.lost_before(ids[place], later):
            place -= 1
        return ids[place] if place >= 0 else 0

    def values(self, ranges: Iterable[Keys], version: int) -> dict[str, int]:
        """Return the ids of the events that are the values of some ranges at a version, by their keys.

        Args:
            ranges: the ranges.
            version: the version.
        """
        ranges, birth = list(ranges), self.history.birth(version)
        found: dict[str, int] = {}
        for key, ids in self._of_key.items():
            if any(each.has(key) for each in ranges):
                id = self._last(ids, version, version)
                if id > birth and id not in self._deletions:
                    found[key] = id
        return found
