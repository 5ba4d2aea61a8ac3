"""Subscriptions of all workers by channel: first, last and lingering ones (docs/grip.md §6.4, §6.8)."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from gripproxy.pipe import RESPONSE

__all__ = ["LINGER_MIN", "UPDATE_DELAY", "ChannelSubscriptions", "Subscriptions"]

UPDATE_DELAY: Final = 1.0
"""Seconds from the first subscription of a channel to the update of its sessions (docs/grip.md §6.4): time for a SUB
subscription to reach the publishers."""

LINGER_MIN: Final = 5.0
"""Least linger in seconds while first subscriptions cause updates. An updated long-poll leaves its channel and returns
with the backend's next response: were that a first subscription again, updates would never end."""

LINGER_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the channels that linger, LINGER_COST each and their names: clients that keep changing channels leave many
of them. Beyond it a channel does not linger; the next long-poll of it is a first subscription again."""

LINGER_COST: Final = 512
"""Bytes that a channel costs besides its name."""

Counts = tuple[int, int, int]
"""Sessions by mode: responses, streams, sockets. Few different ones exist, which are shared."""

NO_SESSIONS: Final[Counts] = (0, 0, 0)
SHARED_MAX: Final = 1024
"""Greatest number of shared tuples."""
_SHARED: Final[dict[Counts, Counts]] = {NO_SESSIONS: NO_SESSIONS}

W = TypeVar("W")


def _shared(counts: tuple[int, ...]) -> Counts:
    """Return the shared tuple of three counts."""
    responses, streams, sockets = counts
    found = responses, streams, sockets
    return _SHARED.setdefault(found, found) if len(_SHARED) < SHARED_MAX else _SHARED.get(found, found)


class ChannelSubscriptions(Generic[W]):
    """Subscriptions of one channel: its workers, each with its numbers of responses, streams and sockets."""

    __slots__ = ("linger_queued", "linger_until", "workers")

    def __init__(self) -> None:
        self.workers: dict[W, Counts] = {}
        self.linger_until = 0.0
        """Time until which the channel stays subscribed without sessions, in seconds of the caller's clock."""
        self.linger_queued = False


