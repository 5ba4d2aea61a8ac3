"""Index of subscriptions: the followers of a topic and of each key in it. Its cost is that of the followers found."""

from __future__ import annotations

import sys
from collections.abc import Collection
from itertools import islice
from typing import Generic, TypeVar

__all__ = ["Subject", "SubscriptionIndex"]

T = TypeVar("T")


class Subject(Generic[T]):
    """Topic, or key of a topic, that has followers. Followers share it, and so its texts.

    Args:
        topic: name of the topic.
        key: key; None for the whole topic.
    """

    __slots__ = ("_more", "_one", "key", "topic")

    def __init__(self, topic: str, key: str | None) -> None:
        self.topic = topic
        self.key = key
        # Most keys have one follower, for which a table would take four times as much.
        self._one: T | None = None
        self._more: dict[T, None] | None = None

    def __contains__(self, follower: T) -> bool:
        return follower is self._one or (self._more is not None and follower in self._more)

    @property
    def followers(self) -> Collection[T]:
        """Followers, in the order of their subscriptions."""
        if self._more is not None:
            return self._more
        return () if self._one is None else (self._one,)

    def add(self, follower: T) -> None:
        """Add a ``follower`` that is not among them."""
        if self._more is not None:
            self._more[follower] = None
        elif self._one is None:
            self._one = follower
        else:
            self._more = {self._one: None, follower: None}
            self._one = None

    def remove(self, follower: T) -> bool:
        """Remove a follower.

        Args:
            follower: one of them.

        Returns:
            Whether there are others.
        """
        if self._more is None:
            self._one = None
            return False
        del self._more[follower]
        if len(self._more) == 1:
            self._one = next(iter(self._more))
            self._more = None
        return True


class SubscriptionIndex(Generic[T]):
    """All topics and keys with followers."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, dict[str | None, Subject[T]]] = {}

    def find(self, topic: str, key: str | None) -> Subject[T] | None:
        """Return the subject of exactly ``topic`` and ``key``; None if it has no followers."""
        subjects = self._topics.get(topic)
        return None if subjects is None else subjects.get(key)

    def has(self, topic: str) -> bool:
        """Return whether a ``topic``, or a key of it, has followers."""
        return topic in self._topics

    def subjects(self, topic: str, most: int | None = None) -> list[Subject[T]]:
        """Return the subjects of a topic: the whole of it, and keys.

        Args:
            topic: name of the topic.
            most: greatest number of them; None for all.
        """
        return list(islice(self._topics.get(topic, {}).values(), most))

    def add(self, topic: str, key: str | None, follower: T) -> Subject[T]:
        """Add a subscription.

        Args:
            topic: name of the topic.
            key: key; None for the whole topic.
            follower: one that has no such subscription.

        Returns:
            Its subject.
        """
        subjects = self._topics.get(topic)
        if subjects is None:
            topic = sys.intern(topic)
            subjects = self._topics[topic] = {}
        subject = subjects.get(key)
        if subject is None:
            subject = subjects[key] = Subject(sys.intern(topic), key)
        subject.add(follower)
        return subject

    def remove(self, subject: Subject[T], follower: T) -> None:
        """Remove a subscription.

        Args:
            subject: its subject.
            follower: one of its followers.
        """
        if subject.remove(follower):
            return
        subjects = self._topics[subject.topic]
        del subjects[subject.key]
        if not subjects:
            del self._topics[subject.topic]

    def matching(self, topic: str, key: str | None) -> Collection[T]:
        """Return the followers that a message is for, each once.

        Args:
            topic: name of the message's topic.
            key: its key; None for none, which concerns followers of the whole topic only.
        """
        subjects = self._topics.get(topic)
        if subjects is None:
            return ()
        whole = subjects.get(None)
        keyed = None if key is None else subjects.get(key)
        if whole is None:
            return () if keyed is None else keyed.followers
        if keyed is None:
            return whole.followers
        return [*whole.followers, *(follower for follower in keyed.followers if follower not in whole)]
