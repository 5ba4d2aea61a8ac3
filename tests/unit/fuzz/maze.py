"""A function with a bug that chance does not find, but one step after the other does."""

from __future__ import annotations


def enter(data: bytes) -> int:
    """Return how deep an input gets. Raises ZeroDivisionError at the end of the maze."""
    if data[:1] != b"M":
        return 0
    if data[1:2] != b"A":
        return 1
    if data[2:3] != b"Z":
        return 2
    if data[3:4] != b"E":
        return 3
    return 1 // 0
