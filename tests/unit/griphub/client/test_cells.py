"""Cells of a key: as a list, whatever is added, replaced and left out, and without a change of earlier ones."""

from __future__ import annotations

import random

import pytest

from griphub.client.cells import BLOCK, Cell, Cells, LongCells, added, cell_at, replaced, since, size_of_cells


def check(cells: Cells[str], model: list[Cell[str]], chance: random.Random) -> None:
    assert list(cells) == model
    assert len(cells) == len(model)
    assert size_of_cells(cells) == sum(cell.size for cell in model)
    assert cells[-1] == model[-1]
    assert cells[0] == model[0]
    assert list(reversed(cells)) == model[::-1]
    place = chance.randrange(len(model))
    assert cells[place] == model[place]
    assert cells[place - len(model)] == model[place]
    assert list(cells[place:]) == model[place:]
    version = chance.randrange(model[0].version - 1, model[-1].version + 2)
    assert cell_at(cells, version) == max((cell for cell in model if cell.version <= version), default=None)


@pytest.mark.parametrize("seed", range(8))
def test_cells_are_as_a_list(seed: int) -> None:
    chance = random.Random(seed)
    cells: Cells[str] = ()
    model: list[Cell[str]] = []
    kept: list[tuple[Cells[str], list[Cell[str]]]] = []
    for version in range(1, 1000):
        cell = Cell(version, str(version), chance.randrange(100))
        if model and chance.random() < 0.1:
            cell = Cell(model[-1].version, "again", 7)
            cells = replaced(cells, cell)
            model = [*model[:-1], cell]
        else:
            cells = added(cells, cell)
            model = [*model, cell]
        if chance.random() < 0.02:
            first = chance.randrange(len(model))
            cells, model = since(cells, first), model[first:]
        if chance.random() < 0.2:
            check(cells, model, chance)
            kept.append((cells, model))
    for earlier, expected in kept:
        assert list(earlier) == expected, "earlier ones are as they were"


def test_a_further_cell_copies_few_others() -> None:
    cells: Cells[int] = ()
    for version in range(10_000):
        cells = added(cells, Cell(version, version, 1))
    assert isinstance(cells, LongCells)
    more = added(cells, Cell(10_000, 1, 1))
    assert isinstance(more, LongCells)
    assert len(more.recent) <= BLOCK
    assert len(more.blocks) <= 10_000 // BLOCK + 1
    assert all(one is other for one, other in zip(cells.blocks, more.blocks, strict=False))


def test_no_cell_is_beyond_the_others() -> None:
    cells: Cells[int] = ()
    assert cell_at(cells, 5) is None
    for version in range(BLOCK + 2):
        cells = added(cells, Cell(version, None, 0))
    for place in (len(cells), -len(cells) - 1):
        with pytest.raises(IndexError):
            cells[place]
    assert isinstance(since(cells, 1), LongCells)
    assert isinstance(since(cells, 2), tuple)
