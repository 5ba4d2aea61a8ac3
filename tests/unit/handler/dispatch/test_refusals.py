"""How refused items are counted and logged."""

from __future__ import annotations

import pytest

from gripproxy.process.log import WARNING
from handler.dispatch.refusals import INTERVAL, SHOWN, Refusals
from tests.support.log_lines import LogLines


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return LogLines(monkeypatch, WARNING).lines


def test_the_first_is_logged_and_the_others_are_counted(lines: list[str]) -> None:
    refusals = Refusals()
    for number in range(1000):
        refusals.note("PULL", f"reason {number}", b"bad", number / 1000)
    assert lines == ['item skipped: way=PULL reason="reason 0" data=bad']
    refusals.settle(INTERVAL - 0.1)
    assert len(lines) == 1
    refusals.settle(INTERVAL)
    assert lines[1:] == ['items skipped: way=PULL more=999 last_reason="reason 999"']
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
    assert lines[2:] == [
        "items skipped: way=SUB more=1 last_reason=third",
        'item skipped: way=SUB reason=fourth data=""',
    ]


def test_at_the_end_all_is_logged(lines: list[str]) -> None:
    refusals = Refusals()
    refusals.note("HTTP", "first", b"", 0)
    refusals.note("HTTP", "second", b"", 0.1)
    refusals.settle()
    assert lines[1:] == ["requests refused: way=HTTP more=1 last_reason=second"]


def test_ways_in_are_apart(lines: list[str]) -> None:
    refusals = Refusals()
    for way in ("PULL", "SUB", "HTTP", "command"):
        refusals.note(way, "wrong", b"x" * 1000, 0)
    shown = "x" * SHOWN
    assert lines == [
        f"item skipped: way=PULL reason=wrong data={shown}",
        f"item skipped: way=SUB reason=wrong data={shown}",
        f"request refused: way=HTTP reason=wrong data={shown}",
        f"request refused: way=command reason=wrong data={shown}",
    ]
    assert refusals.totals() == {"pull": 1, "sub": 1, "http": 1, "command": 1}
