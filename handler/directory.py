"""Which worker has subscribers of which channel, and what follows from that (docs/grip.md §6.4, §6.8)."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from gripproxy.pipe import RESPONSE

__all__ = ["LINGER_MIN", "UPDATE_DELAY", "Channel", "Directory"]

UPDATE_DELAY: Final = 1.0
"""Seconds from the first subscription of a channel to the update of its sessions (docs/grip.md §6.4): time for a SUB
subscription to reach the publishers."""

LINGER_MIN: Final = 5.0
"""Seconds a channel lingers at least while first subscriptions have updates. A held request that is updated leaves its
channel and comes back with the backend's next answer: were that a first subscription again, it would never end."""

LINGER_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the channels that linger, LINGER_COST each and their names: clients that ask for other channels all the time
leave as many of them. Beyond it a channel does not linger; the next long-poll of it is a first subscription again."""

LINGER_COST: Final = 512
"""Bytes that a channel costs besides its name."""

Counts = tuple[int, int, int]
"""Sessions by mode: responses, streams, sockets. Most channels have the same few of them, which are kept once."""

NOBODY: Final[Counts] = (0, 0, 0)
KEPT_MAX: Final = 1024
_KEPT: Final[dict[Counts, Counts]] = {NOBODY: NOBODY}

W = TypeVar("W")


def _kept(counts: tuple[int, ...]) -> Counts:
    responses, streams, sockets = counts
    found = responses, streams, sockets
    return _KEPT.setdefault(found, found) if len(_KEPT) < KEPT_MAX else _KEPT.get(found, found)


class Channel(Generic[W]):
    """One subscribed channel: its workers, each with its number of responses, streams and sockets."""

    __slots__ = ("linger_queued", "linger_until", "workers")

    def __init__(self) -> None:
        self.workers: dict[W, Counts] = {}
        self.linger_until = 0.0
        """Until when the channel stays subscribed although nobody may be left, on the caller's clock."""
        self.linger_queued = False


