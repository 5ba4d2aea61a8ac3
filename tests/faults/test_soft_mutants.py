"""The test of the tests of soft topics: the hub keeps each promise to watchers, and broken on purpose it is caught."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from griphub import service
from tests.faults.soft_mutants import MUTANTS
from tests.faults.soft_scenarios import SCENARIOS, Scenario
from tests.faults.soft_stage import SoftStage
from tests.support.soft_records import History
from tests.support.soft_validators import VALIDATORS, judge


async def play(scenario: Scenario, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> History:
    """Return the history of a scenario."""
    stage = SoftStage(directory, patch, scenario.settings)
    # A hub that has just started has each watcher ask once more, which would repair what a mutant loses.
    patch.setattr(service, "LEARNING_TIME", 0.0)
    try:
        await stage.open()
        await scenario.play(stage)
    finally:
        await stage.close()
    return stage.soft


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_real_hub_keeps_every_promise(
    scenario: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = asyncio.run(play(SCENARIOS[scenario], tmp_path, monkeypatch))
    assert [str(finding) for found in judge(history).values() for finding in found] == []
    assert history.steps


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = MUTANTS[mutant]
    broken.patch(monkeypatch)
    history = asyncio.run(play(SCENARIOS[broken.scenario], tmp_path, monkeypatch))
    assert broken.promise in judge(history)


def test_every_promise_has_a_mutant() -> None:
    assert {mutant.promise for mutant in MUTANTS.values()} == set(VALIDATORS)
