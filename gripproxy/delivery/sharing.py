"""Work on items that sessions share, for as long as an item is being delivered (docs/grip.md §7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gripproxy.grip.item import Item
from gripproxy.grip.item_cache import OUTPUT_MAX, Shared

__all__ = ["TOTAL_MAX", "Sharing"]

TOTAL_MAX: Final = 32 * 1024 * 1024
"""Bytes of shared work over all items of a worker. With more, all of it is forgotten and made again where needed."""


class Sharing:
    """Shared work by item; it is forgotten in the next turn of the loop unless the item is held.

    Args:
        later: calls back in the next turn of the loop.
        output_max: bytes that filters or a patch may make of one item.
    """

    __slots__ = ("_held", "_later", "_sweeping", "entries", "output_max")

    def __init__(self, later: Callable[[Callable[[], None]], object], output_max: int = OUTPUT_MAX) -> None:
        self._later = later
        self.output_max = output_max
        # The item is kept with its work, so that no other one gets its id.
        self.entries: dict[int, tuple[Item, Shared]] = {}
        """By id of the item; always the same object. Empty while nothing is filtered or patched."""
        self._held: dict[int, tuple[Item, int]] = {}
        self._sweeping = False

    def of(self, item: Item) -> Shared:
        """Return the shared work of an item.

        Args:
            item: the item.
        """
        entry = self.entries.get(id(item))
        if entry is not None:
            return entry[1]
        if sum([shared.size for _, shared in self.entries.values()]) > TOTAL_MAX:
            self.entries.clear()
        shared = Shared(self.output_max)
        self.entries[id(item)] = (item, shared)
        if not self._sweeping:
            self._sweeping = True
            self._later(self._sweep)
        return shared

    def hold(self, item: Item) -> None:
        """Keep the work on an item over several turns, until it is released as often.

        Args:
            item: the item.
        """
        _, times = self._held.get(id(item), (item, 0))
        self._held[id(item)] = (item, times + 1)

    def release(self, item: Item) -> None:
        """Release the work on an item: a delivery of several turns is over.

        Args:
            item: the item.
        """
        _, times = self._held.pop(id(item))
        if times > 1:
            self._held[id(item)] = (item, times - 1)
        else:
            self.entries.pop(id(item), None)

    def _sweep(self) -> None:
        self._sweeping = False
        held = self._held
        for key in [key for key in self.entries if key not in held]:
            del self.entries[key]
