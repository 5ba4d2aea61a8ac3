"""Index of ranges: which distinct ranges of a topic contain a key.

Single keys are looked up in a dict, the whole topic is one entry, all others lie in a tree (``range_tree``). The cost
of a look-up is that of its hits, not of the ranges. The order of Python's strings, by code points, is that of UTF-8
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from griphub.store.interface import KeyRange
from griphub.topics.names import KEY_MAX
from griphub.topics.range_tree import RangeTree

__all__ = ["RangeIndex"]

T = TypeVar("T")

BOTTOM: Final = ""
TOP: Final = "\U0010ffff" * KEY_MAX
"""Bounds below and above all keys: a key has 1 to ``KEY_MAX`` bytes of UTF-8, so fewer characters than ``TOP``."""


class RangeIndex(Generic[T]):
    """Values by range; equal ranges have one value."""

    __slots__ = ("_all", "_keys", "_tree")

    def __init__(self) -> None:
        self._all: dict[KeyRange, T] = {}
        self._keys: dict[str, T] = {}
        self._tree: RangeTree[T] = RangeTree()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[T]:
        return iter(self._all.values())

    def get(self, keys: KeyRange) -> T | None:
        """Return the value of exactly the range ``keys``; None for none."""
        return self._all.get(keys)

    def add(self, keys: KeyRange, value: T) -> None:
        """Add a range.

        Args:
            keys: range that is not in the index; it must not be empty.
            value: value of the range.
        """
        self._all[keys] = value
        single = _single(keys)
        if single is not None:
            self._keys[single] = value
        elif keys.keyed:
            self._tree.add(*_bounds(keys), value)

    def remove(self, keys: KeyRange) -> None:
        """Remove a range.

        Args:
            keys: range that is in the index.
        """
        del self._all[keys]
        single = _single(keys)
        if single is not None:
            del self._keys[single]
        elif keys.keyed:
            self._tree.remove(*_bounds(keys))

    def matching(self, key: str | None) -> list[T]:
        """Return the values of all ranges that contain an event with ``key``, the narrowest ranges first.

        Args:
            key: of the event; None for none, which lies in the range of the whole topic only.
        """
        found: list[T] = []
        if key is not None:
            single = self._keys.get(key)
            if single is not None:
                found.append(single)
            found += self._tree.matching(key)
        whole = self._all.get(_WHOLE)
        if whole is not None:
            found.append(whole)
        return found


_WHOLE: Final = KeyRange(keyed=False)


def _single(keys: KeyRange) -> str | None:
    """Return the only key that a range can contain; None if there are more."""
    return keys.low if keys.low is not None and keys.high == keys.low + "\0" else None


def _bounds(keys: KeyRange) -> tuple[str, str]:
    return keys.low or BOTTOM, keys.high or TOP
