"""Subscriptions in the memory of the hub, as of the last change that the writer has committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from griphub.store.subscription import Subscription

__all__ = ["SubscriptionTable"]

K = TypeVar("K", int, str)


class SubscriptionTable:
    """All subscriptions by number, by topic, and by owner."""

    def __init__(self) -> None:
        self._numbers: dict[int, Subscription] = {}
        self._names: dict[tuple[int, str, str], int] = {}
        self._topics: dict[int, dict[int, None]] = {}
        self._owners: dict[str, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._numbers.values())

    def numbered(self, number: int) -> Subscription | None:
        """Return the subscription with a ``number``; None if there is none."""
        return self._numbers.get(number)

    def find(self, topic: int, owner: str, id: str) -> Subscription | None:
        """Return a subscription by its name.

        Args:
            topic: number of its topic.
            owner: key of its owner.
            id: chosen by the subscriber.

        Returns:
            The subscription; None if there is none.
        """
        number = self._names.get((topic, owner, id))
        return None if number is None else self._numbers[number]

    def follows(self, topic: int) -> bool:
        """Return whether a topic, given by its number, has subscriptions."""
        return topic in self._topics

    def of_topic(self, topic: int) -> Sequence[Subscription]:
        """Return the subscriptions of a topic, given by its number, in the order of their numbers."""
        return [self._numbers[number] for number in sorted(self._topics.get(topic, ()))]

    def of_owner(self, owner: str) -> Sequence[Subscription]:
        """Return the subscriptions of an owner, given by its key, in the order of their numbers."""
        return [self._numbers[number] for number in sorted(self._owners.get(owner, ()))]

    def set(self, subscription: Subscription) -> None:
        """Add a subscription, or replace its earlier state.

        Args:
            subscription: as it is now.
        """
        number = subscription.number
        self._numbers[number] = subscription
        self._names[subscription.topic, subscription.owner, subscription.id] = number
        self._topics.setdefault(subscription.topic, {})[number] = None
        self._owners.setdefault(subscription.owner, {})[number] = None

    def remove(self, number: int) -> Subscription | None:
        """Remove a subscription.

        Args:
            number: of the subscription.

        Returns:
            The subscription; None if there was none.
        """
        subscription = self._numbers.pop(number, None)
        if subscription is None:
            return None
        del self._names[subscription.topic, subscription.owner, subscription.id]
        _drop(self._topics, subscription.topic, number)
        _drop(self._owners, subscription.owner, number)
        return subscription


def _drop(index: dict[K, dict[int, None]], key: K, number: int) -> None:
    numbers = index[key]
    del numbers[number]
    if not numbers:
        del index[key]
