"""Auto-sharder: it assigns ranges of keys to cache servers, and moves them from one to another all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from journal import Journal

from griphub import KeyRange

WRITERS_HEAR_AFTER = 1.0
"""Seconds until writers know of a move. The servers concerned know of it directly, or else they could not serve. But
writers are other programs, any number of them, that look into the table of assignments now and then, as into DNS: a
second is a short time for that."""

CRASH = 20
"""Every so many moves the old owner has crashed, and hands nothing over."""


class Node(Protocol):
    """A cache server, as the sharder sees it."""

    def assign(self, ranges: Sequence[KeyRange], knowledge: Any = None) -> None:
        """Have exactly these ``ranges``; the ``knowledge`` is of those that are new."""

    def knowledge(self, keys: KeyRange) -> Any:
        """Return the knowledge of ``keys`` that their next owner can use."""


class Sharder:
    """Assignment of ranges to servers.

    Args:
        ranges: of all keys.
        clusters: servers by their names, of each kind. All clusters have the same assignment.
        journal: receives each move.
    """

    def __init__(self, ranges: Sequence[KeyRange], clusters: Sequence[Mapping[str, Node]], journal: Journal) -> None:
        self._ranges = ranges
        self._clusters = clusters
        self._journal = journal
        self.moves = 0
        names = list(clusters[0])
        self.owners = {keys: names[index % len(names)] for index, keys in enumerate(ranges)}
        """The truth."""
        self.known_to_writers = dict(self.owners)
        """The truth of a second ago."""
        for cluster in clusters:
            for name, node in cluster.items():
                node.assign(self._of(name))

    def range_of(self, key: str) -> KeyRange:
        """Return the range that a ``key`` is in."""
        return next(keys for keys in self._ranges if key in keys)

    def move(self, keys: KeyRange, target: str) -> None:
        """Give a range to another server. Both servers know of it directly, writers later.

        Args:
            keys: the range.
            target: name of the server.
        """
        source, self.owners[keys] = self.owners[keys], target
        self.moves += 1
        self._journal.note(keys, f"the sharder moves {keys} from {source} to {target}")
        for cluster in self._clusters:
            knowledge = None if self.moves % CRASH == 0 else cluster[source].knowledge(keys)
            cluster[source].assign(self._of(source))
            cluster[target].assign(self._of(target), knowledge)
        asyncio.get_running_loop().call_later(WRITERS_HEAR_AFTER, self._inform_writers, keys, target)

    def _inform_writers(self, keys: KeyRange, target: str) -> None:
        self.known_to_writers[keys] = target
        self._journal.note(keys, f"the writers hear that {keys} is at {target}")

    def _of(self, name: str) -> list[KeyRange]:
        return [keys for keys, owner in self.owners.items() if owner == name]
