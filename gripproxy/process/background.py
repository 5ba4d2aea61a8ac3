"""Background calls: work that may block on a file system, in a thread beside a loop that must not.

The threads are daemons: one that is stuck in the kernel does not keep the process from ending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Call"]

T = TypeVar("T")


class Call(Generic[T]):
    """One call in a thread of its own.

    Args:
        work: the call; ``result`` raises its exceptions.
        done: called in the thread when it is over; it must be safe there.
        name: of the thread.
    """

    def __init__(self, work: Callable[[], T], done: Callable[[], None], name: str) -> None:
        self.began = time.monotonic()
        """When it began, on the monotonic clock in seconds."""
        self._work = work
        self._done = done
        self._over = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:  # noqa: BLE001 - it is the caller's, and raised there
            self._error = error
        self._over.set()
        self._done()

    @property
    def over(self) -> bool:
        """True once there is a result."""
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Return whether there is a result, after waiting for it for ``seconds`` at most."""
        return self._over.wait(seconds)

    def result(self) -> T:
        """Return the result of the call, or raise its exception. Only when it is over."""
        if self._error is not None:
            raise self._error
        return self._result[0]
