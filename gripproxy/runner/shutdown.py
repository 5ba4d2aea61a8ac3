"""Graceful stop of all processes, service by service in the order of ``Service.stop_order``: decisions, sans-I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from gripproxy.runner.lifecycle import Lifecycle, State
from gripproxy.runner.service import Service

__all__ = ["Shutdown"]


class Stoppable(Protocol):
    """A child process, as far as its end needs it."""

    @property
    def lifecycle(self) -> Lifecycle:
        """Lifecycle of the process."""

    @property
    def service(self) -> Service:
        """Service of the process."""


P = TypeVar("P", bound=Stoppable)


class Shutdown(Generic[P]):
    """One graceful stop of the whole service. Call ``advance`` after each change of a lifecycle.

    Args:
        now: monotonic clock in seconds.
    """

    def __init__(self, now: float) -> None:
        self.began = now
        """Time of the request to stop, monotonic clock in seconds."""
        self.over = False
        """True once all processes have ended."""

    def advance(self, processes: Iterable[P]) -> list[P]:
        """Return the processes to end now: those of the lowest stop order that has any left.

        Sets ``over``. Call it until it returns none: a process that is not running ends as soon as it is ended.

        Args:
            processes: all of the service.
        """
        left = [process for process in processes if process.lifecycle.state is not State.ENDED]
        self.over = not left
        order = min((process.service.stop_order for process in left), default=0)
        return [
            process
            for process in left
            if process.service.stop_order == order and process.lifecycle.state is not State.STOPPING
        ]
