"""Judgement of one phase of a hostile run: lateness of items, disconnects, and how late the machine itself was."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.faults.history import History

__all__ = [
    "ALLOWED",
    "FOREIGN_MAX",
    "HOPS",
    "RATIO",
    "Phase",
    "delays_between",
    "disconnects",
    "latencies",
    "limit",
    "percentile",
]

ALLOWED: Final = 0.25
"""Seconds that the 99th percentile may always be."""

RATIO: Final = 3.0
"""How much slower than in quiet times items may be."""

HOPS: Final = 5
"""Processes that wake up between an item's writing and its arrival: publisher, handler, worker, client, and for a
long-poll the backend. The witness tells how late each of them was woken by the machine."""


FOREIGN_MAX: Final = 0.8
"""Share of the processors used by others beyond which no more is allowed for it."""


@dataclass(frozen=True)
class Phase:
    """One part of a run: its name, and when it began and ended, in seconds of the monotonic clock."""

    name: str
    begun: float
    ended: float


def percentile(values: Sequence[float], share: float = 0.99) -> float:
    """Return the smallest value that so many of the values do not exceed; nought of none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0


def latencies(history: History, phase: Phase) -> list[float]:
    """Return the seconds from writing an item to its arrival, for each item written in the phase and each client.

    An item that has not arrived counts as infinitely late.
    """
    wrote = {
        (record.values[0], record.values[1]): record.at
        for record in history.select("wrote")
        if phase.begun <= record.at < phase.ended
    }
    listeners: dict[str, set[str]] = {}
    for record in history.select("opened"):
        listeners.setdefault(record.values[1], set()).add(record.who)
    arrived: dict[tuple[str, int], dict[str, float]] = {}
    for record in history.select("got"):
        key = (record.values[1], record.values[2])
        if key in wrote:
            arrived.setdefault(key, {}).setdefault(record.who, record.at)
    found = []
    for key, at in wrote.items():
        times = arrived.get(key, {})
        found += [times.get(client, math.inf) - at for client in listeners.get(key[0], ())]
    return found


def disconnects(history: History, phase: Phase) -> list[str]:
    """Return a line for each session that ended otherwise than by an answer, in the phase."""
    return [
        f"{record.who}: {record.values[1]}"
        for record in history.select("ended")
        if record.values[1] and phase.begun <= record.at < phase.ended
    ]


def delays_between(delays: Iterable[tuple[float, float]], phase: Phase) -> list[float]:
    """Return how late the witness was in the phase, in seconds."""
    return [late for at, late in delays if phase.begun <= at < phase.ended]


def limit(quiet: float, late: float, foreign: float = 0.0, always: float = ALLOWED) -> float:
    """Return the greatest 99th percentile that a phase may have, in seconds.

    Args:
        quiet: the 99th percentile of the quiet phase, in seconds.
        late: the 99th percentile of the witness's lateness in the phase that is judged, in seconds.
        foreign: the share of the machine's processors that processes other than those of the run have used in it.
        always: what it may always be, in seconds.
    """
    return max(RATIO * quiet, always) / (1 - min(foreign, FOREIGN_MAX)) + HOPS * late