class Subscriptions(Generic[W]):
    """The subscriptions of all workers. Sans-I/O.

    ``W`` stands for a worker, compared by identity or hash. Methods that can make the first subscription of a channel,
    or end its last, return whether they did; the caller then forwards it to the SUB socket and clears the sequencer.

    Args:
        linger: ``subscription_linger`` in seconds; LINGER_MIN at least if ``update`` is set.
        update: ``update_on_first_subscription``.
        on_change: called with a channel and its entry after its counts have changed and at the end of its linger,
            while ``report_changes`` is on.
        lingering_max: greatest number of bytes of the channels that linger.
    """

    __slots__ = (
        "_linger",
        "_lingering",
        "_on_change",
        "_reporting",
        "_update",
        "_updates",
        "channels",
        "lingering_bytes",
        "lingering_max",
    )

    def __init__(
        self,
        linger: float,
        update: bool = True,
        on_change: Callable[[bytes, ChannelSubscriptions[W]], None] = lambda channel, entry: None,
        lingering_max: int = LINGER_BYTES,
    ) -> None:
        self.channels: dict[bytes, ChannelSubscriptions[W]] = {}
        """The subscribed channels, lingering ones included. Read it, do not change it."""
        self.lingering_max = lingering_max
        self.lingering_bytes = 0
        """Bytes of the channels that linger."""
        self._on_change = on_change
        self._reporting = False
        self._linger = max(linger, LINGER_MIN) if update else linger
        self._update = update
        # Both are bounded by the number of channels, but for channels subscribed anew within UPDATE_DELAY.
        self._updates: deque[tuple[float, bytes, ChannelSubscriptions[W]]] = deque()
        self._lingering: list[tuple[float, bytes]] = []

    def report_changes(self, wanted: bool) -> None:
        """Call ``on_change`` from now on if ``wanted``, else not."""
        self._reporting = wanted

    def subscribe(self, worker: W, channel: bytes, now: float) -> bool:
        """Add a subscription of ``worker``.

        Args:
            worker: the subscriber.
            channel: the channel.
            now: time in seconds.

        Returns:
            Whether it is the first subscription of the channel.
        """
        entry = self.channels.get(channel)
        if entry is not None:
            # A worker may subscribe twice without an unsubscribe between; its counts stay.
            entry.workers.setdefault(worker, NO_SESSIONS)
            return False
        entry = self.channels[channel] = ChannelSubscriptions()
        entry.workers[worker] = NO_SESSIONS
        if self._update:
            self._updates.append((now + UPDATE_DELAY, channel, entry))
        return True

    def announce(self, worker: W, channel: bytes, counts: Counts) -> bool:
        """Add a subscription that ``worker`` had before it connected.

        It causes no update: its sessions were updated long ago, or the worker recovers them itself.

        Args:
            worker: the subscriber.
            channel: the channel.
            counts: numbers of responses, streams and sockets.

        Returns:
            Whether it is the first subscription of the channel.
        """
        entry = self.channels.get(channel)
        new = entry is None
        if entry is None:
            entry = self.channels[channel] = ChannelSubscriptions()
        entry.workers[worker] = _shared(counts)
        if self._reporting:
            self._on_change(channel, entry)
        return new

    def count(self, worker: W, channel: bytes, mode: int, sessions: int, now: float) -> None:
        """Set the number of sessions of one mode that a worker has on a channel.

        Args:
            worker: the subscriber.
            channel: the channel.
            mode: RESPONSE, STREAM or SOCKET of gripproxy.pipe.
            sessions: their number.
            now: time in seconds.
        """
        entry = self.channels.get(channel)
        counts = None if entry is None else entry.workers.get(worker)
        if entry is None or counts is None:
            # The count was sent before the unsubscribe of a channel that was removed.
            return
        if mode == RESPONSE and not sessions and counts[RESPONSE]:
            self._start_linger(channel, entry, now)
        entry.workers[worker] = _shared((*counts[:mode], sessions, *counts[mode + 1 :]))
        if self._reporting:
            self._on_change(channel, entry)

    def unsubscribe(self, worker: W, channel: bytes, linger: bool, now: float) -> bool:
        """Remove the subscription of ``worker``.

        Args:
            worker: the subscriber.
            channel: the channel.
            linger: whether the last session was a response hold, so that its client is likely to return soon.
            now: time in seconds.

        Returns:
            Whether it was the last subscription of the channel, which does not linger.
        """
        entry = self.channels.get(channel)
        if entry is None or entry.workers.pop(worker, None) is None:
            return False
        if linger:
            self._start_linger(channel, entry, now)
        if self._reporting:
            self._on_change(channel, entry)
        return self._end(channel, entry, now)

    def lost(self, worker: W, now: float) -> list[bytes]:
        """Remove all subscriptions of a worker whose connection has ended.

        Channels with response holds linger: these clients reconnect to another worker.

        Args:
            worker: the worker.
            now: time in seconds.

        Returns:
            The channels that have lost their last subscription.
        """
        ended = []
        for channel in [name for name, entry in self.channels.items() if worker in entry.workers]:
            entry = self.channels[channel]
            counts = entry.workers.pop(worker)
            if counts[RESPONSE]:
                self._start_linger(channel, entry, now)
            if self._reporting:
                self._on_change(channel, entry)
            if self._end(channel, entry, now):
                ended.append(channel)
        return ended

    def due_updates(self, now: float) -> list[tuple[bytes, list[W]]]:
        """Return the channels whose first subscription was UPDATE_DELAY ago, each with its workers.

        Channels whose subscription has ended meanwhile are left out, lingering ones without sessions too.

        Args:
            now: time in seconds.
        """
        due = []
        updates = self._updates
        while updates and updates[0][0] <= now:
            _, channel, entry = updates.popleft()
            if entry.workers and self.channels.get(channel) is entry:
                due.append((channel, list(entry.workers)))
        return due

    def due_ends(self, now: float) -> list[bytes]:
        """Return the channels whose linger has ended without a new subscription: they are unsubscribed.

        Args:
            now: time in seconds.
        """
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
            if self._reporting:
                self._on_change(channel, entry)
            if self._end(channel, entry, now):
                ended.append(channel)
        return ended

    def next_due(self) -> float | None:
        """Return the next time at which ``due_updates`` or ``due_ends`` may have a result, in seconds, or None."""
        update = self._updates[0][0] if self._updates else None
        end = self._lingering[0][0] if self._lingering else None
        if update is None or (end is not None and end < update):
            return end
        return update

    def subscribers(self, channel: bytes, modes: tuple[int, ...]) -> int:
        """Return the number of sessions of ``modes`` on the channel, over all workers."""
        entry = self.channels.get(channel)
        if entry is None:
            return 0
        return sum(counts[mode] for counts in entry.workers.values() for mode in modes)

    def _start_linger(self, channel: bytes, entry: ChannelSubscriptions[W], now: float) -> None:
        if self._linger:
            if not entry.linger_queued:
                size = LINGER_COST + len(channel)
                if self.lingering_bytes + size > self.lingering_max:
                    return
                self.lingering_bytes += size
                entry.linger_until = now + self._linger
                self._queue_linger(channel, entry)
            else:
                entry.linger_until = now + self._linger

    def _queue_linger(self, channel: bytes, entry: ChannelSubscriptions[W]) -> None:
        entry.linger_queued = True
        heapq.heappush(self._lingering, (entry.linger_until, channel))

    def _end(self, channel: bytes, entry: ChannelSubscriptions[W], now: float) -> bool:
        if entry.workers or entry.linger_until > now:
            return False
        del self.channels[channel]
        return True
