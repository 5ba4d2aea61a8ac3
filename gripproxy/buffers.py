"""Bytes of one worker that wait for peers which do not take them: their total, and who is cut when it is too much.

A *peer* is a client with both of its directions: what waits for the client, and what waits for the backend of it. Peers
that take what they get are never seen here. One is watched from when its transport asks for a pause or it is not read
from because the other side is slow; and every connection is looked at in turn, so that also small remains count.

Between two looks the total is an upper bound: what watched peers are given is added, what they have taken is only
subtracted at the next look. So a burst cannot pass unseen: when the bound is above the limit everything is measured in
the next turn of the loop, and the largest are cut until the total is below. Sans-I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Protocol

__all__ = ["ROUND", "SMALL", "Buffers", "Peer", "Stall", "own_share"]

ROUND: Final = 10
"""Looks in which every connection has been looked at once."""

SMALL: Final = 16 * 1024
"""Bytes of a request's body up to which its client is not watched from the beginning: it is looked at in turn."""

SLACK: Final = 16
"""One part in so many of the limit is free after it was passed: else the next write would pass it again."""


HIGH_WATER: Final = 64 * 1024
"""Bytes that a client's transport may have before it asks for a pause: the event loop's default."""


def own_share(unsent: int, among: int) -> int:
    """Return how much of what a blocked transport has counts for its peer.

    A fan-out's bytes exist once for all the sessions that they are written to. What was there before the write that
    blocked the transport is at most HIGH_WATER, and the peer's own.

    Args:
        unsent: bytes that the transport has.
        among: sessions that the write was for; 1 for bytes of its own.
    """
    return unsent if unsent <= HIGH_WATER else HIGH_WATER + (unsent - HIGH_WATER) // among


class Peer(Protocol):
    """A client with its backend."""

    def buffered(self) -> int:
        """Return how many bytes wait for it or for its backend in this process."""

    def unread(self) -> int:
        """Return the descriptor of its socket if it is not read from, so that its end would not be noticed; else -1."""

    def attend(self, now: float, closed: int) -> None:
        """See whether it stalls, or has left: ``closed`` are the sides that the kernel says it has closed, 0 if none or
        if it is read from; ``now`` in seconds. To be called at each look while it is watched."""

    def overfull(self, size: int, total: int) -> None:
        """Drop it: ``size`` bytes wait for it, ``total`` in the worker."""


class Stall:
    """How long a peer has not taken a byte of what waits for it."""

    __slots__ = ("_since", "_taken")

    def __init__(self) -> None:
        self._since: float | None = None
        self._taken = 0

    def look(self, waiting: bool, taken: int, now: float) -> float:
        """Return the seconds since it last took something, 0 if nothing waits for it.

        Args:
            waiting: bytes wait for it now.
            taken: a number that is another one after it has taken a byte.
            now: time in seconds.
        """
        if not waiting:
            self._since = None
            return 0.0
        if self._since is None or taken != self._taken:
            self._since, self._taken = now, taken
        return now - self._since


class Buffers:
    """The bytes that wait in one worker.

    Args:
        limit: most bytes that may wait (``buffers_max``).
        later: runs a callback in the next turn of the loop.
        everyone: returns all connections there are.
        closed: returns which sides of sockets were closed, by descriptor (see gripproxy.edge.peer).
    """

    __slots__ = ("_armed", "_closed", "_everyone", "_later", "_limit", "_round", "_share", "cuts", "peers", "total")

    def __init__(
        self,
        limit: int,
        later: Callable[[Callable[[], None]], object],
        everyone: Callable[[], Iterable[Peer]],
        closed: Callable[[Iterable[int]], Mapping[int, int]],
    ) -> None:
        self._limit = limit
        self._later = later
        self._everyone = everyone
        self._closed = closed
        self.peers: dict[Peer, int] = {}
        """Those that are watched, and what waited for each when it was last measured."""
        self._round: Iterator[Peer] = iter(())
        self._share = 0
        self._armed = False
        self.total = 0
        """Bytes that wait, at most."""
        self.cuts = 0
        """Peers cut because too much waited in all."""

    def __len__(self) -> int:
        return len(self.peers)

    def watch(self, peer: Peer) -> None:
        """Count what waits for a peer from now on: its transport is full, or it is not read from."""
        size = peer.buffered()
        before = self.peers.get(peer, 0)
        self.peers[peer] = size
        self.grew(size - before)

    def grew(self, size: int) -> None:
        """Count ``size`` bytes more that a watched peer has to wait for."""
        self.total += size
        if self.total > self._limit and not self._armed:
            self._armed = True
            self._later(self._relieve)

    def forget(self, peer: Peer) -> None:
        """Count a peer no more: its connection is gone."""
        self.total -= self.peers.pop(peer, 0)

    def look(self, now: float) -> None:
        """Measure the watched peers and some of the others; to be called about every second, ``now`` in seconds."""
        peers = self.peers
        for peer in self._next():
            if peer not in peers and (size := peer.buffered()):
                peers[peer] = size
        unread = {descriptor: peer for peer in peers if (descriptor := peer.unread()) >= 0}
        closed = {unread[descriptor]: sides for descriptor, sides in self._closed(unread).items()} if unread else {}
        for peer in list(peers):
            peer.attend(now, closed.get(peer, 0))
            if not peer.buffered() and peer.unread() < 0:
                peers.pop(peer, None)
        self._relieve()

    def _next(self) -> list[Peer]:
        """Return those of all connections whose turn it is."""
        some = list(islice(self._round, self._share))
        if len(some) < self._share or not self._share:
            everyone = list(self._everyone())
            self._share = -(-len(everyone) // ROUND)
            self._round = iter(everyone)
        return some

    def _relieve(self) -> None:
        """Measure, and cut the largest until what waits is well below the limit."""
        self._armed = False
        peers = self.peers
        for peer in peers:
            peers[peer] = peer.buffered()
        self.total = sum(peers.values())
        if self.total <= self._limit:
            return
        total, goal = self.total, self._limit - self._limit // SLACK
        for peer in sorted(peers, key=peers.__getitem__, reverse=True):
            size = peers.pop(peer)
            self.total -= size
            self.cuts += 1
            peer.overfull(size, total)
            if self.total <= goal:
                break
