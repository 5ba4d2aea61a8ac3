"""Deliveries at a limited rate, shared fairly between route ids (docs/grip.md §10: message_rate, message_hwm)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final

from gripproxy.delivery.channel import Session, Subscription
from gripproxy.delivery.turns import TURN_TIME
from gripproxy.grip.bounds import memory_of_item
from gripproxy.grip.item import Item

__all__ = ["DELIVERY", "INTERVAL", "WAITING_BYTES", "DeliveryRateLimiter"]

INTERVAL: Final = 0.025
"""Seconds between two batches of deliveries."""

WAITING_BYTES: Final = 32 * 1024 * 1024
"""Bytes that may wait in all queues together; once there are more, further deliveries are dropped and counted."""

DELIVERY: Final = 80
"""Bytes of a delivery that waits. Its item is counted once, however many sessions it waits for."""


class DeliveryRateLimiter:
    """Queues of deliveries, one per route id, served in turn. A delivery weighs its block count, or 1.

    Args:
        rate: deliveries per second, at least 1.
        hwm: most deliveries that wait in a queue; 0 for as many as ``WAITING_BYTES`` allows for all queues.
        arm: the loop's ``call_later``, with seconds and a function.
        overflow: called with the number of deliveries that were dropped.
        clock: the loop's time in seconds; a batch that takes long goes on in the next turn of the loop.
        failed: called with a session and its exception, while the exception is handled.
    """

    def __init__(
        self,
        rate: int,
        hwm: int,
        arm: Callable[[float, Callable[[], None]], object],
        overflow: Callable[[int], None],
        clock: Callable[[], float],
        failed: Callable[[Session, Exception], None],
    ) -> None:
        self._clock = clock
        self._failed = failed
        self._batch = max(1, ceil(rate * INTERVAL))
        self._hwm = hwm
        self._arm = arm
        self._overflow = overflow
        self._queues: dict[bytes, deque[tuple[Subscription, Item, int]]] = {}
        self._waiting: dict[bytes, int] = {}
        self._items: dict[int, tuple[int, int]] = {}
        """(Waiting deliveries, bytes) by id of the item, which its deliveries keep alive."""
        self._size = 0
        self._running = False
        self.delivered = 0

    def put(self, key: bytes, subscription: Subscription, item: Item, weight: int) -> bool:
        """Queue one delivery.

        Args:
            key: the route id; empty for all routes without one.
            subscription: whose session gets the item.
            item: the item.
            weight: in units of the rate, at least 1.

        Returns:
            False if the delivery was dropped.
        """
        waiting = self._waiting.get(key, 0)
        if (self._hwm and waiting + weight > self._hwm) or self._size > WAITING_BYTES:
            self._overflow(1)
            return False
        known = self._items.get(id(item))
        if known is None:
            size = memory_of_item(item)
            self._items[id(item)] = (1, size)
            self._size += DELIVERY + size
        else:
            self._items[id(item)] = (known[0] + 1, known[1])
            self._size += DELIVERY
        self._waiting[key] = waiting + weight
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
        queue.append((subscription, item, weight))
        if not self._running:
            # The first batch has no pause before it, but all deliveries of this item are queued first.
            self._running = True
            self._arm(0, self._run)
        return True

    def _run(self) -> None:
        self._serve(self._batch)

    def _serve(self, left: int) -> None:
        """Deliver a batch, or the part of weight ``left`` of it, until the turn is over."""
        until = self._clock() + TURN_TIME
        while left > 0 and self._queues:
            # The queue that was served goes to the end, so that its turn is not the first of the next batch too.
            key = next(iter(self._queues))
            queue = self._queues.pop(key)
            subscription, item, weight = queue.popleft()
            left -= weight
            self._taken(item)
            if queue:
                self._queues[key] = queue
                self._waiting[key] -= weight
            else:
                del self._waiting[key]
            session = subscription.session
            try:
                if subscription in session.subscriptions and session.deliver(subscription, item):
                    self.delivered += 1
            except Exception as error:  # noqa: BLE001 - of one session; the others have their turn
                self._failed(session, error)
            if left > 0 and self._queues and self._clock() >= until:
                self._arm(0, partial(self._serve, left))
                return
        # The pause is kept even without further deliveries, otherwise single items would pass faster than the rate.
        if self._queues:
            self._arm(INTERVAL, self._run)
        else:
            self._arm(INTERVAL, self._rest)

    def _taken(self, item: Item) -> None:
        """Uncount a waiting delivery of the item."""
        times, size = self._items.pop(id(item))
        self._size -= DELIVERY
        if times > 1:
            self._items[id(item)] = (times - 1, size)
        else:
            self._size -= size

    def _rest(self) -> None:
        self._running = False
        if self._queues:
            self._running = True
            self._run()
