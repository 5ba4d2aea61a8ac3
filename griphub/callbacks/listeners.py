"""Listeners: subscriptions that take events as they are stored, by topic. Sans-I/O, in turns of bounded time.

A subscription listens while it has delivered all events, or delivers the last ones. The others read theirs from the
store, so an event costs them nothing: they learn the id of the newest when they read a page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from griphub.callbacks.courier import Courier
from griphub.callbacks.push_event import PushEvent
from griphub.sender.delivery_actions import Action
from griphub.sender.delivery_states import State

__all__ = ["INBOX_BYTES", "LARGE", "SLICE", "Listeners"]

INBOX_BYTES: Final = 8_000_000
"""Bytes of events that wait to be given to listeners; further ones are read from the store."""

LARGE: Final = 250_000
"""Bytes of an event, above which it is large: it is in memory only while it is under way."""

SLICE: Final = 50
"""Listeners that get an event between two looks at the time."""

_LISTENING: Final = frozenset({State.LIVE, State.SENDING})


class _Topic:
    """Topic with subscriptions."""

    __slots__ = ("listening", "newest", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions = 0
        self.listening: dict[Courier, None] = {}
        self.newest = 0
        """Id of its newest event that is known here; 0 for none."""


class Listeners:
    """Subscriptions that listen, and events that wait for them.

    Args:
        now: monotonic time in seconds.
        carry_out: called with a subscription and the action that an event has led to.
        failed: called with a subscription in whose step an unexpected error was raised, while it is handled.
    """

    def __init__(
        self,
        now: Callable[[], float],
        carry_out: Callable[[Courier, Action[PushEvent]], None],
        failed: Callable[[Courier], None],
    ) -> None:
        self._now = now
        self._carry_out = carry_out
        self._failed = failed
        self._topics: dict[int, _Topic] = {}
        """By number; each has a subscription."""
        self._inbox: deque[tuple[int, Sequence[PushEvent], int]] = deque()
        """Topic, events that are not yet given to its listeners, and their bytes."""
        self._size = 0
        self._hints: dict[int, int] = {}
        """Id of the last event, by topics whose events were not kept."""
        self._distribution: Iterator[None] = iter(())

    # --- subscriptions

    def add(self, courier: Courier) -> None:
        """Take a subscription, which listens when ``update`` finds that.

        Args:
            courier: the subscription.
        """
        self._topics.setdefault(courier.topic, _Topic()).subscriptions += 1

    def remove(self, courier: Courier) -> None:
        """Remove a subscription.

        Args:
            courier: one that was added.
        """
        topic = self._topics[courier.topic]
        topic.listening.pop(courier, None)
        topic.subscriptions -= 1
        if not topic.subscriptions:
            del self._topics[courier.topic]

    def update(self, courier: Courier) -> None:
        """Note that the state of a subscription may have changed.

        Args:
            courier: one that was added.
        """
        listening = self._topics[courier.topic].listening
        if courier.delivery.state in _LISTENING:
            listening[courier] = None
        else:
            listening.pop(courier, None)

    def of(self, topic: int) -> int:
        """Return the number of listeners of a ``topic``."""
        found = self._topics.get(topic)
        return len(found.listening) if found is not None else 0

    def newest(self, topic: int) -> int:
        """Return the id of the newest event of a ``topic`` that is known; 0 for none."""
        found = self._topics.get(topic)
        return found.newest if found is not None else 0

    # --- events

    def stored(self, topic: int, events: Sequence[PushEvent]) -> None:
        """Take events that were committed.

        Args:
            topic: number of their topic.
            events: in order, at least one.
        """
        newest = events[-1].id
        if not self._noted(topic, newest):
            return
        size = sum([event.size for event in events])
        if self._size + size > INBOX_BYTES:
            self._hints[topic] = newest
            return
        self._inbox.append((topic, events, size))
        self._size += size

    def hint(self, topic: int, newest: int) -> None:
        """Note that a topic has events, without them.

        Args:
            topic: its number.
            newest: id of the last of them.
        """
        if self._noted(topic, newest):
            self._hints[topic] = newest

    def _noted(self, number: int, newest: int) -> bool:
        """Note the newest event of a topic; return whether it has listeners."""
        topic = self._topics.get(number)
        if topic is None:
            return False
        topic.newest = max(topic.newest, newest)
        return bool(topic.listening)

    def work(self, end: float) -> bool:
        """Give events to listeners.

        Args:
            end: monotonic time in seconds at which the turn is over.

        Returns:
            True if some wait for the next turn.
        """
        while True:
            for _ in self._distribution:
                if self._now() >= end:
                    return True
            if self._inbox:
                topic, events, size = self._inbox.popleft()
                self._size -= size
                self._distribution = self._given(topic, events)
            elif self._hints:
                topic, newest = self._hints.popitem()
                self._distribution = self._given(topic, (), newest)
            else:
                return False

    def _given(self, number: int, events: Sequence[PushEvent], newest: int = 0) -> Iterator[None]:
        """Give events, or the id of the ``newest``, to the listeners of a topic, with a stop after each slice of them.

        Those that begin to listen meanwhile have read a page, which has the events; those that end take none.
        """
        for event in events or (None,):
            topic = self._topics.get(number)
            couriers = list(topic.listening) if topic is not None else []
            for start in range(0, len(couriers), SLICE):
                for courier in couriers[start : start + SLICE]:
                    delivery = courier.delivery
                    try:
                        if event is None or event.size > LARGE:
                            action = delivery.hint(newest if event is None else event.id)
                        else:
                            action = delivery.live(event)
                        if action is not None:
                            self._carry_out(courier, action)
                    except Exception:  # noqa: BLE001 - it is logged, and concerns no other listener
                        self._failed(courier)
                yield
