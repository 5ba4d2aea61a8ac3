"""Send buffers of a worker: total of the bytes that wait for slow peers, and the cut when it exceeds the limit.

A *peer* is a client with both of its directions: bytes that wait for the client, and bytes that wait for its backend.
Peers that read fast enough are never seen here. A peer is watched from when its transport asks for a pause, or when it
is not read because the other side is slow; and every connection is measured in turn, so that small remains count too.

Between two measurements the total is an upper bound: bytes given to watched peers are added, bytes that they have taken
are subtracted at the next measurement. So no burst passes unseen: when the bound exceeds the limit, all peers are
measured in the next turn of the loop, and the largest are cut until the total is below. Sans-I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Protocol

__all__ = ["ROUND", "SMALL", "Peer", "SendBuffers", "Stall", "own_share"]

ROUND: Final = 10
"""Calls of ``look`` in which every connection has been measured once."""

SMALL: Final = 16 * 1024
"""Bytes of a request's body up to which its client is not watched from the beginning: it is measured in turn."""

SLACK: Final = 16
"""Inverse of the part of the limit that is free after a cut: otherwise the next write would pass the limit again."""


HIGH_WATER: Final = 64 * 1024
"""Bytes that a client's transport may have before it asks for a pause: the event loop's default."""


def own_share(unsent: int, among: int) -> int:
    """Return the bytes of a blocked transport that count for its peer.

    A fan-out's bytes exist once for all the sessions that they are written to. Bytes from before the write that
    blocked the transport are at most HIGH_WATER, and the peer's own.

    Args:
        unsent: bytes that the transport has.
        among: sessions that the write was for; 1 for bytes of its own.
    """
    return unsent if unsent <= HIGH_WATER else HIGH_WATER + (unsent - HIGH_WATER) // among


class Peer(Protocol):
    """Client with its backend."""

    def buffered(self) -> int:
        """Return the bytes in this process that wait for the client or for its backend."""

    def unread(self) -> int:
        """Return the descriptor of the socket if it is not read, so that its end would not be noticed; otherwise -1."""

    def attend(self, now: float, closed: int) -> None:
        """Check whether the client stalls, or has disconnected; called at each ``look`` while it is watched.

        Args:
            now: time in seconds.
            closed: sides that the client has closed, according to the kernel; 0 if none or if the socket is read.
        """

    def overfull(self, size: int, total: int) -> None:
        """Abort the connection, because too many bytes wait in the worker.

        Args:
            size: bytes that wait for it.
            total: bytes that wait in the worker.
        """


class Stall:
    """Time for which a peer has not taken a byte."""

    __slots__ = ("_since", "_taken")

    def __init__(self) -> None:
        self._since: float | None = None
        self._taken = 0

    def look(self, waiting: bool, taken: int, now: float) -> float:
        """Return the seconds since the peer last took a byte, 0 if no bytes wait for it.

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


class SendBuffers:
    """Bytes that wait in one worker.

    Args:
        limit: most bytes that may wait (``buffers_max``).
        later: runs a callback in the next turn of the loop.
        connections: returns all connections.
        closed: returns which sides of sockets were closed, by descriptor (see gripproxy.client.peer).
    """

    __slots__ = ("_armed", "_closed", "_connections", "_later", "_limit", "_round", "_share", "cuts", "peers", "total")

    def __init__(
        self,
        limit: int,
        later: Callable[[Callable[[], None]], object],
        connections: Callable[[], Iterable[Peer]],
        closed: Callable[[Iterable[int]], Mapping[int, int]],
    ) -> None:
        self._limit = limit
        self._later = later
        self._connections = connections
        self._closed = closed
        self.peers: dict[Peer, int] = {}
        """Watched peers, with the bytes that waited for each when it was last measured."""
        self._round: Iterator[Peer] = iter(())
        self._share = 0
        self._armed = False
        self.total = 0
        """Upper bound of the bytes that wait."""
        self.cuts = 0
        """Peers cut because too many bytes waited in the worker."""

    def __len__(self) -> int:
        return len(self.peers)

    def watch(self, peer: Peer) -> None:
        """Count the bytes of a peer from now on: its transport is full, or it is not read.

        Args:
            peer: the peer.
        """
        size = peer.buffered()
        before = self.peers.get(peer, 0)
        self.peers[peer] = size
        self.grew(size - before)

    def grew(self, size: int) -> None:
        """Count more bytes that wait for a watched peer.

        Args:
            size: bytes.
        """
        self.total += size
        if self.total > self._limit and not self._armed:
            self._armed = True
            self._later(self._relieve)

    def forget(self, peer: Peer) -> None:
        """Count a peer no more: its connection is closed.

        Args:
            peer: the peer.
        """
        self.total -= self.peers.pop(peer, 0)

    def look(self, now: float) -> None:
        """Measure the watched peers and some of the others; called about every second.

        Args:
            now: time in seconds.
        """
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
        """Return the connections whose turn it is to be measured."""
        some = list(islice(self._round, self._share))
        if len(some) < self._share or not self._share:
            connections = list(self._connections())
            self._share = -(-len(connections) // ROUND)
            self._round = iter(connections)
        return some

    def _relieve(self) -> None:
        """Measure all peers, and cut the largest until the total is well below the limit."""
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
