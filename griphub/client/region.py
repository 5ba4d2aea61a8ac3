"""Knowledge region: a range of keys and an interval of versions in which each value is known. Immutable, sans-I/O.

A snapshot makes a region of one version. Changes and progress raise its top, where they apply; eviction raises its
bottom, or takes keys away. A region may be kept, split and handed over, since a change makes another one, which shares
all unchanged keys with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from griphub.client.cells import Cell, Cells, added, cell_at, replaced
from griphub.client.key_range import KeyRange
from griphub.client.version_tree import (
    Tree,
    build,
    concatenate,
    divide,
    find,
    forget,
    newer,
    put,
    remove,
    size_of,
    walk,
)
from griphub.client.watch_messages import Version

__all__ = ["REGION_SIZE", "Mutation", "Region", "RegionBuilder"]

V = TypeVar("V")

REGION_SIZE: Final = 512
"""Bytes of a region without keys."""


@dataclass(frozen=True, slots=True)
class Mutation(Generic[V]):
    """Change of one key.

    Attributes:
        key: the key.
        value: the value; None if the key was deleted.
        size: bytes of the value.
    """

    key: str
    value: V | None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Region(Generic[V]):
    """Values of a range of keys at all versions of an interval.

    Attributes:
        range: the keys.
        epoch: of the versions.
        bottom: number of the least version at which all values are known.
        top: number of the greatest one.
        tree: keys and their values; those that were unchanged from before the bottom are among them.
    """

    range: KeyRange
    epoch: str
    bottom: int
    top: int
    tree: Tree[V]

    @property
    def size(self) -> int:
        """Bytes of the region, those of its values included."""
        return REGION_SIZE + size_of(self.tree)

    def __len__(self) -> int:
        return 0 if self.tree is None else self.tree.count

    def knows(self, version: Version) -> bool:
        """Return whether all values are known at a ``version``."""
        return self.epoch == version.epoch and self.bottom <= version.number <= self.top

    # --- reading

    def get(self, key: str, version: int) -> V | None:
        """Return the value of a key at a version.

        Args:
            key: a key of the range.
            version: number of a version, from the bottom to the top.

        Returns:
            The value; None if the key has none.

        Raises:
            LookupError: the value is not known.
        """
        if key not in self.range or not self.bottom <= version <= self.top:
            raise LookupError(f"{key!r:.80} at {self.epoch}.{version} is not known in {self.describe()}")
        cell = cell_at(find(self.tree, key), version)
        return None if cell is None else cell.value

    def items(self, range: KeyRange, version: int) -> Iterator[tuple[str, V]]:
        """Yield keys and values at a version, by key.

        Args:
            range: part of the region's range.
            version: number of a version, from the bottom to the top.

        Raises:
            LookupError: the values are not known.
        """
        if not self.range.covers(range) or not self.bottom <= version <= self.top:
            raise LookupError(f"{range} at {self.epoch}.{version} is not known in {self.describe()}")
        for key, cells in walk(self.tree, range.low, range.high):
            cell = cell_at(cells, version)
            if cell is not None and cell.value is not None:
                yield key, cell.value

    def describe(self) -> str:
        """Return range and versions as text."""
        return f"{self.range} at [{self.epoch}.{self.bottom}, {self.top}]"

    # --- more is known

    def extend(self, since: int, version: Version, mutations: Sequence[Mutation[V]]) -> Region[V]:
        """Return the region with the mutations of a version, and with its top there.

        Args:
            since: number of the version behind which these are all mutations of the range.
            version: their version.
            mutations: in order; those of keys outside the range are passed over.

        Returns:
            This region if the version is known. In a new epoch the region begins with it: numbers of the old one behind
            the place from which the store was restored have no meaning there, and changes above ``since`` may be among
            those that the restored store lacks.

        Raises:
            ValueError: versions between the top and ``since`` are not known, or in a new epoch those at ``since``.
        """
        if version.epoch != self.epoch:
            last = replace(self.lower(since), epoch=version.epoch)
            return last.extend(since, version, mutations).evict(version.number)
        if version.number <= self.top:
            return self
        self._check(since)
        tree, number = self.tree, version.number
        for mutation in mutations:
            if mutation.key not in self.range:
                continue
            cells = find(tree, mutation.key)
            cell = Cell(number, mutation.value, mutation.size)
            if cells and cells[-1].version == number:
                tree = put(tree, mutation.key, replaced(cells, cell))
            elif cells or mutation.value is not None:
                tree = put(tree, mutation.key, added(cells, cell))
        return replace(self, top=number, tree=tree)

    def raised(self, since: int, version: Version) -> Region[V]:
        """Return the region with a greater top: nothing has changed up to there.

        Args:
            since: number of the version behind which nothing has changed in the range.
            version: up to which nothing has changed.

        Returns:
            This region if the version is known.

        Raises:
            ValueError: versions between the top and ``since`` are not known.
        """
        return self.extend(since, version, ())

    def _check(self, since: int) -> None:
        if since > self.top:
            raise ValueError(f"changes behind {since} do not join {self.describe()}: a snapshot is needed")

    # --- less is known

    def evict(self, bottom: int) -> Region[V]:
        """Return the region without the versions below a new bottom.

        Args:
            bottom: number of the least version.

        Returns:
            This region if its bottom is not lower.

        Raises:
            ValueError: the bottom is above the top.
        """
        if bottom <= self.bottom:
            return self
        if bottom > self.top:
            raise ValueError(f"bottom {bottom} is above the top of {self.describe()}")
        return replace(self, bottom=bottom, tree=forget(self.tree, bottom))

    def lower(self, top: int) -> Region[V]:
        """Return the region without the versions above a new top.

        Args:
            top: number of the greatest version.

        Returns:
            This region if its top is not greater.

        Raises:
            ValueError: the top is below the bottom.
        """
        if top >= self.top:
            return self
        if top < self.bottom:
            raise ValueError(f"top {top} is below the bottom of {self.describe()}")
        tree = self.tree
        for key, cells in newer(tree, top):
            kept = tuple(cell for cell in cells if cell.version <= top)
            tree = put(tree, key, kept) if kept else remove(tree, key)
        return replace(self, top=top, tree=tree)

    def clip(self, range: KeyRange) -> Region[V]:
        """Return the part of the region with the keys of a range.

        Args:
            range: part of the region's range.

        Raises:
            ValueError: the range has other keys.
        """
        if not self.range.covers(range):
            raise ValueError(f"{range} is no part of {self.describe()}")
        tree = self.tree
        if range.low > self.range.low:
            tree = divide(tree, range.low)[1]
        if range.high is not None and range.high != self.range.high:
            tree = divide(tree, range.high)[0]
        return replace(self, range=range, tree=tree)

    def split(self, key: str) -> tuple[Region[V], Region[V]]:
        """Return the region in two.

        Args:
            key: least key of the second one.

        Raises:
            ValueError: one of them would have no key.
        """
        left, right = KeyRange(self.range.low, key), KeyRange(key, self.range.high)
        return self.clip(left), self.clip(right)

    # --- two regions

    def join(self, other: Region[V]) -> Region[V] | None:
        """Return this and an ``other`` region as one, if they touch on one axis and coincide on the other.

        Args:
            other: the region of the next keys and of equal versions; or of equal keys, and of versions of which the
                least one is known here.

        Returns:
            The region; None if they are none.
        """
        if self.epoch != other.epoch:
            return None
        if self.range == other.range and self.bottom <= other.bottom <= self.top:
            return self if other.top <= self.top else self._continued(other)
        if self.range.high == other.range.low and (self.bottom, self.top) == (other.bottom, other.top):
            keys = KeyRange(self.range.low, other.range.high)
            return replace(self, range=keys, tree=concatenate(self.tree, other.tree))
        return None

    def _continued(self, other: Region[V]) -> Region[V]:
        tree = self.tree
        for key, cells in newer(other.tree, self.top):
            joined = find(tree, key)
            for cell in cells:
                if cell.version > self.top:
                    joined = added(joined, cell)
            tree = put(tree, key, joined)
        return replace(self, top=other.top, tree=tree)


class RegionBuilder(Generic[V]):
    """Region of a snapshot, made part by part: a part is one turn of the loop.

    Args:
        range: the keys.
        version: of the snapshot.
    """

    def __init__(self, range: KeyRange, version: Version) -> None:
        self._range = range
        self._version = version
        self._tree: Tree[V] = None
        self._last: str | None = None

    def add(self, mutations: Sequence[Mutation[V]]) -> None:
        """Add values.

        Args:
            mutations: those of keys outside the range are passed over.
        """
        number = self._version.number
        pairs: dict[str, Cells[V]] = {
            each.key: (Cell(number, each.value, each.size),)
            for each in mutations
            if each.value is not None and each.key in self._range
        }
        keys = sorted(pairs)
        if keys and (self._last is None or keys[0] > self._last):
            self._tree = concatenate(self._tree, build([(key, pairs[key]) for key in keys]))
            self._last = keys[-1]
            return
        # A hub gives keys in order. Another order takes longer, and has the same result.
        for key in keys:
            self._tree = put(self._tree, key, pairs[key])

    def region(self) -> Region[V]:
        """Return the region.

        Returns:
            A region whose bottom and top are the version of the snapshot.
        """
        return Region(self._range, self._version.epoch, self._version.number, self._version.number, self._tree)
