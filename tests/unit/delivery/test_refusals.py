"""Refused items: each is counted, lines are few."""

from __future__ import annotations

import pytest

from gripproxy.delivery import refusals as module
from gripproxy.delivery.refusals import INTERVAL, REPORTS, Refusals
from gripproxy.stats.counters import WorkerCounters


class Desk:
    """Refusals with a timer fired by hand."""

    def __init__(self) -> None:
        self.ledger = WorkerCounters()
        self.timers: list[object] = []
        self.lines: list[tuple[bytes, str, int]] = []
        self.refusals = Refusals(self.ledger, self.arm, lambda *line: self.lines.append(line))

    def arm(self, seconds: float, callback: object) -> None:
        assert seconds == INTERVAL
        self.timers.append(callback)

    def report(self) -> list[tuple[bytes, str, int]]:
        (timer,) = self.timers
        self.timers.clear()
        timer()  # type: ignore[operator]
        lines, self.lines = self.lines, []
        return lines


def test_a_line_for_each_channel_and_filter() -> None:
    desk = Desk()
    for number in range(3):
        desk.refusals.add(b"a", "var-subst", f"{number} bytes")
    desk.refusals.add(b"a", "body-patch", "too much work")
    desk.refusals.add(b"b", "var-subst", "9 bytes")
    assert desk.report() == [(b"a", "0 bytes", 3), (b"a", "too much work", 1), (b"b", "9 bytes", 1)]
    assert desk.ledger.unsent == {"filter-limit": 5}
    assert desk.timers == []
    desk.refusals.add(b"a", "var-subst", "again")
    assert desk.report() == [(b"a", "again", 1)]


def test_many_channels_are_few_lines() -> None:
    desk = Desk()
    for number in range(REPORTS + 7):
        desk.refusals.add(b"%d" % number, "var-subst", "much")
    lines = desk.report()
    assert len(lines) == REPORTS + 1
    assert lines[-1] == (b"", "as above, on further channels", 7)


def test_what_is_kept_for_them_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KINDS_MAX", 2)
    desk = Desk()
    for number in range(10):
        desk.refusals.add(b"%d" % number, "var-subst", "much")
    assert [sessions for _, _, sessions in desk.report()] == [1, 1, 8]
    assert desk.ledger.unsent == {"filter-limit": 10}
