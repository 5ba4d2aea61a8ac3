"""Rollout of new routes to all workers, which have to use them from one moment on. Decisions, sans-I/O.

Two phases, as in a two-phase commit: each worker is offered the routes and answers when it has prepared them, however
long they are; then all are sent the message to use them, so that only the travel time of one short message lies between
the first and the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

__all__ = ["PREPARE_TIME", "Rollout"]

PREPARE_TIME: Final = 60.0
"""Seconds for the workers to prepare routes: 20,000 lines take each of them a second of a core. One that hangs is ended
sooner, by process_beat_timeout. One that reads a key from a file system which stalls delays the others this long; they
keep the routes they have. It uses the new ones when it has them."""

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
        """Time at which prepared workers stop waiting for the others, monotonic clock in seconds."""
        self._waiting = set(workers)

    def answered(self, worker: W) -> None:
        """Note that ``worker`` has prepared the routes, has refused them, or has ended."""
        self._waiting.discard(worker)

    def late(self) -> set[W]:
        """Return the workers that have not answered."""
        return set(self._waiting)

    def complete(self, now: float) -> bool:
        """Return whether the workers are to use the routes: all have answered, or the time is over.

        Args:
            now: monotonic clock in seconds.
        """
        return not self._waiting or now >= self.due
