"""Amounts as text: counts, rates, bytes, times; short enough for a column, exact as long as that is short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["UNKNOWN", "age", "bytes_rate", "count", "known", "rate", "shown", "spark"]

UNKNOWN: Final = "-"
_BLOCKS: Final = "▁▂▃▄▅▆▇█"


def count(value: int) -> str:
    """Return a count: ``1,234,567``, from a hundred million on ``123.5M``."""
    if value < 100_000_000:
        return f"{value:,}"
    for size, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G")):
        if value >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value / 1e6:.1f}M"


def known(value: int | None) -> str:
    """Return a count; a dash for None."""
    return UNKNOWN if value is None else count(value)


def rate(value: float | None) -> str:
    """Return a rate, with a decimal as long as that says something; a dash for None."""
    if value is None:
        return UNKNOWN
    if not value:
        return "0"
    # Not to be mistaken for nothing.
    return f"{max(value, 0.1):.1f}" if value < 99.95 else count(round(value))


def bytes_rate(value: float | None) -> str:
    """Return bytes per second; a dash for None."""
    if value is None:
        return UNKNOWN
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= 0.9995 * size:
            return f"{value / size:.{1 if value < 99.95 * size else 0}f} {unit}/s"
    return f"{round(value)} B/s"


def age(seconds: float | None) -> str:
    """Return a time span: ``now`` (under a second), ``12 s``, ``3 min``, ``2 h``, ``4 d``; a dash for None."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return "now"
    for size, limit, unit in ((1, 60, "s"), (60, 3600, "min"), (3600, 86_400, "h")):
        if seconds < limit:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds / 86_400)} d"


def spark(values: Sequence[float], width: int) -> str:
    """Return the last ``width`` values as a line of bars, the highest of them being full. Nothing is a dot."""
    last = values[-width:] if width > 0 else []
    top = max(last, default=0.0)
    return "".join(_BLOCKS[min(7, int(value / top * 8))] if value else "·" for value in last)


def shown(text: str) -> str:
    """Return a name from outside as it may be written to a terminal.

    Nothing in it can move the cursor, change colours, or turn the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
