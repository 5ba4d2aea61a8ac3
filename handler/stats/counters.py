"""Counters of the handler, and totals reported by the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Counters"]

MAX_NAMES: Final = 1000
"""Greatest number of counter names of workers. There are a few dozen; more mean two incompatible versions."""


@dataclass(slots=True)
class Counters:
    """Totals since the handler started."""

    received: int = 0
    """Valid items, duplicates included."""
    pull: int = 0
    """Valid items by way in: ZeroMQ PULL, SUB, HTTP, command socket."""
    sub: int = 0
    http: int = 0
    command: int = 0
    invalid: int = 0
    """Invalid items, from any way in."""
    duplicates: int = 0
    """Items dropped because their id was known (docs/grip.md §5.4)."""
    unheard: int = 0
    """Items on channels without subscription."""
    passed: int = 0
    """Items sent to workers, once for each worker."""
    overflows: int = 0
    """Times a worker's full queue was dropped."""
    workers: dict[str, int] = field(default_factory=dict)
    """Totals reported by the workers, by name."""

    runner: dict[tuple[str, str], int] = field(default_factory=dict)
    """Warnings and errors of the runner, by level and event."""

    @property
    def taken(self) -> int:
        """Items that were not duplicates."""
        return self.received - self.duplicates

    def logged(self, level: str, event: str) -> None:
        """Count a warning or an error of the runner.

        Args:
            level: ``error`` or ``warning``.
            event: its name.
        """
        self.runner[level, event] = self.runner.get((level, event), 0) + 1

    def add(self, deltas: Mapping[object, object]) -> None:
        """Add the deltas of a worker; entries that are not a number by name are ignored.

        Args:
            deltas: content of STATS.
        """
        totals = self.workers
        for name, delta in deltas.items():
            if type(name) is str and type(delta) is int and (name in totals or len(totals) < MAX_NAMES):
                totals[name] = totals.get(name, 0) + delta
