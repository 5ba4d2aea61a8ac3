"""Actions of a watcher: values."""

from __future__ import annotations

from griphub.client.watch_actions import OpenStream, WatchReport, WatchReportKind


def test_actions_are_compared_by_value() -> None:
    assert OpenStream(1, "e.1") == OpenStream(1, "e.1")
    assert OpenStream(1, "e.1") != OpenStream(2, "e.1")
    assert WatchReport(WatchReportKind.LOST, "cut").pause == 0.0
