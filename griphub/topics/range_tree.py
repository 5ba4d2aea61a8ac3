"""Tree of ranges of text: which of them contain a key.

A search tree that stays balanced (AVL), with one small node for each range. Its order is that of the lower bounds, and
each node knows the greatest upper bound below it: a branch that ends before the key is not entered. So the cost of a
look-up is that of its hits, and of the way to each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["RangeTree"]

T = TypeVar("T")


class _Node(Generic[T]):
    """Range ``low <= key < high`` with its value, and the branches of the ranges before and behind it."""

    __slots__ = ("after", "before", "end", "height", "high", "low", "value")

    def __init__(self, low: str, high: str, value: T) -> None:
        self.low = low
        self.high = high
        self.value = value
        self.end = high
        """Greatest upper bound of this range and of both branches."""
        self.height = 1
        """Nodes on the longest way down, this one included."""
        self.before: _Node[T] | None = None
        self.after: _Node[T] | None = None


class RangeTree(Generic[T]):
    """Values by range; each range is there once."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[T] | None = None

    def add(self, low: str, high: str, value: T) -> None:
        """Add a range.

        Args:
            low: least key.
            high: first key beyond, greater than ``low``.
            value: value of the range, which is not in the tree.
        """
        self._root = _with(self._root, _Node(low, high, value))

    def remove(self, low: str, high: str) -> None:
        """Remove a range.

        Args:
            low: least key.
            high: first key beyond.

        Raises:
            KeyError: the range is not in the tree.
        """
        self._root = _without(self._root, low, high)

    def matching(self, key: str) -> Iterator[T]:
        """Yield the values of the ranges that contain ``key``: the last to begin first, of these the shortest first."""
        above: list[_Node[T]] = []
        node = self._root
        while True:
            while node is not None and key < node.end:
                above.append(node)
                node = node.after if node.low <= key else None
            if not above:
                return
            node = above.pop()
            if node.low <= key < node.high:
                yield node.value
            node = node.before


def _precedes(low: str, high: str, node: _Node[T]) -> bool:
    """Return whether a range lies before that of a node: of ranges that begin together the longest is the first."""
    return high > node.high if low == node.low else low < node.low


def _with(node: _Node[T] | None, new: _Node[T]) -> _Node[T]:
    """Return the branch of a node with a new one in it."""
    if node is None:
        return new
    if _precedes(new.low, new.high, node):
        node.before = _with(node.before, new)
    else:
        node.after = _with(node.after, new)
    return _balanced(node)


def _without(node: _Node[T] | None, low: str, high: str) -> _Node[T] | None:
    """Return the branch of a node without a range."""
    if node is None:
        raise KeyError((low, high))
    if node.low == low and node.high == high:
        if node.before is None or node.after is None:
            return node.after if node.before is None else node.before
        first = node.after
        while first.before is not None:
            first = first.before
        # The next range takes the place of the one that goes.
        first.after = _without(node.after, first.low, first.high)
        first.before = node.before
        return _balanced(first)
    if _precedes(low, high, node):
        node.before = _without(node.before, low, high)
    else:
        node.after = _without(node.after, low, high)
    return _balanced(node)


def _height(node: _Node[T] | None) -> int:
    return 0 if node is None else node.height


def _measure(node: _Node[T]) -> None:
    """Set the height and the end of a node by those of its branches."""
    before, after = node.before, node.after
    node.height = 1 + max(_height(before), _height(after))
    node.end = node.high
    if before is not None and before.end > node.end:
        node.end = before.end
    if after is not None and after.end > node.end:
        node.end = after.end


def _balanced(node: _Node[T]) -> _Node[T]:
    """Return the top of a branch, one of whose sides may have become higher or lower by one, balanced again."""
    before, after = node.before, node.after
    lean = _height(before) - _height(after)
    if before is not None and lean > 1:
        if _height(before.before) < _height(before.after):
            node.before = _turned_back(before)
        return _turned_on(node)
    if after is not None and lean < -1:
        if _height(after.after) < _height(after.before):
            node.after = _turned_on(after)
        return _turned_back(node)
    _measure(node)
    return node


def _turned_on(node: _Node[T]) -> _Node[T]:
    """Return the top of a branch in which the node before has taken the place of its top."""
    top = node.before
    assert top is not None
    node.before, top.after = top.after, node
    _measure(node)
    _measure(top)
    return top


def _turned_back(node: _Node[T]) -> _Node[T]:
    """Return the top of a branch in which the node behind has taken the place of its top."""
    top = node.after
    assert top is not None
    node.after, top.before = top.before, node
    _measure(node)
    _measure(top)
    return top
