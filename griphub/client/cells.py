"""Cells of one key: its values by version. An added cell makes other cells, which share all earlier ones. Sans-I/O.

A key has few of them, in a tuple. Those of a key that changes often are in blocks, so that a further one costs no copy
of all others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar, overload

__all__ = ["BLOCK", "Cell", "Cells", "LongCells", "added", "cell_at", "replaced", "since", "size_of_cells"]

V = TypeVar("V")

BLOCK: Final = 64
"""Cells of a block."""


class Cell(NamedTuple, Generic[V]):
    """Value of a key from a version on.

    Attributes:
        version: number of the version.
        value: the value; None if the key was deleted.
        size: bytes of the value.
    """

    version: int
    value: V | None
    size: int


class LongCells(Sequence[Cell[V]]):
    """More than ``BLOCK`` cells.

    Args:
        blocks: the earlier ones, in blocks of ``BLOCK`` but for the first, which may have any number.
        recent: the last ones, at least one.
        size: bytes of the values of all.
    """

    __slots__ = ("blocks", "recent", "size")

    def __init__(self, blocks: tuple[tuple[Cell[V], ...], ...], recent: tuple[Cell[V], ...], size: int) -> None:
        self.blocks = blocks
        self.recent = recent
        self.size: int = size

    def __len__(self) -> int:
        return len(self.blocks[0]) + (len(self.blocks) - 1) * BLOCK + len(self.recent)

    @overload
    def __getitem__(self, index: int) -> Cell[V]: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Cell[V], ...]: ...

    def __getitem__(self, index: int | slice) -> Cell[V] | tuple[Cell[V], ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        length = len(self)
        place = index + length if index < 0 else index
        if not 0 <= place < length:
            raise IndexError(index)
        first = self.blocks[0]
        if place < len(first):
            return first[place]
        block, rest = divmod(place - len(first), BLOCK)
        return self.blocks[block + 1][rest] if block + 1 < len(self.blocks) else self.recent[rest]


Cells = tuple[Cell[V], ...] | LongCells[V]
"""Cells of one key, with increasing versions."""


def size_of_cells(cells: Cells[V]) -> int:
    """Return the bytes of the values of ``cells``."""
    return cells.size if isinstance(cells, LongCells) else sum([cell.size for cell in cells])


def added(cells: Cells[V], cell: Cell[V]) -> Cells[V]:
    """Return cells with a further one.

    Args:
        cells: cells of lower versions.
        cell: the further one.
    """
    if isinstance(cells, LongCells):
        if len(cells.recent) < BLOCK:
            return LongCells(cells.blocks, (*cells.recent, cell), cells.size + cell.size)
        return LongCells((*cells.blocks, cells.recent), (cell,), cells.size + cell.size)
    if len(cells) < BLOCK:
        return (*cells, cell)
    return LongCells((cells,), (cell,), size_of_cells(cells) + cell.size)


def replaced(cells: Cells[V], cell: Cell[V]) -> Cells[V]:
    """Return cells with another last one.

    Args:
        cells: at least one.
        cell: takes the place of the last one.
    """
    if isinstance(cells, LongCells):
        size = cells.size - cells.recent[-1].size + cell.size
        return LongCells(cells.blocks, (*cells.recent[:-1], cell), size)
    return (*cells[:-1], cell)


def since(cells: Cells[V], first: int) -> Cells[V]:
    """Return cells without some of the earliest ones.

    Args:
        cells: the cells.
        first: how many are left out.
    """
    if not isinstance(cells, LongCells):
        return cells[first:]
    if len(cells) - first <= BLOCK:
        return cells[first:]
    blocks, gone = cells.blocks, 0
    while first >= len(blocks[0]):
        first -= len(blocks[0])
        gone += sum([cell.size for cell in blocks[0]])
        blocks = blocks[1:]
    gone += sum([cell.size for cell in blocks[0][:first]])
    return LongCells((blocks[0][first:], *blocks[1:]), cells.recent, cells.size - gone)


def cell_at(cells: Cells[V], version: int) -> Cell[V] | None:
    """Return the newest cell at a version.

    Args:
        cells: of one key.
        version: number of the version.

    Returns:
        The cell; None if all of them are newer.
    """
    if cells and cells[-1].version <= version:
        return cells[-1]
    place = bisect_right(cells, version, key=_version)
    return cells[place - 1] if place else None


def _version(cell: Cell[V]) -> int:
    return cell.version
