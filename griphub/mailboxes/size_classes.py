"""Size classes: the largest of many things whose sizes change all the time, at the cost of a comparison a change."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["SizeClasses"]

T = TypeVar("T")


class SizeClasses(Generic[T]):
    """Things by the power of two of their sizes; those of size 0 are left out.

    An exact order would cost a logarithm at each change of a size, of which there are as many as deliveries.
    """

    __slots__ = ("_classes",)

    def __init__(self) -> None:
        # The first of a plain dict is found by steps over all entries that were removed before it.
        self._classes: dict[int, OrderedDict[T, None]] = {}

    def move(self, item: T, before: int, after: int) -> None:
        """Note a change of size.

        Args:
            item: the thing.
            before: its size until now; 0 for a new one.
            after: its size; 0 if it is to be left out.
        """
        old, new = before.bit_length(), after.bit_length()
        if old == new:
            return
        if old:
            members = self._classes[old]
            del members[item]
            if not members:
                del self._classes[old]
        if new:
            members = self._classes.get(new) or self._classes.setdefault(new, OrderedDict())
            members[item] = None

    def largest(self) -> T | None:
        """Return a thing of which none is twice the size; None if there is none."""
        if not self._classes:
            return None
        return next(iter(self._classes[max(self._classes)]))
