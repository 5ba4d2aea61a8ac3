"""Source of items: the protocol of each, and all of them as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

__all__ = ["Source", "Sources"]


class Source(Protocol):
    """A way in for items, whose publishers cannot be answered."""

    @property
    def unread(self) -> bool:
        """True if messages have arrived that were not read yet."""

    def open(self, channels: Iterable[bytes]) -> str | None:
        """Admit publishers, and read their messages.

        Args:
            channels: channels that have a subscription already.

        Returns:
            The address that publishers connect to; None for a source that connects to them.

        Raises:
            BindError: the configured address cannot be used.
        """

    def follow(self, channel: bytes, wanted: bool) -> None:
        """Forward that a channel has got its first subscription (``wanted``) or has lost its last one."""

    def pause(self) -> None:
        """Let no further publishers connect; those that are connected are read until ``close``."""

    def close(self) -> None:
        """Read the messages that have arrived, a turn at most, and disconnect all publishers."""


class Sources:
    """All open sources; a source itself, but for ``open``."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    @property
    def unread(self) -> bool:
        """True if messages have arrived that were not read yet."""
        return any(source.unread for source in self._sources)

    def open(self, source: Source, channels: Iterable[bytes]) -> str | None:
        """Open a source and add it; arguments, result and errors are those of ``Source.open``."""
        self._sources.append(source)
        return source.open(channels)

    def follow(self, channel: bytes, wanted: bool) -> None:
        """Forward a first or last subscription to all sources."""
        for source in self._sources:
            source.follow(channel, wanted)

    def pause(self) -> None:
        """Let no further publishers connect to any source."""
        for source in self._sources:
            source.pause()

    def close(self) -> None:
        """Close all sources."""
        sources, self._sources = self._sources, []
        for source in sources:
            source.close()
