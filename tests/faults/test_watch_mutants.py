"""The test of the tests of watching: the hub keeps each promise to watchers, and broken on purpose it is caught."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from tests.faults.test_hub_mutants import play
from tests.faults.watch_mutants import MUTANTS
from tests.faults.watch_scenarios import SCENARIOS
from tests.support.hub_history import judge


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_real_hub_keeps_every_promise(
    scenario: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = asyncio.run(play(SCENARIOS[scenario], None, tmp_path, monkeypatch))
    assert [str(finding) for found in judge(history).values() for finding in found] == []
    assert history.steps


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = MUTANTS[mutant]
    history = asyncio.run(play(SCENARIOS[broken.scenario], broken, tmp_path, monkeypatch))
    assert broken.promise in judge(history)
