"""Topics in the memory of the hub, as of the last change that the writer has committed."""

from __future__ import annotations

from collections.abc import Iterator

from griphub.store.topic import Topic

__all__ = ["TopicTable"]


class TopicTable:
    """All topics, by name and by number. Counts and last ids of events are those of the loading, unlike settings."""

    def __init__(self) -> None:
        self._names: dict[str, Topic] = {}
        self._numbers: dict[int, Topic] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._names.values())

    def named(self, name: str) -> Topic | None:
        """Return the topic with a ``name``; None if there is none."""
        return self._names.get(name)

    def numbered(self, number: int) -> Topic | None:
        """Return the topic with a ``number``; None if it was deleted."""
        return self._numbers.get(number)

    def set(self, topic: Topic) -> None:
        """Add a topic, or its earlier state.

        Args:
            topic: as it is now.
        """
        self._names[topic.name] = topic
        self._numbers[topic.number] = topic

    def remove(self, number: int) -> Topic | None:
        """Remove a topic.

        Args:
            number: of the topic.

        Returns:
            The topic; None if there was none.
        """
        topic = self._numbers.pop(number, None)
        if topic is not None:
            del self._names[topic.name]
        return topic
