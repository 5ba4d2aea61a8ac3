"""Losses of a mailbox: for each subscription the id of the last message that went before it was acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from griphub.mailboxes.messages import Lost

__all__ = ["Losses"]


class Losses:
    """Last lost ids, by topic and key, in the order of the ids.

    Messages go in the order of their ids, so that the newest loss is always the last one. Beyond the bound, the keys
    of a topic are one loss: there are never more than topics and the bound together.

    Args:
        most: number of losses beyond which those of keys become losses of their topics.
    """

    __slots__ = ("_entries", "_keyed", "_most")

    def __init__(self, most: int) -> None:
        self._entries: dict[tuple[str, str | None], int] = {}
        self._keyed = 0
        """Number of losses with a key."""
        self._most = most

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Lost]:
        return (Lost(topic, key, last_id) for (topic, key), last_id in self._entries.items())

    def add(self, topic: str, key: str | None, last_id: int) -> None:
        """Add a lost message.

        Args:
            topic: name of its topic.
            key: its key; None for a subscription to the whole topic.
            last_id: its id, above all that were added before.
        """
        if key is not None:
            key = self._key_of(topic, key)
        if self._entries.pop((topic, key), None) is None and key is not None:
            self._keyed += 1
        self._entries[topic, key] = last_id

    def acknowledge(self, number: int) -> None:
        """Remove the losses with ids up to ``number``."""
        while self._entries:
            pair = next(iter(self._entries))
            if self._entries[pair] > number:
                return
            self._remove(pair)

    def keep(self, wanted: Callable[[str, str | None], bool]) -> None:
        """Remove the losses that do not matter any more.

        Args:
            wanted: called with topic and key; False if there is no such subscription.
        """
        for pair in [pair for pair in self._entries if not wanted(*pair)]:
            self._remove(pair)

    def _remove(self, pair: tuple[str, str | None]) -> None:
        del self._entries[pair]
        self._keyed -= pair[1] is not None

    def _key_of(self, topic: str, key: str) -> str | None:
        """Return the key of a new loss; None if it is one of the whole topic."""
        if (topic, None) in self._entries:
            return None
        if len(self._entries) < self._most or (topic, key) in self._entries:
            return key
        if self._keyed:
            self._collapse()
        return None

    def _collapse(self) -> None:
        topics: dict[tuple[str, str | None], int] = {}
        for (topic, _), last_id in self._entries.items():
            topics.pop((topic, None), None)
            topics[topic, None] = last_id
        self._entries = topics
        self._keyed = 0
