"""Scatter-gather: requests to all workers, and their collected answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

__all__ = ["ANSWER_TIMEOUT", "ScatterGather"]

ANSWER_TIMEOUT: Final = 3.0
"""Seconds for the workers to answer. A worker answers from memory; one that needs longer is stuck."""

W = TypeVar("W")


@dataclass(slots=True)
class _Open(Generic[W]):
    waiting: set[W]
    answers: list[Any]
    deadline: float
    done: Callable[[list[Any] | None], None]


class ScatterGather(Generic[W]):
    """Requests that wait for the answers of workers. Sans-I/O; ``W`` stands for a worker."""

    __slots__ = ("_number", "_open")

    def __init__(self) -> None:
        self._number = 0
        self._open: dict[int, _Open[W]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, workers: Iterable[W], now: float, done: Callable[[list[Any] | None], None]) -> int:
        """Open a request to ``workers``.

        Args:
            workers: the workers that have to answer; one whose connection ends is left out.
            now: time in seconds.
            done: called once, with all answers, or with None if a worker did not answer within ANSWER_TIMEOUT; without
                workers it is called before this returns.

        Returns:
            The number of the request, which the caller sends to each worker. Never 0, which marks commands without
            an answer.
        """
        self._number = self._number % 0x7FFFFFFF + 1
        question = _Open(set(workers), [], now + ANSWER_TIMEOUT, done)
        if question.waiting:
            self._open[self._number] = question
        else:
            done([])
        return self._number

    def answer(self, worker: W, number: int, value: Any) -> None:
        """Add the answer of a worker; one that is late or unexpected is ignored.

        Args:
            worker: the sender.
            number: of the request.
            value: the answer.
        """
        question = self._open.get(number)
        if question is not None and worker in question.waiting:
            question.waiting.discard(worker)
            question.answers.append(value)
            self._close_if_complete(number, question)

    def lost(self, worker: W) -> None:
        """Remove a worker whose connection has ended from all requests: its sessions have ended too."""
        for number, question in list(self._open.items()):
            if worker in question.waiting:
                question.waiting.discard(worker)
                self._close_if_complete(number, question)

    def expire(self, now: float) -> None:
        """Fail the requests whose deadline has passed; called about once a second.

        Args:
            now: time in seconds.
        """
        for number, question in list(self._open.items()):
            if question.deadline <= now:
                del self._open[number]
                question.done(None)

    def _close_if_complete(self, number: int, question: _Open[W]) -> None:
        if not question.waiting:
            del self._open[number]
            question.done(question.answers)
