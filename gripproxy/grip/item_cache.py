"""Work on one item that its sessions share: its parsed form, and results by the inputs they depend on."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

__all__ = ["ENTRY", "OUTPUT_MAX", "SHARED_MAX", "Shared"]

SHARED_MAX: Final = 8 * 1024 * 1024
"""Bytes of results that are kept for one item. With more, all of them are forgotten, and made again where needed:
sessions that differ in every input share nothing anyway."""

OUTPUT_MAX: Final = 1_000_000
"""Bytes that filters or a patch may make of one item (the default of ``filter_output_max``)."""

ENTRY: Final = 300
"""Bytes that an entry counts for beside its key and value."""

T = TypeVar("T")


class Shared:
    """Results of the work on one item.

    ``output_max`` is how many bytes filters or a patch may make of the item.
    """

    __slots__ = ("_entries", "output_max", "size")

    def __init__(self, output_max: int = OUTPUT_MAX) -> None:
        self._entries: dict[Hashable, Any] = {}
        self.output_max = output_max
        self.size = 0
        """Bytes of all entries, about."""

    def get(self, key: Hashable) -> Any:
        """Return the value kept under ``key``; None if there is none."""
        return self._entries.get(key)

    def keep(self, key: Hashable, value: T, size: int) -> T:
        """Keep a value.

        Args:
            key: The key.
            value: The value.
            size: Memory of both, in bytes.

        Returns:
            The value.
        """
        size += ENTRY
        if self.size + size > SHARED_MAX:
            self._entries.clear()
            self.size = 0
        if size <= SHARED_MAX:
            self._entries[key] = value
            self.size += size
        return value

    def once(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """Return the value kept under ``key``, made now if there is none; after an exception it is made again.

        Args:
            key: The key.
            make: Makes the value.
            size: Returns the memory of the value, in bytes.
        """
        found: T | None = self._entries.get(key)
        if found is None:
            found = make()
            self.keep(key, found, size(found))
        return found
