"""Figures that a test measured are printed at the end of the run, whether it passed or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A function that notes one line for the end of the run."""

    def note(line: str) -> None:
        # With the test's report, so that it arrives also when the tests run in several processes.
        request.node.user_properties.append(("figure", line))

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the lines."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    lines = [
        text for report in reports if report.when == "call" for name, text in report.user_properties if name == "figure"
    ]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.line(line)
