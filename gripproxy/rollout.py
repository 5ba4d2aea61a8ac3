"""A rollout: new routes on their way to all workers, which have to use them from the same moment on.

Two steps: each worker is offered the routes and says when it has prepared them, however long they are; then all are
told to use them, so that only the way of one short message lies between the first and the last. Sans-I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

__all__ = ["PREPARE_TIME", "Rollout"]

PREPARE_TIME: Final = 60.0
"""Seconds for the workers to prepare routes: 20,000 lines take each of them a second of a core. One that hangs is ended
sooner, by process_beat_timeout; one that reads a key from a file system which stalls keeps the others waiting so long,
with the routes they have, and uses the new ones when it has them."""

W = TypeVar("W")


class Rollout(Generic[W]):
    """One generation of routes, offered to workers.

    Args:
        generation: its number, from 1.
        workers: those that were offered it and will answer.
        now: monotonic clock in seconds.
    """

    def __init__(self, generation: int, workers: Iterable[W], now: float) -> None:
        self.generation = generation
        self.due = now + PREPARE_TIME
        """When the workers that are prepared wait no longer."""
        self._waiting = set(workers)

    def answered(self, worker: W) -> None:
        """Note that a worker has prepared them, has refused them, or is gone."""
        self._waiting.discard(worker)

    def late(self) -> set[W]:
        """Return the workers that have not answered."""
        return set(self._waiting)

    def complete(self, now: float) -> bool:
        """Return whether the workers are to use them: all have answered, or the time is over."""
        return not self._waiting or now >= self.due
