"""Tree of keys and versions: as a dict, in balance, and without a change of earlier trees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from griphub.client import version_tree
from griphub.client.cells import Cell, Cells, cell_at
from griphub.client.version_tree import (
    NEVER,
    NODE_SIZE,
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

keys = st.text("abcé\U0001f600", min_size=1, max_size=3)
changes = st.lists(st.tuples(keys, st.booleans()), max_size=60)


def made(changes: list[tuple[str, bool]]) -> tuple[Tree[int], dict[str, Cells[int]]]:
    """Return the tree of changes, each of which is a version: a value, or a deletion."""
    tree: Tree[int] = None
    model: dict[str, Cells[int]] = {}
    for version, (key, value) in enumerate(changes, 1):
        cells = (*model.get(key, ()), Cell(version, version if value else None, 1))
        tree, model[key] = put(tree, key, cells), cells
    return tree, model


def pairs(tree: Tree[int]) -> dict[str, Cells[int]]:
    return dict(walk(tree, "", None))


def check(tree: Tree[int]) -> None:
    """Check balance and sums of each node."""
    if tree is None:
        return
    left, right = tree.left, tree.right
    low, high = (0 if side is None else side.count for side in (left, right))
    assert low + high <= 1 or max(low, high) <= version_tree.HEAVIER * min(low, high)
    assert tree.count == low + high + 1
    own = NODE_SIZE + len(tree.key) + sum(cell.size for cell in tree.cells)
    assert tree.size == size_of(left) + size_of(right) + own
    cells = [cell for each in pairs(tree).values() for cell in each]
    assert tree.newest == max(cell.version for cell in cells)
    least = next((bottom for bottom in range(100) if forget(tree, bottom) is not tree), NEVER)
    assert tree.old == least
    check(left)
    check(right)


@given(changes)
def test_it_is_a_sorted_dict(changes: list[tuple[str, bool]]) -> None:
    tree, model = made(changes)
    check(tree)
    assert list(walk(tree, "", None)) == sorted(model.items())
    assert all(find(tree, key) == cells for key, cells in model.items())
    assert find(tree, "z") == ()
    assert pairs(build(sorted(model.items()))) == model
    check(build(sorted(model.items())))


@given(changes, keys)
def test_parts_and_their_sum(changes: list[tuple[str, bool]], key: str) -> None:
    tree, model = made(changes)
    before = pairs(tree)
    left, right = divide(tree, key)
    assert pairs(left) == {each: cells for each, cells in model.items() if each < key}
    assert pairs(right) == {each: cells for each, cells in model.items() if each >= key}
    assert pairs(concatenate(left, right)) == model
    assert pairs(remove(tree, key)) == {each: cells for each, cells in model.items() if each != key}
    for each in (left, right, concatenate(left, right), concatenate(None, right), remove(tree, key)):
        check(each)
    assert pairs(tree) == before == model


@given(changes, keys, keys, st.integers(0, 60))
def test_walks(changes: list[tuple[str, bool]], low: str, high: str, version: int) -> None:
    tree, model = made(changes)
    assert list(walk(tree, low, high)) == [pair for pair in sorted(model.items()) if low <= pair[0] < high]
    later = [(key, cells) for key, cells in sorted(model.items()) if cells[-1].version > version]
    assert list(newer(tree, version)) == later


@given(changes, st.integers(0, 60))
def test_versions_from_a_bottom_on_are_kept(changes: list[tuple[str, bool]], bottom: int) -> None:
    tree, model = made(changes)
    kept = forget(tree, bottom)
    check(kept)
    for version in range(bottom, len(changes) + 2):
        for key, cells in model.items():
            one, other = cell_at(cells, version), cell_at(find(kept, key), version)
            assert (one and one.value) == (other and other.value)
    assert all(len([cell for cell in cells if cell.version <= bottom]) <= 1 for cells in pairs(kept).values())
    assert all(cells[0].value is not None or cells[0].version > bottom for cells in pairs(kept).values())
    assert pairs(tree) == model


def test_ascending_keys_stay_in_balance() -> None:
    tree: Tree[int] = None
    for number in range(1000):
        tree = put(tree, f"{number:04}", (Cell(number, number, 0),))
    depth, node = 0, tree
    while node is not None:
        depth, node = depth + 1, node.right
    assert depth < 25
