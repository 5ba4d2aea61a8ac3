"""Crew: workers that bring machines to their desired state in one way, and all that they share."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

from faults import Faults
from machines import RANGES, named
from sharder import Sharder

from griphub import KeyRange

LEASE = 0.8
"""Seconds without a beat after which the sharder takes the ranges of a worker away."""


class Crew:
    """State of a way of working outside of its workers.

    Args:
        title: short name of the way.
        topic: name of the topic that has the actual state.
        url: of the hub.
        last: last release that will be desired.
        note: prints a line.
    """

    def __init__(self, title: str, topic: str, url: str, last: int, note: Callable[[str], None]) -> None:
        self.title = title
        self.topic = topic
        self.url = url
        self.faults = Faults(last)
        self.sharder = Sharder(RANGES, LEASE, self._taken)
        self.counts: Counter[str] = Counter()
        self.offsets: dict[KeyRange, str] = {}
        """Cursors up to which the steps of a range are acknowledged; a broker keeps them for its group of consumers."""
        self.under_way = 0
        """Number of actions under way, those of stopped workers too."""
        self._note = note

    def note(self, text: str) -> None:
        """Print a line."""
        self._note(f"{self.title:<10} {text}")

    @contextlib.contextmanager
    def action(self) -> Iterator[None]:
        """Count an action that is under way."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    def acknowledge(self, range: KeyRange, worker: str, cursor: str) -> None:
        """Note that a step is done. A good broker refuses this to a former owner, and so does this one.

        Args:
            range: of the step.
            worker: name of the one that has carried it out.
            cursor: of the step.
        """
        if self.sharder.owners[range] == worker:
            self.offsets[range] = cursor

    def _taken(self, range: KeyRange, old: str, new: str) -> None:
        self.note(f"{old} is silent: the sharder gives {named(range)} to {new}")


def now() -> float:
    """Return monotonic time, seconds."""
    return asyncio.get_running_loop().time()
