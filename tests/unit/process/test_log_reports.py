"""Warnings and errors of a process, for metrics and the live view."""

from __future__ import annotations

from gripproxy.process.log_reports import EVENTS_MAX, FRESH_MAX, TEXT_MAX, LogReport, LogReports


def test_they_are_counted_and_taken_once() -> None:
    reports = LogReports()
    reports.note("warning", "backend failed", "backend failed: target=a")
    reports.note("warning", "backend failed", "backend failed: target=b")
    reports.note("error", "giving up", "giving up")
    assert reports.take() == [
        LogReport("warning", "backend failed", "backend failed: target=a"),
        LogReport("warning", "backend failed", "backend failed: target=b"),
        LogReport("error", "giving up", "giving up"),
    ]
    assert reports.take() == []
    assert reports.counts == {("warning", "backend failed"): 2, ("error", "giving up"): 1}


def test_all_of_it_is_bounded() -> None:
    reports = LogReports()
    for number in range(EVENTS_MAX + 50):
        reports.note("warning", f"event {number}", "x" * 10_000)
    assert len(reports.counts) == EVENTS_MAX + 1
    assert reports.counts["warning", "(others)"] == 50
    taken = reports.take()
    assert len(taken) == FRESH_MAX
    assert {len(report.text) for report in taken} == {TEXT_MAX}
