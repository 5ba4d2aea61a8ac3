"""Questions to all workers at once, and their collected answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

__all__ = ["ANSWER_TIMEOUT", "Questions"]

ANSWER_TIMEOUT: Final = 3.0
"""Seconds the workers have to answer. A worker answers from memory; one that needs longer is stuck."""

W = TypeVar("W")


@dataclass(slots=True)
class _Open(Generic[W]):
    waiting: set[W]
    answers: list[Any]
    deadline: float
    done: Callable[[list[Any] | None], None]


class Questions(Generic[W]):
    """Questions waiting for answers. Sans-I/O; ``W`` is whatever stands for a worker."""

    __slots__ = ("_number", "_open")

    def __init__(self) -> None:
        self._number = 0
        self._open: dict[int, _Open[W]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, workers: Iterable[W], now: float, done: Callable[[list[Any] | None], None]) -> int:
        """Open a question and return its number, which the caller sends to each of ``workers``.

        ``done`` is called once: with all answers, or with None when a worker did not answer within ANSWER_TIMEOUT
        seconds. A worker that dies meanwhile is left out. Without workers it is called at once.
        """
        # 0 marks commands that nobody answers.
        self._number = self._number % 0x7FFFFFFF + 1
        question = _Open(set(workers), [], now + ANSWER_TIMEOUT, done)
        if question.waiting:
            self._open[self._number] = question
        else:
            done([])
        return self._number

    def answer(self, worker: W, number: int, value: Any) -> None:
        """Take a worker's answer in. One that comes too late, or that was not asked for, is ignored."""
        question = self._open.get(number)
        if question is not None and worker in question.waiting:
            question.waiting.discard(worker)
            question.answers.append(value)
            self._close_if_complete(number, question)

    def lost(self, worker: W) -> None:
        """Expect nothing more from a worker that is gone: its sessions are gone as well."""
        for number, question in list(self._open.items()):
            if worker in question.waiting:
                question.waiting.discard(worker)
                self._close_if_complete(number, question)

    def expire(self, now: float) -> None:
        """Give up the questions whose time is over. To be called about once a second."""
        for number, question in list(self._open.items()):
            if question.deadline <= now:
                del self._open[number]
                question.done(None)

    def _close_if_complete(self, number: int, question: _Open[W]) -> None:
        if not question.waiting:
            del self._open[number]
            question.done(question.answers)
