"""Sequencer: puts the items of each channel into ``prev-id`` order (docs/grip.md §6.1, §6.2)."""

from __future__ import annotations

from itertools import islice
from typing import Final

from gripproxy.grip.bounds import size_of_item
from gripproxy.grip.item import Item

__all__ = ["ENTRY_COST", "MAX_WAITING", "MEMORY", "WAITING_BYTES", "WAITING_COST", "Sequencer"]

MAX_WAITING: Final = 100
"""Items that may wait per channel; one more is dropped (docs/grip.md §6.2). Reliable sessions then find a gap and
fetch the missing items from the backend."""

MAX_WAITING_TOTAL: Final = 100_000
"""Items that may wait over all channels, so that a publisher with a bad ``prev-id`` on very many channels cannot fill
the memory. Beyond it items do not wait, as if their time were over: reliable sessions find the gap immediately, and the
others get the item out of order rather than never."""

WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all waiting items, unless configured (``message_wait_max``). Beyond it items do not wait."""

WAITING_COST: Final = 1024
"""Cost of a waiting item besides its content, in bytes."""

CONFLICT_WAIT: Final = 1.0
"""Seconds an item waits that follows the id named by a backend, see ``Sequencer.conflict``."""

ENTRY_COST: Final = 256
"""Cost of a channel with a last id besides its name, which may be stored twice, and ids, in bytes."""

MEMORY: Final = 128 * 1024 * 1024
"""Bytes of all channels with a last id, unless configured (``last_ids_max``); beyond it the channel that was unused
longest is dropped (docs/grip.md §6.1)."""

BATCH: Final = 100
ROOM: Final = 64
"""Channels visited together, and the fraction of the memory that is freed when it is full (see ``recent``)."""

MAX_NAMED: Final = 10_000
"""Channels with an id named by a backend; beyond it the oldest is dropped."""


_Entry = tuple[float, Item, int]


class Sequencer:
    """Holds back items that arrive before their predecessor. Sans-I/O.

    It is given the items of subscribed channels without ``no-seq``; the caller delivers all returned items in order.

    Args:
        wait: ``message_wait`` in seconds.
        max_waiting: greatest number of items that wait on a channel.
        max_total: greatest number of items that wait.
        max_bytes: bytes of all waiting items.
        memory: bytes of all channels with a last id.
    """

    __slots__ = (
        "_last",
        "_max_bytes",
        "_max_total",
        "_max_waiting",
        "_memory",
        "_named",
        "_size",
        "_starts",
        "_total",
        "_wait",
        "_waiting",
        "dropped",
        "waiting_bytes",
    )

    def __init__(
        self,
        wait: float,
        max_waiting: int = MAX_WAITING,
        max_total: int = MAX_WAITING_TOTAL,
        max_bytes: int = WAITING_BYTES,
        memory: int = MEMORY,
    ) -> None:
        self._wait = wait
        self._max_waiting = max_waiting
        self._max_total = max_total
        self._max_bytes = max_bytes
        self._memory = memory
        # channel -> id of the item released last, in order of release
        self._last: dict[bytes, bytes] = {}
        self._size = 0
        # channel -> prev-id of the item with which its order began: its predecessors were unknown then
        self._starts: dict[bytes, bytes] = {}
        # channel -> id named by a backend as its last one; of few channels, and until the next item
        self._named: dict[bytes, bytes] = {}
        # channel -> prev-id -> (time of arrival, item, bytes); the inner dict is in order of arrival
        self._waiting: dict[bytes, dict[bytes, _Entry]] = {}
        self._total = 0
        self.waiting_bytes = 0
        """Bytes of all waiting items."""
        self.dropped = 0
        """Items dropped because too many waited, or because one with an equal prev-id waited already."""

    @property
    def waiting(self) -> int:
        """Waiting items, over all channels."""
        return self._total

    @property
    def size(self) -> int:
        """Bytes of all last ids, their channels included."""
        return self._size

    def last_id(self, channel: bytes) -> bytes | None:
        """Return the id of the last item released in order on ``channel`` ("L" of docs/grip.md §6.1), or None."""
        return self._last.get(channel)

    def arrive(self, item: Item, now: float) -> list[Item]:
        """Receive an item.

        Args:
            item: the item.
            now: time in seconds.

        Returns:
            The items to deliver, in order: none, this one, or this one and those that waited for it.
        """
        prev_id = item.prev_id
        if prev_id is None:
            return self._release(item)
        channel = item.channel
        last = self._last.get(channel)
        if last == prev_id:
            return self._release(item)
        if last is None:
            self._start(channel, prev_id)
            return self._release(item)
        waiting = self._waiting.get(channel)
        if waiting is None:
            waiting = self._waiting[channel] = {}
        if prev_id in waiting or len(waiting) >= self._max_waiting:
            self.dropped += 1
            return []
        size = WAITING_COST + size_of_item(item)
        if self._total >= self._max_total or self.waiting_bytes + size > self._max_bytes:
            if not waiting:
                del self._waiting[channel]
            return self._release(item)
        waiting[prev_id] = (now, item, size)
        self._total += 1
        self.waiting_bytes += size
        return []

    def expire(self, now: float) -> list[Item]:
        """Release the items that waited longer than ``message_wait``, and those that waited for them.

        Called every second, so an item waits up to a second longer than the setting (docs/grip.md §6.2).

        Args:
            now: time in seconds.

        Returns:
            The items to deliver, in order.
        """
        oldest = now - self._wait
        due: list[Item] = []
        for channel, named in list(self._named.items()):
            waiting = self._waiting.get(channel)
            if waiting is None or named not in waiting or waiting[named][0] > now - CONFLICT_WAIT:
                continue
            # Items that arrived earlier are released first: it must not overtake them.
            while (waiting := self._waiting.get(channel)) is not None and named in waiting:
                due += self._jump(channel, waiting, next(iter(waiting)))
        for channel in [c for c, waiting in self._waiting.items() if _first_arrival(waiting) <= oldest]:
            while (waiting := self._waiting.get(channel)) is not None:
                prev_id, (since, _, _) = next(iter(waiting.items()))
                if since > oldest:
                    break
                due += self._jump(channel, waiting, prev_id)
        return due

    def conflict(self, channel: bytes, item_id: bytes, prev_id: bytes) -> None:
        """Limit the wait of the item that follows ``prev_id`` to CONFLICT_WAIT: a backend names another last id.

        Pushpin forgets the last id then (docs/grip.md §6.1), and no item waits. But a backend may only be ahead of its
        publisher, and items that overtake each other at that moment would reach all sessions out of order.

        Args:
            channel: the channel.
            item_id: last id known to the worker; ignored unless it is the last one here.
            prev_id: last id named by the backend.
        """
        if self._last.get(channel) == item_id:
            self._named[channel] = prev_id
            if len(self._named) > MAX_NAMED:
                del self._named[next(iter(self._named))]

    def remove(self, channel: bytes) -> list[Item]:
        """Forget a channel that has lost its last subscription.

        Args:
            channel: the channel.

        Returns:
            The items that waited on it, in order of arrival.
        """
        self._forget(channel)
        self._named.pop(channel, None)
        waiting = self._waiting.pop(channel, None)
        if waiting is None:
            return []
        self._total -= len(waiting)
        self.waiting_bytes -= sum([size for _, _, size in waiting.values()])
        return [item for _, item, _ in waiting.values()]

    def forget_all(self) -> None:
        """Forget the last id of every channel (``recover``). Waiting items keep waiting."""
        self._last.clear()
        self._size = 0
        self._starts.clear()
        self._named.clear()

    def _release(self, item: Item) -> list[Item]:
        channel, item_id = item.channel, item.id
        last = self._last
        if self._named:
            self._named.pop(channel, None)
        if item_id is None:
            if channel in last:
                self._forget(channel)
            return [item]
        old = last.pop(channel, None)
        last[channel] = item_id
        if old is None:
            self._size += ENTRY_COST + 2 * len(channel) + len(item_id)
        else:
            self._size += len(item_id) - len(old)
        if self._size > self._memory:
            self._make_room()
        released = [item]
        if not self._waiting:
            return released
        waiting = self._waiting.get(channel)
        while waiting is not None and item_id in waiting:
            item = self._take(channel, waiting, item_id)
            released.append(item)
            if item.id is None:
                # No item can follow one without id, and the channel's last id is unknown after it.
                self._forget(channel)
                break
            item_id = item.id
            self._keep(channel, item_id)
            waiting = self._waiting.get(channel)
        return released

    def _make_room(self) -> None:
        """Forget the channels that were unused longest."""
        while self._size > self._memory and self._last:
            for channel in list(islice(self._last, BATCH)):
                self._forget(channel)
                if self._size <= self._memory - self._memory // ROOM:
                    return

    def _keep(self, channel: bytes, item_id: bytes) -> None:
        old = self._last.get(channel)
        self._size += len(item_id) + (ENTRY_COST + 2 * len(channel) if old is None else -len(old))
        self._last[channel] = item_id

    def _start(self, channel: bytes, prev_id: bytes) -> None:
        self._size += len(prev_id) - len(self._starts.get(channel, b""))
        self._starts[channel] = prev_id

    def _forget(self, channel: bytes) -> None:
        last = self._last.pop(channel, None)
        if last is not None:
            self._size -= ENTRY_COST + 2 * len(channel) + len(last)
        self._size -= len(self._starts.pop(channel, b""))

    def _jump(self, channel: bytes, waiting: dict[bytes, _Entry], prev_id: bytes) -> list[Item]:
        """Release an item whose time is over, and those that waited for it.

        The order begins with it, unless its successors were released already. Then the last id stays, or the next items
        would wait for an item that was sent.
        """
        start, last = self._starts.get(channel), self._last.get(channel)
        self._start(channel, prev_id)
        released = self._release(self._take(channel, waiting, prev_id))
        if start is not None and last is not None and any(item.id == start for item in released):
            self._keep(channel, last)
        return released

    def _take(self, channel: bytes, waiting: dict[bytes, _Entry], prev_id: bytes) -> Item:
        _, item, size = waiting.pop(prev_id)
        self._total -= 1
        self.waiting_bytes -= size
        if not waiting:
            del self._waiting[channel]
        return item


def _first_arrival(waiting: dict[bytes, _Entry]) -> float:
    return next(iter(waiting.values()))[0]
