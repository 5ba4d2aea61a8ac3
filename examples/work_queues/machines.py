"""The machines, and the ranges of them that workers own."""

from __future__ import annotations

from griphub import KeyRange

MACHINES = [f"machine-{number:02}" for number in range(1, 13)]

SIZE = 3
"""Machines of a range."""

STARTS = MACHINES[::SIZE]

RANGES = [KeyRange(low, high) for low, high in zip(STARTS, [*STARTS[1:], None], strict=True)]


def named(range: KeyRange) -> str:
    """Return the machines of a range as text."""
    keys = [key for key in MACHINES if key in range]
    return f"{keys[0]} to {keys[-1].removeprefix('machine-')}"