class Directory(Generic[W]):
    """The subscriptions of all workers. Sans-I/O; ``W`` is whatever stands for a worker, compared by identity or hash.

    Methods that can end the last subscription of a channel, or make its first, say so in what they return; the caller
    then forwards it to the SUB socket and clears the sequencer.

    Arguments: ``linger`` is ``subscription_linger`` in seconds; ``update`` is ``update_on_first_subscription``, with
    which it is LINGER_MIN at least.
    """

    __slots__ = ("_linger", "_lingering", "_update", "_updates", "changed", "channels", "lingering_bytes", "most")

    def __init__(self, linger: float, update: bool = True) -> None:
        self.channels: dict[bytes, Channel[W]] = {}
        """The subscribed channels, lingering ones included. Read it, do not change it."""
        self.changed: Callable[[bytes, Channel[W]], None] | None = None
        """Called after a channel's counts have changed, and at the end of its linger; None while nobody wants that."""
        self.most = LINGER_BYTES
        """Bytes that channels which linger may have."""
        self.lingering_bytes = 0
        self._linger = max(linger, LINGER_MIN) if update else linger
        self._update = update
        # Both are bounded by the number of channels, but for channels subscribed anew within UPDATE_DELAY.
        self._updates: deque[tuple[float, bytes, Channel[W]]] = deque()
        self._lingering: list[tuple[float, bytes]] = []

    def subscribe(self, worker: W, channel: bytes, now: float) -> bool:
        """Note that ``worker`` has a subscriber; return whether the channel had no subscription before."""
        entry = self.channels.get(channel)
        if entry is not None:
            # A worker may subscribe again without an unsubscribe between, its counts then stand.
            entry.workers.setdefault(worker, NOBODY)
            return False
        entry = self.channels[channel] = Channel()
        entry.workers[worker] = NOBODY
        if self._update:
            self._updates.append((now + UPDATE_DELAY, channel, entry))
        return True

    def announce(self, worker: W, channel: bytes, counts: Counts) -> bool:
        """Note a channel that ``worker`` had before it connected, with its responses, streams and sockets.

        Return whether the channel had no subscription before. It is never a first subscription: its sessions were
        updated long ago, or the worker recovers them itself.
        """
        entry = self.channels.get(channel)
        new = entry is None
        if entry is None:
            entry = self.channels[channel] = Channel()
        entry.workers[worker] = _kept(counts)
        if self.changed is not None:
            self.changed(channel, entry)
        return new

    def count(self, worker: W, channel: bytes, mode: int, sessions: int, now: float) -> None:
        """Note how many sessions of one mode (see gripproxy.pipe) the worker has on the channel."""
        entry = self.channels.get(channel)
        counts = None if entry is None else entry.workers.get(worker)
        if entry is None or counts is None:
            # A count that was on its way when the worker unsubscribed.
            return
        if mode == RESPONSE and not sessions and counts[RESPONSE]:
            self._start_linger(channel, entry, now)
        entry.workers[worker] = _kept((*counts[:mode], sessions, *counts[mode + 1 :]))
        if self.changed is not None:
            self.changed(channel, entry)

    def unsubscribe(self, worker: W, channel: bytes, linger: bool, now: float) -> bool:
        """Note that ``worker`` has no subscriber any more; return whether that ended the channel's subscription.

        ``linger``: the last session was a response hold, so that another one is likely to come soon.
        """
        entry = self.channels.get(channel)
        if entry is None or entry.workers.pop(worker, None) is None:
            return False
        if linger:
            self._start_linger(channel, entry, now)
        if self.changed is not None:
            self.changed(channel, entry)
        return self._end(channel, entry, now)

    def lost(self, worker: W, now: float) -> list[bytes]:
        """Forget a worker that is gone; return the channels whose subscription ended with it.

        Channels with response holds linger: these clients reconnect to another worker.
        """
        ended = []
        for channel in [name for name, entry in self.channels.items() if worker in entry.workers]:
            entry = self.channels[channel]
            counts = entry.workers.pop(worker)
            if counts[RESPONSE]:
                self._start_linger(channel, entry, now)
            if self.changed is not None:
                self.changed(channel, entry)
            if self._end(channel, entry, now):
                ended.append(channel)
        return ended

    def due_updates(self, now: float) -> list[tuple[bytes, list[W]]]:
        """Return (channel, workers) whose sessions are to be updated now, UPDATE_DELAY after the first subscription.

        A channel whose subscription ended meanwhile is left out; one that lingers is updated if somebody came back.
        """
        due = []
        updates = self._updates
        while updates and updates[0][0] <= now:
            _, channel, entry = updates.popleft()
            if entry.workers and self.channels.get(channel) is entry:
                due.append((channel, list(entry.workers)))
        return due

    def due_ends(self, now: float) -> list[bytes]:
        """Return the channels whose linger is over with nobody having come back: their subscription has ended."""
        ended = []
        lingering = self._lingering
        while lingering and lingering[0][0] <= now:
            channel = heapq.heappop(lingering)[1]
            entry = self.channels.get(channel)
            if entry is not None and entry.linger_queued and entry.linger_until > now:
                self._queue_linger(channel, entry)
                continue
            self.lingering_bytes -= LINGER_COST + len(channel)
            if entry is None or not entry.linger_queued:
                continue
            entry.linger_queued = False
            if self.changed is not None:
                self.changed(channel, entry)
            if self._end(channel, entry, now):
                ended.append(channel)
        return ended

    def next_due(self) -> float | None:
        """Return when due_updates or due_ends will have something to look at, or None."""
        update = self._updates[0][0] if self._updates else None
        end = self._lingering[0][0] if self._lingering else None
        if update is None or (end is not None and end < update):
            return end
        return update

    def subscribers(self, channel: bytes, modes: tuple[int, ...]) -> int:
        """Return how many sessions of these modes all workers have on the channel."""
        entry = self.channels.get(channel)
        if entry is None:
            return 0
        return sum(counts[mode] for counts in entry.workers.values() for mode in modes)

    def _start_linger(self, channel: bytes, entry: Channel[W], now: float) -> None:
        if self._linger:
            if not entry.linger_queued:
                size = LINGER_COST + len(channel)
                if self.lingering_bytes + size > self.most:
                    return
                self.lingering_bytes += size
                entry.linger_until = now + self._linger
                self._queue_linger(channel, entry)
            else:
                entry.linger_until = now + self._linger

    def _queue_linger(self, channel: bytes, entry: Channel[W]) -> None:
        entry.linger_queued = True
        heapq.heappush(self._lingering, (entry.linger_until, channel))

    def _end(self, channel: bytes, entry: Channel[W], now: float) -> bool:
        if entry.workers or entry.linger_until > now:
            return False
        del self.channels[channel]
        return True
