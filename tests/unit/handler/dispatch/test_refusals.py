"""How refused items are counted and logged."""

from __future__ import annotations

import pytest

from gripproxy.process.log import WARNING, log
from handler.dispatch.refusals import INTERVAL, SHOWN, Refusals


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(log, "level", WARNING)
    monkeypatch.setattr(type(log), "warning", lambda self, text, *args: said.append(text % args))
    return said


def test_the_first_is_logged_and_the_others_are_counted(lines: list[str]) -> None:
    refusals = Refusals()
    for number in range(1000):
        refusals.note("PULL", f"reason {number}", b"bad", number / 1000)
    assert lines == ["PULL: item skipped: reason 0: b'bad'"]
    refusals.settle(INTERVAL - 0.1)
    assert len(lines) == 1
    refusals.settle(INTERVAL)
    assert lines[1:] == ["PULL: items skipped: 999 more, the last one: reason 999"]
    refusals.settle(10 * INTERVAL)
    assert len(lines) == 2, "nothing is told twice"
    assert refusals.totals() == {"pull": 1000, "sub": 0, "http": 0, "command": 0}


def test_a_line_about_those_between_counts_as_one(lines: list[str]) -> None:
    refusals = Refusals()
    refusals.note("SUB", "first", b"", 0)
    refusals.note("SUB", "second", b"", 1)
    refusals.settle(INTERVAL)
    refusals.note("SUB", "third", b"", INTERVAL + 1)
    assert len(lines) == 2
    refusals.note("SUB", "fourth", b"", 2 * INTERVAL)
    assert lines[2:] == ["SUB: items skipped: 1 more, the last one: third", "SUB: item skipped: fourth: b''"]


def test_at_the_end_all_is_logged(lines: list[str]) -> None:
    refusals = Refusals()
    refusals.note("HTTP", "first", b"", 0)
    refusals.note("HTTP", "second", b"", 0.1)
    refusals.settle()
    assert lines[1:] == ["HTTP: requests refused: 1 more, the last one: second"]


def test_ways_in_are_apart(lines: list[str]) -> None:
    refusals = Refusals()
    for way in ("PULL", "SUB", "HTTP", "command"):
        refusals.note(way, "wrong", b"x" * 1000, 0)
    shown = repr(b"x" * SHOWN)
    assert lines == [
        f"PULL: item skipped: wrong: {shown}",
        f"SUB: item skipped: wrong: {shown}",
        f"HTTP: request refused: wrong: {shown}",
        f"command: request refused: wrong: {shown}",
    ]
    assert refusals.totals() == {"pull": 1, "sub": 1, "http": 1, "command": 1}
