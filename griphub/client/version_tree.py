"""Tree of keys with the versions of their values. A change makes a new tree, which shares all other nodes. Sans-I/O.

It is balanced by weight (Adams 1993, with the factors of Hirai and Yamamoto 2011), so a look-up, a change, a split and
a join take steps of the order of the logarithm of its keys. An empty tree is None. Sums in each node find cells that
can be forgotten, and those that are new, without a walk through all keys.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

from griphub.client.cells import Cells, since, size_of_cells

__all__ = [
    "Tree",
    "build",
    "concatenate",
    "divide",
    "find",
    "forget",
    "newer",
    "put",
    "remove",
    "size_of",
    "walk",
]

V = TypeVar("V")

HEAVIER: Final = 3
"""Factor by which one side of a node may have more keys than the other."""

INNER: Final = 2
"""Factor between the halves of the heavier side, from which a double rotation is needed."""

NEVER: Final = 1 << 80
"""Version above all others: with it there is something to forget."""

NODE_SIZE: Final = 256
"""Bytes of a node and one cell, without the value."""


class Node(Generic[V]):
    """Node of a tree.

    Args:
        left: tree of the lower keys.
        key: key.
        cells: its values, at least one.
        right: tree of the higher keys.

    Attributes:
        left: tree of the lower keys.
        key: key.
        cells: its values.
        right: tree of the higher keys.
        count: number of keys in the tree.
        size: bytes of the tree.
        newest: greatest version in the tree.
        old: least version as a bottom with which a cell of the tree can be forgotten.
    """

    __slots__ = ("cells", "count", "key", "left", "newest", "old", "right", "size")

    def __init__(self, left: Tree[V], key: str, cells: Cells[V], right: Tree[V]) -> None:
        self.left = left
        self.key = key
        self.cells = cells
        self.right = right
        # One piece for each side: a change of one key makes as many nodes as the tree is deep.
        first = cells[0]
        count, newest, size = 1, first.version, NODE_SIZE + len(key) + first.size
        old = newest if first.value is None else NEVER
        if len(cells) > 1:
            newest, old = cells[-1].version, min(old, cells[1].version)
            size += size_of_cells(cells) - first.size
        if left is not None:
            count += left.count
            size += left.size
            if left.newest > newest:
                newest = left.newest
            if left.old < old:
                old = left.old
        if right is not None:
            count += right.count
            size += right.size
            if right.newest > newest:
                newest = right.newest
            if right.old < old:
                old = right.old
        self.count: int = count
        self.size: int = size
        self.newest: int = newest
        self.old: int = old


Tree = Node[V] | None


def size_of(tree: Tree[V]) -> int:
    """Return the bytes of a ``tree``, those of its values included."""
    return 0 if tree is None else tree.size


def find(tree: Tree[V], key: str) -> Cells[V]:
    """Return the cells of a key.

    Args:
        tree: the tree.
        key: the key.

    Returns:
        Its cells; none if the key is not in the tree.
    """
    while tree is not None:
        if key == tree.key:
            return tree.cells
        tree = tree.left if key < tree.key else tree.right
    return ()


def walk(tree: Tree[V], low: str, high: str | None) -> Iterator[tuple[str, Cells[V]]]:
    """Yield keys and their cells in order.

    Args:
        tree: the tree.
        low: least key.
        high: key below which the others are; None for no bound.
    """
    stack: list[Node[V]] = []
    while stack or tree is not None:
        while tree is not None:
            if tree.key >= low:
                stack.append(tree)
                tree = tree.left
            else:
                tree = tree.right
        if not stack:
            return
        node = stack.pop()
        if high is not None and node.key >= high:
            return
        yield node.key, node.cells
        tree = node.right


def newer(tree: Tree[V], version: int) -> Iterator[tuple[str, Cells[V]]]:
    """Yield keys with a cell above a version, in order.

    Args:
        tree: the tree.
        version: number of the version.
    """
    if tree is None or tree.newest <= version:
        return
    yield from newer(tree.left, version)
    if tree.cells[-1].version > version:
        yield tree.key, tree.cells
    yield from newer(tree.right, version)


def build(pairs: Sequence[tuple[str, Cells[V]]]) -> Tree[V]:
    """Return the tree of pairs.

    Args:
        pairs: keys and their cells, by increasing key.
    """

    def part(begin: int, end: int) -> Tree[V]:
        if begin == end:
            return None
        middle = (begin + end) // 2
        return Node(part(begin, middle), *pairs[middle], part(middle + 1, end))

    return part(0, len(pairs))


def put(tree: Tree[V], key: str, cells: Cells[V]) -> Tree[V]:
    """Return the tree in which a key has other cells.

    Args:
        tree: the tree.
        key: the key, which may be a new one.
        cells: at least one.
    """
    if tree is None:
        return Node(None, key, cells, None)
    if key == tree.key:
        return Node(tree.left, key, cells, tree.right)
    if key < tree.key:
        return _balanced(put(tree.left, key, cells), tree.key, tree.cells, tree.right)
    return _balanced(tree.left, tree.key, tree.cells, put(tree.right, key, cells))


def remove(tree: Tree[V], key: str) -> Tree[V]:
    """Return the tree without a ``key``, which may be missing."""
    return concatenate(divide(tree, key)[0], divide(tree, key + "\0")[1])


def divide(tree: Tree[V], key: str) -> tuple[Tree[V], Tree[V]]:
    """Return a tree in two.

    Args:
        tree: the tree.
        key: least key of the second one.
    """
    if tree is None:
        return None, None
    if tree.key < key:
        left, right = divide(tree.right, key)
        return _joined(tree.left, tree.key, tree.cells, left), right
    left, right = divide(tree.left, key)
    return left, _joined(right, tree.key, tree.cells, tree.right)


def concatenate(left: Tree[V], right: Tree[V]) -> Tree[V]:
    """Return two trees as one.

    Args:
        left: the tree of the lower keys.
        right: the tree of the higher keys.
    """
    if left is None or right is None:
        return right if left is None else left
    first = right
    while first.left is not None:
        first = first.left
    return _joined(left, first.key, first.cells, _without_first(right))


def forget(tree: Tree[V], bottom: int) -> Tree[V]:
    """Return the tree without the cells that no version from ``bottom`` on needs.

    Args:
        tree: the tree.
        bottom: number of the least version.
    """
    if tree is None or tree.old > bottom:
        return tree
    left, right = forget(tree.left, bottom), forget(tree.right, bottom)
    cells = _needed(tree.cells, bottom)
    return _joined(left, tree.key, cells, right) if cells else concatenate(left, right)


def _needed(cells: Cells[V], bottom: int) -> Cells[V]:
    first = max(0, bisect_right(cells, bottom, key=lambda cell: cell.version) - 1)
    if cells[first].value is None and cells[first].version <= bottom:
        first += 1
    return since(cells, first) if first else cells


def _without_first(node: Node[V]) -> Tree[V]:
    if node.left is None:
        return node.right
    return _balanced(_without_first(node.left), node.key, node.cells, node.right)


def _joined(left: Tree[V], key: str, cells: Cells[V], right: Tree[V]) -> Node[V]:
    """Return two trees and a pair between them as one, of any weights."""
    low, high = 0 if left is None else left.count, 0 if right is None else right.count
    if right is not None and HEAVIER * low < high:
        return _balanced(_joined(left, key, cells, right.left), right.key, right.cells, right.right)
    if left is not None and HEAVIER * high < low:
        return _balanced(left.left, left.key, left.cells, _joined(left.right, key, cells, right))
    return Node(left, key, cells, right)


def _balanced(left: Tree[V], key: str, cells: Cells[V], right: Tree[V]) -> Node[V]:
    """Return two trees and a pair between them as one, after a change of one of them by one step."""
    low, high = 0 if left is None else left.count, 0 if right is None else right.count
    if low + high > 1:
        if right is not None and high > HEAVIER * low:
            return _rotated_left(left, key, cells, right)
        if left is not None and low > HEAVIER * high:
            return _rotated_right(left, key, cells, right)
    return Node(left, key, cells, right)


def _rotated_left(left: Tree[V], key: str, cells: Cells[V], right: Node[V]) -> Node[V]:
    inner, outer = right.left, right.right
    if inner is None or inner.count < INNER * (0 if outer is None else outer.count):
        return Node(Node(left, key, cells, inner), right.key, right.cells, outer)
    low, high = Node(left, key, cells, inner.left), Node(inner.right, right.key, right.cells, outer)
    return Node(low, inner.key, inner.cells, high)


def _rotated_right(left: Node[V], key: str, cells: Cells[V], right: Tree[V]) -> Node[V]:
    inner, outer = left.right, left.left
    if inner is None or inner.count < INNER * (0 if outer is None else outer.count):
        return Node(outer, left.key, left.cells, Node(inner, key, cells, right))
    low, high = Node(outer, left.key, left.cells, inner.left), Node(inner.right, key, cells, right)
    return Node(low, inner.key, inner.cells, high)
