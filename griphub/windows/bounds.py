"""Bounds of windows, and the error of a request beyond one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal, TypeAlias

from gripproxy.grip.errors import ClientError

__all__ = ["EVENT_COST", "VERSION_MAX", "Whose", "WindowBounds", "WindowLimit"]

Whose: TypeAlias = Literal["owner", "window", "total"]

VERSION_MAX: Final = 2**63 - 1
"""Greatest version that a source may give."""

EVENT_COST: Final = 500
"""Bytes that an event counts for beside its content: its fields, its entry by key, its places in lists."""


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """Bounds of windows.

    A window beyond its bound of events or bytes drops the oldest released events; when only others are left, it resets
    the pieces that lag most: an ingester without progress must neither hold memory nor hold up others. Requests that
    would need more pieces, or wait in too long a queue, are refused.

    Attributes:
        events: events of a window, released and held back.
        bytes: bytes that they count for.
        pieces: pieces of the range of keys with progress of their own.
        ranges: distinct ranges that are followed.
        queue: batches of a window that wait or are being taken in.
        queue_bytes: bytes that their events count for; a single batch may have more.
        windows_each: windows of an owner's topics.
        windows_total: windows of all topics.
        bytes_each: bytes of an owner's windows.
        bytes_total: bytes of all windows. Beyond, the largest window of the largest owner drops events.

    Raises:
        ValueError: a bound is below 1.
    """

    events: int = 100_000
    bytes: int = 64_000_000
    pieces: int = 1000
    ranges: int = 10_000
    queue: int = 16
    queue_bytes: int = 32_000_000
    windows_each: int = 20
    windows_total: int = 200
    bytes_each: int = 128_000_000
    bytes_total: int = 512_000_000

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value < 1:
                raise ValueError(f"{each.name} is {value}: expected at least 1")


class WindowLimit(ClientError):
    """Request for more than a limit of windows allows: answered with 429. Nothing of it was carried out.

    Args:
        name: of the limit, as ``pieces`` or ``windows``.
        limit: its value, a number of things.
        whose: holder of the limit.
        cure: the way out, without a full stop.

    Attributes:
        name: of the limit.
        limit: its value.
        whose: holder of the limit.
    """

    def __init__(self, name: str, limit: int, whose: Whose, cure: str) -> None:
        holder = {"total": "in total", "owner": "per owner", "window": "per topic"}[whose]
        super().__init__(f"the limit of {limit} {name} {holder} is reached: {cure}")
        self.name = name
        self.limit = limit
        self.whose = whose
