"""What the requests of many WebSockets have in common, so that each keeps only what is its own.

A WebSocket over HTTP repeats the headers of its handshake with every request to the backend (docs/grip.md §8.3).
Clients of one kind send the same but for a few lines in the middle: a key, a cookie, an address.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gripproxy.edge.backend import HostPool
    from gripproxy.edge.forwarding import Forwarder
    from gripproxy.sessions.figures import Figures
    from gripproxy.worker import Worker

__all__ = ["KINDS_MAX", "Pattern", "Patterns", "Share"]

KINDS_MAX: Final = 64
"""Kinds of clients whose patterns are kept for one target; with one more all are forgotten, and live as long as those
who have them."""

Share = tuple[int, int, bytes]
"""How many lines of a head are the pattern's first ones, how many its last ones, and what is between them."""


class Pattern:
    """One head that others are compared with, and what else all of them have.

    ``pool`` has the backend's connections, ``forwarder`` writes the GRIP lines, unless the clients are ``trusted``;
    ``figures`` are those of the route; ``head`` ends with a line end.
    """

    __slots__ = ("_ends", "_lines", "_starts", "figures", "forwarder", "head", "pool", "tail", "trusted", "worker")

    def __init__(
        self, worker: Worker, forwarder: Forwarder, pool: HostPool, trusted: bool, figures: Figures, head: bytes
    ) -> None:
        self.worker = worker
        self.forwarder = forwarder
        self.pool = pool
        self.trusted = trusted
        self.figures = figures
        self.head = head
        self.tail = b""
        """What stood behind the GRIP lines of the newest one."""
        self._lines = head.splitlines(keepends=True)
        self._ends = list(accumulate(map(len, self._lines), initial=0))
        self._starts = [len(head) - size for size in accumulate(map(len, reversed(self._lines)), initial=0)]

    def share(self, head: bytes) -> Share | None:
        """Return what ``head`` has of the pattern's; None if that is less than half of it."""
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
        """Return the pieces of the head that a share was made of."""
        return self.head[: self._ends[first]], own, self.head[self._starts[last] :]


class Patterns:
    """The patterns of one target, by kind of client."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[bytes | None, Pattern] = {}

    def find(
        self, kind: bytes | None, pool: HostPool, head: bytes, make: Callable[[], Pattern]
    ) -> tuple[Pattern, Share]:
        """Return a pattern for ``head``, and what it shares with it.

        ``kind``: clients of the same kind have much in common; ``make`` makes a pattern of the head. If it has little
        in common with those before, it is the pattern from now on.
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
