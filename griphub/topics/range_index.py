"""Index of ranges: which distinct ranges of a topic contain a key.

Single keys are looked up in a dict, the whole topic is one entry, all others lie in an interval tree over UTF-8 bytes.
The cost of a look-up is that of its hits, not of the ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from intervaltree import Interval, IntervalTree

from griphub.store.interface import KeyRange

__all__ = ["RangeIndex"]

T = TypeVar("T")

TOP: Final = b"\xff"
"""Bound above all keys: no UTF-8 text has this byte."""


class RangeIndex(Generic[T]):
    """Values by range; equal ranges have one value."""

    __slots__ = ("_all", "_keys", "_tree")

    def __init__(self) -> None:
        self._all: dict[KeyRange, T] = {}
        self._keys: dict[str, T] = {}
        self._tree: IntervalTree | None = None

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
            if self._tree is None:
                self._tree = IntervalTree()
            self._tree.add(_interval(keys, value))

    def remove(self, keys: KeyRange) -> None:
        """Remove a range.

        Args:
            keys: range that is in the index.
        """
        value = self._all.pop(keys)
        single = _single(keys)
        if single is not None:
            del self._keys[single]
        elif keys.keyed and self._tree is not None:
            self._tree.remove(_interval(keys, value))

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
            if self._tree is not None:
                hits = self._tree.at(key.encode())
                if len(hits) > 1:
                    hits = sorted(sorted(hits, key=_end), key=_begin, reverse=True)
                found += [hit.data for hit in hits]
        whole = self._all.get(_WHOLE)
        if whole is not None:
            found.append(whole)
        return found


_WHOLE: Final = KeyRange(keyed=False)


def _begin(interval: Interval) -> bytes:
    begin: bytes = interval.begin
    return begin


def _end(interval: Interval) -> bytes:
    end: bytes = interval.end
    return end


def _single(keys: KeyRange) -> str | None:
    """Return the only key that a range can contain; None if there are more."""
    return keys.low if keys.low is not None and keys.high == keys.low + "\0" else None


def _interval(keys: KeyRange, value: object) -> Interval:
    low = b"" if keys.low is None else keys.low.encode()
    return Interval(low, TOP if keys.high is None else keys.high.encode(), value)
