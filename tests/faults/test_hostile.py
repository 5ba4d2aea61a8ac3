"""Hostile peers beside 500 ordinary reliable clients, who must not notice. `make soak` does it for longer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.e2e.crowd import room_for_files
from tests.faults.hostile.arena import ROLES
from tests.faults.hostile.run import Report, Scale, run

BOUND = 500_000_000
"""Bytes that each process may have at most, by the configuration of these runs."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What came of one run: all roles in turn, ten seconds each."""
    with room_for_files(4000):
        return asyncio.run(run(tmp_path_factory.mktemp("hostile"), Scale()))


# The first test waits for the run.
@pytest.mark.timeout(500)
def test_the_configuration_bounds_each_process(report: Report) -> None:
    assert set(report.bounds) == {"worker", "handler", "runner"}
    assert max(report.bounds.values()) <= BOUND


@pytest.mark.timeout(500)
@pytest.mark.parametrize("role", ROLES)
def test_ordinary_clients_do_not_notice(report: Report, role: str, tell: Callable[[str], None]) -> None:
    tell(f"hostile {report.verdicts[role]}")
    assert report.complaints(role) == []


@pytest.mark.timeout(500)
@pytest.mark.parametrize("role", ROLES)
def test_every_attack_attacks(report: Report, role: str) -> None:
    assert report.idle(role) == []


@pytest.mark.timeout(500)
def test_every_guarantee_holds_and_every_process_lives(report: Report) -> None:
    assert report.general() == []
