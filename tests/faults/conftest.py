"""What the randomised runs did is printed at the end, whether they passed or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_reports = pytest.StashKey[list[str]]()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A function that notes one line for the end of the test run."""
    return request.config.stash.setdefault(_reports, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the lines."""
    if lines := config.stash.get(_reports, []):
        terminalreporter.section("fault runs")
        for line in lines:
            terminalreporter.line(line)
