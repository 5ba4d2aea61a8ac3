"""Rolling restart: a new generation of processes replaces the old one, process by process. Decisions, sans-I/O.

Replacing one process at a time has three reasons. A configuration with which workers cannot serve fails at the first of
them, when nothing else has changed yet. Only one additional process starts at any time, so the cores stay with the
clients. No memory is needed beyond that of the workers that hold clients. It costs about half a second per process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from gripproxy.runner.lifecycle import Lifecycle, State
from gripproxy.runner.service import Replacement, Service

__all__ = ["RollingRestart", "Supervisor"]


class Replaceable(Protocol):
    """A child process, as far as its replacement needs it."""

    @property
    def name(self) -> str:
        """Name of the process in the log."""

    @property
    def lifecycle(self) -> Lifecycle:
        """Lifecycle of the process."""

    @property
    def service(self) -> Service:
        """Service of the process."""


P = TypeVar("P", bound=Replaceable)


class Supervisor(Protocol[P]):
    """Executes the steps of a rolling restart: the runner."""

    def succeed(self, old: P) -> P:
        """Return a successor of ``old``, which starts at the next opportunity."""

    def retire(self, old: P) -> None:
        """Retire ``old``: its successor serves."""

    def end(self, old: P) -> None:
        """End ``old`` gracefully; its successor does not exist yet."""

    def replaced(self, new: P, old: P) -> None:
        """Report that ``new`` serves in place of ``old``."""


class RollingRestart(Generic[P]):
    """One rolling restart. Call ``advance`` after each change of a lifecycle.

    Args:
        supervisor: executes the steps.
        processes: those to be replaced, in this order, each as the ``replacement`` of its service requires.
    """

    def __init__(self, supervisor: Supervisor[P], processes: Iterable[P]) -> None:
        self.failure = ""
        """Reason for giving up, empty before; ``advance`` returns true then."""
        self._supervisor = supervisor
        self._queue = deque(processes)
        self._old: P | None = None
        self._new: P | None = None

    def advance(self) -> bool:
        """Return whether the restart is over, after all steps that are possible now."""
        while self._old is not None or self._queue:
            if not self._step(self._old or self._next()):
                return bool(self.failure)
        return True

    def _next(self) -> P:
        """Begin with the next process, and return it."""
        old = self._old = self._queue.popleft()
        if _exclusive(old):
            self._supervisor.end(old)
        else:
            self._new = self._supervisor.succeed(old)
        return old

    def _step(self, old: P) -> bool:
        """Advance the replacement of ``old``; return whether it is complete."""
        new = self._new
        if new is None:
            if old.lifecycle.state is State.ENDED:
                self._new = self._supervisor.succeed(old)
            return False
        if new.lifecycle.state is State.ENDED:
            goes_on = "" if _exclusive(old) else f"; the old {old.name} goes on"
            self.failure = f"{new.name} could not be started: {new.lifecycle.reason}{goes_on}"
            return False
        if new.lifecycle.state is not State.SERVING:
            return False
        if not _exclusive(old):
            self._supervisor.retire(old)
        self._supervisor.replaced(new, old)
        self._old = self._new = None
        return True


def _exclusive(process: Replaceable) -> bool:
    return process.service.replacement is Replacement.EXCLUSIVE
