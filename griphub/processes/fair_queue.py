"""Queue in which each owner has its turn, however much the others have waiting. Sans-I/O."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items of owners, taken in turns.

    Args:
        waiting_max: greatest number of items that wait.
        owner_max: greatest number of items that wait for one owner.
        running_max: greatest number of items of one owner that are being worked on.
    """

    def __init__(self, waiting_max: int, owner_max: int, running_max: int) -> None:
        self.waiting_max = waiting_max
        self.owner_max = owner_max
        self._running_max = running_max
        self._turns: deque[str] = deque()
        """Owners with waiting items, the next one first."""
        self._items: dict[str, deque[T]] = {}
        self._running: Counter[str] = Counter()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def waiting(self, owner: str) -> int:
        """Return the number of items that wait for an ``owner``."""
        return len(self._items.get(owner, ()))

    def add(self, owner: str, item: T, *, first: bool = False) -> None:
        """Add an item; the caller has compared the bounds.

        Args:
            owner: of the item.
            item: to be taken later.
            first: whether it is before all others of its owner.
        """
        items = self._items.get(owner)
        if items is None:
            items = self._items[owner] = deque()
            self._turns.append(owner)
        if first:
            items.appendleft(item)
        else:
            items.append(item)
        self._waiting += 1

    def take(self, ready: Callable[[str, T], bool] | None = None) -> tuple[str, T] | None:
        """Return the next owner and its item, which counts as running.

        Args:
            ready: called with an owner and its first item; those for which it returns False wait on, and lose no turn.

        Returns:
            Owner and item; None if there is none that may run.
        """
        for _ in range(len(self._turns)):
            owner = self._turns[0]
            items = self._items[owner]
            if self._running[owner] >= self._running_max or not (ready is None or ready(owner, items[0])):
                self._turns.rotate(-1)
                continue
            item = items.popleft()
            self._waiting -= 1
            self._turns.popleft()
            if items:
                self._turns.append(owner)
            else:
                del self._items[owner]
            self._running[owner] += 1
            return owner, item
        return None

    def finished(self, owner: str) -> None:
        """Note that an item of an ``owner`` is not worked on any more."""
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]

    def remove(self, owner: str, item: T) -> bool:
        """Remove a waiting item.

        Args:
            owner: of the item.
            item: the item.

        Returns:
            False if it does not wait.
        """
        items = self._items.get(owner)
        if items is None or item not in items:
            return False
        items.remove(item)
        self._waiting -= 1
        if not items:
            del self._items[owner]
            self._turns.remove(owner)
        return True
