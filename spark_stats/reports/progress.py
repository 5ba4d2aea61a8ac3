"""A progress bar on the terminal while Spark works; lines in a log otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

__all__ = ["Progress", "bar"]

WIDTH: Final = 30
INTERVAL: Final = 0.2
"""Time between two updates of the bar, seconds."""


def bar(done: float, width: int = WIDTH) -> str:
    """Return a bar of ``width`` characters of which the part ``done`` (a ratio, 0 to 1) is filled."""
    filled = round(max(0.0, min(1.0, done)) * width)
    return "█" * filled + "░" * (width - filled)


class Progress:
    """Progress of a job: ``steps`` in all, and within a step the tasks of Spark's stages.

    ``out`` gets a line that is overwritten if it is a terminal, else one line per step. ``tracker`` is Spark's status
    tracker.
    """

    def __init__(self, steps: int, out: TextIO, tracker: Any = None) -> None:
        self._steps = steps
        self._out = out
        self._tracker = tracker
        self._done = 0
        self._live = out.isatty()
        self._lock = threading.Lock()
        self._running: list[str] = []
        self._over = threading.Event()
        self._painter: threading.Thread | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show the step ``name`` for as long as the context lasts. Several threads may show one each."""
        began = time.monotonic()
        with self._lock:
            self._running.append(name)
            if self._live and self._painter is None:
                self._over = threading.Event()
                self._painter = threading.Thread(target=self._paint, args=(self._over,), name="progress", daemon=True)
                self._painter.start()
        done = False
        try:
            yield
            done = True
        finally:
            with self._lock:
                self._running.remove(name)
                painter = self._painter if not self._running else None
                if painter is not None:
                    self._painter = None
                    self._over.set()
                if done:
                    self._done += 1
                    self._finished(name, time.monotonic() - began)
            if painter is not None:
                painter.join()

    def _finished(self, name: str, seconds: float) -> None:
        if self._live:
            self._show(f"\r{bar(self._done / self._steps)} {self._done}/{self._steps} {name:<60}")
            if self._done == self._steps:
                self._show("\n")
        else:
            self._show(f"{self._done}/{self._steps} {name}: {seconds:.1f} s\n")

    def _paint(self, over: threading.Event) -> None:
        while not over.wait(INTERVAL):
            done, tasks, total = self._within()
            with self._lock:
                if over.is_set() or not self._running:
                    continue
                share = (self._done + done * len(self._running)) / self._steps
                text = f"{', '.join(self._running)} ({tasks} of {total} tasks)"
                self._show(f"\r{bar(share)} {self._done + 1}/{self._steps} {text:<60}")

    def _within(self) -> tuple[float, int, int]:
        """Progress of the stages that run now: a share, tasks done, tasks in all."""
        done = total = 0
        if self._tracker is not None:
            for number in self._tracker.getActiveStageIds():
                stage = self._tracker.getStageInfo(number)
                if stage is not None:
                    done += stage.numCompletedTasks
                    total += stage.numTasks
        return (done / total if total else 0.0), done, total

    def _show(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
