"""Sharder: gives ranges of keys to workers. Sans-I/O, and with the weakness of all sharders.

A worker asks again and again (a *beat*), and the answer is its ranges. A range leaves its owner in one of two ways:
asked for, and confirmed by the owner's next beat; or after a lease without a beat. In the second case the sharder
cannot know if the owner is dead or only slow: for some time two workers may believe that a range is theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from griphub import KeyRange


class Sharder:
    """Ranges and their owners.

    Args:
        ranges: all ranges.
        lease: seconds without a beat after which the ranges of a worker go to others.
        on_taken: receives range, old and new owner if a range was taken from a silent worker.
    """

    def __init__(
        self, ranges: Iterable[KeyRange], lease: float, on_taken: Callable[[KeyRange, str, str], object] | None = None
    ) -> None:
        self.owners: dict[KeyRange, str | None] = dict.fromkeys(ranges)
        self._lease = lease
        self._on_taken = on_taken
        self._seen: dict[str, float] = {}
        self._leaving: set[KeyRange] = set()

    def beat(self, worker: str, now: float) -> set[KeyRange]:
        """Return the ranges of a worker that is alive now.

        Args:
            worker: its name.
            now: monotonic time, seconds.
        """
        self._seen[worker] = now
        self._seen = {name: seen for name, seen in self._seen.items() if now - seen <= self._lease}
        for range, owner in self.owners.items():
            confirmed = owner == worker and range in self._leaving
            if owner not in self._seen or confirmed:
                new = self.owners[range] = min(self._seen, key=self._load)
                self._leaving.discard(range)
                if owner is not None and not confirmed and self._on_taken is not None:
                    self._on_taken(range, owner, new)
        self._balance(worker)
        return {range for range, owner in self.owners.items() if owner == worker} - self._leaving

    def _balance(self, worker: str) -> None:
        """Ask a worker for a range if another one has two less. It is given away when the worker has confirmed it."""
        own = [range for range, owner in self.owners.items() if owner == worker and range not in self._leaving]
        if not self._leaving and len(own) > 1 + min(map(self._load, self._seen)):
            self._leaving.add(own[0])

    def _load(self, worker: str) -> int:
        return Counter(self.owners.values())[worker]
