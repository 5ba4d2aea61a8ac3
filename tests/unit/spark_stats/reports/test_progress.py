"""The progress bar, on a terminal and in a log."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from spark_stats.reports import progress
from spark_stats.reports.progress import Progress, bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Tracker:
    """Of Spark: one stage, of which 3 of 4 tasks are done, and one that is gone again."""

    def getActiveStageIds(self) -> list[int]:
        return [1, 2]

    def getStageInfo(self, number: int) -> SimpleNamespace | None:
        return SimpleNamespace(numCompletedTasks=3, numTasks=4) if number == 1 else None


def test_bars() -> None:
    assert [bar(done, 4) for done in (-1, 0, 0.5, 1, 2)] == ["░░░░", "░░░░", "██░░", "████", "████"]


def test_a_log_gets_a_line_per_step() -> None:
    out = io.StringIO()
    shown = Progress(2, out)
    with shown.step("gaps"):
        pass
    with shown.step("page"):
        pass
    assert [line.partition(":")[0] for line in out.getvalue().splitlines()] == ["1/2 gaps", "2/2 page"]


def test_a_step_that_fails_is_not_done() -> None:
    out = io.StringIO()
    shown = Progress(1, out)
    with pytest.raises(ZeroDivisionError), shown.step("gaps"):
        raise ZeroDivisionError
    assert out.getvalue() == ""


def test_a_terminal_shows_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.001)
    out = Terminal()
    with Progress(2, out, Tracker()).step("gaps"):
        while "gaps (3 of 4 tasks)" not in out.getvalue():
            pass
    assert f"{bar(0.375)} 1/2 gaps (3 of 4 tasks)" in out.getvalue()
    assert f"{bar(0.5)} 1/2 gaps " in out.getvalue()


def test_steps_at_the_same_time_are_shown_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.001)
    out = Terminal()
    shown = Progress(2, out, Tracker())
    with shown.step("gaps"):
        with shown.step("page"):
            while "gaps, page (3 of 4 tasks)" not in out.getvalue():
                pass
        seen = len(out.getvalue())
        while "gaps (3 of 4 tasks)" not in out.getvalue()[seen:]:
            pass
    assert f"{bar(0.75)} 1/2 gaps, page (3 of 4 tasks)" in out.getvalue()
    assert f"{bar(0.5)} 1/2 page " in out.getvalue()
    assert f"{bar(1)} 2/2 gaps " in out.getvalue()
