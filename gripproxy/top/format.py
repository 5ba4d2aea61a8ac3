"""Format of counts, rates, bytes and times as text: short enough for a column, exact while that is short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["UNKNOWN", "age", "bytes_rate", "count", "known", "rate", "shown", "spark"]

UNKNOWN: Final = "-"
_BLOCKS: Final = "▁▂▃▄▅▆▇█"


def count(value: int) -> str:
    """Return ``value`` as ``1,234,567``, from a hundred million on as ``123.5M``."""
    if value < 100_000_000:
        return f"{value:,}"
    for size, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G")):
        if value >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value / 1e6:.1f}M"


def known(value: int | None) -> str:
    """Return ``value`` as a count; a dash for None."""
    return UNKNOWN if value is None else count(value)


def rate(value: float | None) -> str:
    """Return ``value`` per second, with a decimal below 100; a dash for None."""
    if value is None:
        return UNKNOWN
    if not value:
        return "0"
    # A small rate must not look like 0.
    return f"{max(value, 0.1):.1f}" if value < 99.95 else count(round(value))


def bytes_rate(value: float | None) -> str:
    """Return ``value`` in bytes per second, with a unit; a dash for None."""
    if value is None:
        return UNKNOWN
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= 0.9995 * size:
            return f"{value / size:.{1 if value < 99.95 * size else 0}f} {unit}/s"
    return f"{round(value)} B/s"


def age(seconds: float | None) -> str:
    """Return ``seconds`` as ``now`` (under a second), ``12 s``, ``3 min``, ``2 h``, ``4 d``; a dash for None."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return "now"
    for size, limit, unit in ((1, 60, "s"), (60, 3600, "min"), (3600, 86_400, "h")):
        if seconds < limit:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds / 86_400)} d"


def spark(values: Sequence[float], width: int) -> str:
    """Return values as a line of bars.

    Args:
        values: rates, the oldest first.
        width: greatest number of bars; the last values are used.

    Returns:
        A full bar for the greatest value, a dot for 0.
    """
    last = values[-width:] if width > 0 else []
    top = max(last, default=0.0)
    return "".join(_BLOCKS[min(7, int(value / top * 8))] if value else "·" for value in last)


def shown(text: str) -> str:
    """Escape all characters of an untrusted text that are not printable.

    These could move the cursor, change colours, or turn the direction of writing.

    Args:
        text: name or reason.

    Returns:
        The printable text.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
