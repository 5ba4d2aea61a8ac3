"""Templates of request heads: similar WebSockets over HTTP store only the lines that differ.

A WebSocket over HTTP repeats the headers of its handshake with every request to the backend (docs/grip.md §8.3).
The heads of clients of one kind differ in a few lines in the middle: a key, a cookie, an address.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Final

from gripproxy.backend.connection import TargetPool
from gripproxy.backend.context import BackendContext
from gripproxy.backend.forwarder import Forwarder
from gripproxy.stats.counters import RouteCounters

__all__ = ["KINDS_MAX", "Delta", "HeaderTemplate", "HeaderTemplates"]

KINDS_MAX: Final = 64
"""Kinds of clients with a template, per target; one more clears them all. A cleared template lives as long as the
WebSockets that use it."""

Delta = tuple[int, int, bytes]
"""Difference of a head from a template: number of the template's first lines, number of its last lines, and the bytes
between them."""


class HeaderTemplate:
    """Template of a request head, and the parts of a request that all WebSockets with that template share.

    Args:
        context: The backend context.
        forwarder: Writes the GRIP lines.
        pool: Connections to the target.
        trusted: The clients are trusted: requests have no GRIP lines besides Grip-Last.
        figures: Counters of the route.
        head: Lines before the GRIP lines; ends with a line end.
    """

    __slots__ = ("_ends", "_lines", "_starts", "context", "figures", "forwarder", "head", "pool", "tail", "trusted")

    def __init__(
        self,
        context: BackendContext,
        forwarder: Forwarder,
        pool: TargetPool,
        trusted: bool,
        figures: RouteCounters,
        head: bytes,
    ) -> None:
        self.context = context
        self.forwarder = forwarder
        self.pool = pool
        self.trusted = trusted
        self.figures = figures
        self.head = head
        self.tail = b""
        """Lines behind the GRIP lines for the newest WebSocket; those with equal lines share this object."""
        self._lines = head.splitlines(keepends=True)
        self._ends = list(accumulate(map(len, self._lines), initial=0))
        self._starts = [len(head) - size for size in accumulate(map(len, reversed(self._lines)), initial=0)]

    def share(self, head: bytes) -> Delta | None:
        """Return the difference of ``head`` from the template; None if more than half of its bytes differ."""
        mine, lines = self._lines, head.splitlines(keepends=True)
        most = min(len(mine), len(lines))
        first = 0
        while first < most and mine[first] == lines[first]:
            first += 1
        most -= first
        last = 0
        while last < most and mine[-1 - last] == lines[-1 - last]:
            last += 1
        own = b"".join(lines[first : len(lines) - last])
        return (first, last, own) if 2 * len(own) <= len(head) else None

    def restored(self, first: int, last: int, own: bytes) -> tuple[bytes, bytes, bytes]:
        """Return the pieces of the head that a difference was made of; joined, they are that head.

        Args:
            first: Number of the template's first lines.
            last: Number of the template's last lines.
            own: Bytes between them.
        """
        return self.head[: self._ends[first]], own, self.head[self._starts[last] :]


class HeaderTemplates:
    """Templates of one target, by kind of client."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[bytes | None, HeaderTemplate] = {}

    def find(
        self, kind: bytes | None, pool: TargetPool, head: bytes, make: Callable[[], HeaderTemplate]
    ) -> tuple[HeaderTemplate, Delta]:
        """Return the template for a head, and the difference of the head from it.

        A head that differs too much from the template of its kind replaces it.

        Args:
            kind: User-Agent of the client; None without one.
            pool: Connections to the target; a template with another pool is replaced.
            head: Lines before the GRIP lines.
            make: Makes a template of the head.
        """
        pattern = self._kinds.get(kind)
        share = pattern.share(head) if pattern is not None and pattern.pool is pool else None
        if pattern is None or share is None:
            if len(self._kinds) >= KINDS_MAX:
                self._kinds.clear()
            pattern = self._kinds[kind] = make()
            share = pattern.share(head)
            assert share is not None
        return pattern, share
