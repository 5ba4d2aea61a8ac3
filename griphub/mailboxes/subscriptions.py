"""Index of subscriptions: the followers of a topic and of each key in it. Its cost is that of the followers found.

Millions of keys have one follower each, so a key with one costs no object of its own. Where there are more, they are
kept by owner: a message for very many followers is divided among the owners.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

__all__ = ["Follower", "SubscriptionIndex", "TopicFollowers"]


class Follower(Protocol):
    """Follower of topics and keys: neither None nor a dict."""

    @property
    def owner(self) -> Any:
        """Its owner, a key of dicts."""


T = TypeVar("T", bound=Follower)

_Group: TypeAlias = T | dict[Any, T | dict[T, None]]
"""Followers of a key: one, or those of each owner."""


class TopicFollowers(Generic[T]):
    """Followers of one topic, the whole of it (key None) or keys.

    Args:
        name: of the topic.
    """

    __slots__ = ("_keys", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._keys: dict[str | None, _Group[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def has(self, key: str | None, follower: T) -> bool:
        """Return whether there is exactly this subscription.

        Args:
            key: key; None for the whole topic.
            follower: the follower.
        """
        group = self._keys.get(key)
        if type(group) is not dict:
            return group is follower
        some = group.get(follower.owner)
        return follower in some if type(some) is dict else some is follower

    def add(self, key: str | None, follower: T) -> None:
        """Add a subscription that is not there.

        Args:
            key: key; None for the whole topic.
            follower: the follower.
        """
        group = self._keys.get(key)
        if group is None:
            self._keys[key] = follower
            return
        if type(group) is not dict:
            first = cast(T, group)
            group = self._keys[key] = {first.owner: first}
        owner = follower.owner
        some = group.get(owner)
        if some is None:
            group[owner] = follower
        elif type(some) is dict:
            some[follower] = None
        else:
            group[owner] = {cast(T, some): None, follower: None}

    def remove(self, key: str | None, follower: T) -> None:
        """Remove a subscription, unless its key was popped.

        Args:
            key: key; None for the whole topic.
            follower: a follower of it.
        """
        group = self._keys.get(key)
        if group is None:
            return
        if type(group) is dict:
            some = group[follower.owner]
            if type(some) is dict:
                del some[follower]
                if len(some) == 1:
                    group[follower.owner] = next(iter(some))
            else:
                del group[follower.owner]
            if len(group) > 1:
                return
            (left,) = group.values()
            if type(left) is not dict:
                self._keys[key] = cast(T, left)
            return
        del self._keys[key]

    def owners(self, key: str | None) -> Sequence[Any]:
        """Return the owners of the followers that a message is for, each once.

        Args:
            key: of the message; None for none, which concerns followers of the whole topic only.
        """
        whole = self._owners(None)
        if key is None:
            return whole
        keyed = self._owners(key)
        if not whole or not keyed:
            return whole or keyed
        return list(dict.fromkeys((*whole, *keyed)))

    def _owners(self, key: str | None) -> Sequence[Any]:
        group = self._keys.get(key)
        if group is None:
            return ()
        return list(group) if type(group) is dict else (cast(T, group).owner,)

    def of(self, owner: Any, key: str | None) -> Sequence[T]:
        """Return an owner's followers that a message is for, each once.

        Args:
            owner: the owner.
            key: of the message; None for none, which concerns followers of the whole topic only.
        """
        whole = self._of(owner, None)
        if key is None:
            return whole
        keyed = self._of(owner, key)
        if not whole or not keyed:
            return whole or keyed
        return list(dict.fromkeys((*whole, *keyed)))

    def _of(self, owner: Any, key: str | None) -> Sequence[T]:
        group = self._keys.get(key)
        some = group.get(owner) if type(group) is dict else group
        if some is None:
            return ()
        if type(some) is dict:
            return list(some)
        one = cast(T, some)
        return (one,) if one.owner is owner else ()

    def pop(self) -> tuple[str | None, list[T]]:
        """Return the followers of a key, which it has no more; None for the whole topic.

        Raises:
            KeyError: there are none.
        """
        # From the end: the first of a dict is found by steps over those that were taken before it.
        key, group = self._keys.popitem()
        return key, list(_members(group))

    def __iter__(self) -> Iterator[tuple[str | None, T]]:
        return ((key, follower) for key, group in self._keys.items() for follower in _members(group))


def _members(group: _Group[T]) -> Iterator[T]:
    if type(group) is not dict:
        yield cast(T, group)
        return
    for some in group.values():
        if type(some) is dict:
            yield from some
        else:
            yield cast(T, some)


class SubscriptionIndex(Generic[T]):
    """All topics with followers."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, TopicFollowers[T]] = {}

    def find(self, topic: str) -> TopicFollowers[T] | None:
        """Return the followers of a ``topic`` and its keys; None if it has none."""
        return self._topics.get(topic)

    def take(self, topic: str) -> TopicFollowers[T] | None:
        """Remove a topic, whose followers are left to be popped.

        Args:
            topic: name of the topic.

        Returns:
            Its followers; None if it has none.
        """
        return self._topics.pop(topic, None)

    def add(self, topic: str, key: str | None, follower: T) -> TopicFollowers[T]:
        """Add a subscription that is not there.

        Args:
            topic: name of the topic.
            key: key; None for the whole topic.
            follower: the follower.

        Returns:
            The followers of the topic.
        """
        followers = self._topics.get(topic)
        if followers is None:
            followers = self._topics[topic] = TopicFollowers(sys.intern(topic))
        followers.add(key, follower)
        return followers

    def remove(self, followers: TopicFollowers[T], key: str | None, follower: T) -> None:
        """Remove a subscription.

        Args:
            followers: of its topic, which may have been taken out.
            key: key; None for the whole topic.
            follower: the follower.
        """
        followers.remove(key, follower)
        if not followers and self._topics.get(followers.name) is followers:
            del self._topics[followers.name]
