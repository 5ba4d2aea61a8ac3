"""Windows of all soft topics: their number and bytes, by owner and in total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from griphub.windows.bounds import WindowBounds, WindowLimit
from griphub.windows.decisions import Resync
from griphub.windows.window import Window

__all__ = ["WindowTable"]

SHRUNK: Final = 8
"""Part of a window that goes when all together are too large, so that they are not with the next event."""


@dataclass(frozen=True, slots=True)
class _Entry:
    window: Window
    owner: str


class WindowTable:
    """Windows by the numbers of their topics.

    Args:
        new_epoch: called for each window; returns a name that none had before, 1 to 32 characters of ``[0-9a-z]``.
        bounds: bounds of windows.
    """

    def __init__(self, new_epoch: Callable[[], str], bounds: WindowBounds | None = None) -> None:
        self._new_epoch = new_epoch
        self._bounds = bounds or WindowBounds()
        self._entries: dict[int, _Entry] = {}
        self._reserved: Counter[str] = Counter()
        """Places that are kept for topics that are being made, by owner."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Window]:
        return iter([entry.window for entry in self._entries.values()])

    @property
    def size(self) -> int:
        """Bytes that the events of all windows count for."""
        return sum([entry.window.size for entry in self._entries.values()])

    def get(self, number: int) -> Window | None:
        """Return the window of the topic with a ``number``; None for none."""
        entry = self._entries.get(number)
        return None if entry is None else entry.window

    def check(self, owner: str) -> None:
        """Check that an owner may have a window more.

        Args:
            owner: the owner.

        Raises:
            WindowLimit: there are too many windows.
        """
        cure = "delete soft topics that are not needed"
        owned = sum(1 for each in self._entries.values() if each.owner == owner) + self._reserved[owner]
        if owned >= self._bounds.windows_each:
            raise WindowLimit("soft topics", self._bounds.windows_each, "owner", cure)
        if len(self._entries) + self._reserved.total() >= self._bounds.windows_total:
            raise WindowLimit("soft topics", self._bounds.windows_total, "total", cure)

    @contextmanager
    def reserved(self, owner: str) -> Iterator[None]:
        """Keep the place of a window for the time of the block, in which its topic is made.

        Args:
            owner: the owner.

        Raises:
            WindowLimit: there are too many windows.
        """
        self.check(owner)
        self._reserved[owner] += 1
        try:
            yield
        finally:
            self._reserved[owner] -= 1
            if not self._reserved[owner]:
                del self._reserved[owner]

    def open(self, number: int, owner: str) -> Window:
        """Return the window of a topic, which is made if there is none.

        Args:
            number: of the topic.
            owner: owner that it counts for.

        Raises:
            WindowLimit: there are too many windows.
        """
        entry = self._entries.get(number)
        if entry is None:
            self.check(owner)
            entry = self._entries[number] = _Entry(Window(self._new_epoch, self._bounds), owner)
        return entry.window

    def close(self, number: int) -> None:
        """Forget the window of a topic that is deleted.

        Args:
            number: of the topic.
        """
        self._entries.pop(number, None)

    def make_room(self) -> dict[int, list[Resync]]:
        """Drop events of the largest window of the largest owner if all together are too large. To be called each turn.

        Returns:
            By topic number, ranges whose followers have to resync.
        """
        sizes: dict[str, int] = {}
        for entry in self._entries.values():
            sizes[entry.owner] = sizes.get(entry.owner, 0) + entry.window.size
        if not sizes:
            return {}
        owner = max(sizes, key=sizes.__getitem__)
        if sizes[owner] <= self._bounds.bytes_each and sum(sizes.values()) <= self._bounds.bytes_total:
            return {}
        owned = {number: entry.window for number, entry in self._entries.items() if entry.owner == owner}
        number = max(owned, key=lambda each: owned[each].size)
        window = owned[number]
        return {number: window.shrink(window.size - window.size // SHRUNK)}
