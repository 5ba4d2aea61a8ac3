"""Limited rate of starts: in batches, first in, first out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["RateLimiter"]


class RateLimiter:
    """Token bucket with a bounded queue.

    Args:
        rate: Starts per second.
        interval: Seconds between two batches.
        most: Starts that may wait; further ones are refused.
        arm: Calls a callback after some seconds, as the loop's ``call_later``.
    """

    def __init__(
        self, rate: int, interval: float, most: int, arm: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self._batch = max(1, round(rate * interval))
        self._interval = interval
        self._most = most
        self._arm = arm
        self._waiting: deque[Callable[[], object]] = deque()
        self._running = False

    def add(self, start: Callable[[], object]) -> bool:
        """Queue a start.

        Args:
            start: Called when it has its turn: now if the limiter is idle, else in a later batch.

        Returns:
            False if too many wait: ``start`` is not called.
        """
        if len(self._waiting) >= self._most:
            return False
        self._waiting.append(start)
        if not self._running:
            self._running = True
            self._run()
        return True

    def _run(self) -> None:
        for _ in range(min(self._batch, len(self._waiting))):
            self._waiting.popleft()()
        if self._waiting:
            self._arm(self._interval, self._run)
            return

        def rest() -> None:
            self._running = False
            if self._waiting:
                self._running = True
                self._run()

        self._arm(self._interval, rest)
