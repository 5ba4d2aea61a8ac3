"""Table of the subscriptions of the push API: by number, by name, by topic, and in the order of their names."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Sequence

from griphub.store.pubsub_subscription import PubsubSubscription

__all__ = ["PubsubTable"]


class PubsubTable:
    """All subscriptions."""

    def __init__(self) -> None:
        self._numbers: dict[int, PubsubSubscription] = {}
        self._names: dict[tuple[str, str], int] = {}
        self._projects: dict[str, list[str]] = {}
        """Ids of each project, in order."""
        self._owners: Counter[str] = Counter()
        self._topics: dict[int, dict[int, None]] = {}
        """Numbers of the subscriptions of each topic."""

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[PubsubSubscription]:
        return iter(self._numbers.values())

    def numbered(self, number: int) -> PubsubSubscription | None:
        """Return the subscription with a ``number``; None if there is none."""
        return self._numbers.get(number)

    def named(self, project: str, id: str) -> PubsubSubscription | None:
        """Return the subscription of a name; None if there is none.

        Args:
            project: of its name.
            id: of it in its project.
        """
        number = self._names.get((project, id))
        return None if number is None else self._numbers[number]

    def count_of(self, owner: str) -> int:
        """Return the number of subscriptions of an owner.

        Args:
            owner: key of the owner.
        """
        return self._owners[owner]

    def follows(self, topic: int) -> bool:
        """Return whether a topic has subscriptions; ``topic``: its number."""
        return topic in self._topics

    def of_topic(self, topic: int) -> Sequence[PubsubSubscription]:
        """Return the subscriptions of a topic; ``topic``: its number, 0 for those whose topic was deleted."""
        return [self._numbers[number] for number in self._topics.get(topic, ())]

    def page(self, project: str, after: str, limit: int) -> Sequence[PubsubSubscription]:
        """Return subscriptions of a project, in the order of their ids.

        Args:
            project: the project.
            after: id behind which they begin, whether there is one of it or not; empty for the beginning.
            limit: greatest number.
        """
        ids = self._projects.get(project, [])
        first = bisect_right(ids, after)
        return [self._numbers[self._names[project, id]] for id in ids[first : first + limit]]

    def set(self, subscription: PubsubSubscription) -> None:
        """Add a subscription, or take its present state.

        Args:
            subscription: as it is now.
        """
        number, name = subscription.number, (subscription.project, subscription.id)
        known = self._numbers.get(number)
        if known is None:
            self._names[name] = number
            self._owners[subscription.owner] += 1
            insort(self._projects.setdefault(subscription.project, []), subscription.id)
        elif known.topic != subscription.topic:
            self._leave(known)
        self._numbers[number] = subscription
        self._topics.setdefault(subscription.topic, {})[number] = None

    def remove(self, number: int) -> PubsubSubscription | None:
        """Remove a subscription.

        Args:
            number: of it.

        Returns:
            The subscription; None if there was none.
        """
        known = self._numbers.pop(number, None)
        if known is None:
            return None
        del self._names[known.project, known.id]
        self._owners[known.owner] -= 1
        if not self._owners[known.owner]:
            del self._owners[known.owner]
        ids = self._projects[known.project]
        del ids[bisect_left(ids, known.id)]
        if not ids:
            del self._projects[known.project]
        self._leave(known)
        return known

    def _leave(self, known: PubsubSubscription) -> None:
        numbers = self._topics[known.topic]
        del numbers[known.number]
        if not numbers:
            del self._topics[known.topic]
