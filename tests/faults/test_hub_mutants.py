"""The test of the tests of the hub: it keeps each promise in each scenario, and broken on purpose it is caught."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from griphub import service
from tests.faults import cache_mutants, watch_mutants
from tests.faults.hub_mutants import MUTANTS, Mutant
from tests.faults.hub_scenarios import SCENARIOS, Scenario
from tests.faults.hub_stage import Stage
from tests.support.hub_history import VALIDATORS, judge
from tests.support.hub_records import History


async def play(steps: Scenario, mutant: Mutant | None, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> History:
    """Return the history of a scenario, of the real hub if there is no mutant."""
    stage = Stage(directory, patch, steps.settings, steps.topic)
    if steps.learned:
        patch.setattr(service, "LEARNING_TIME", 0.0, raising=False)
    for change in steps.children:
        stage.change_children(change)
    if mutant is not None:
        if mutant.child:
            stage.change_children(mutant.child)
        if mutant.patch is not None:
            mutant.patch(patch)
    try:
        await stage.open()
        await steps.play(stage)
        stage.finish()
    finally:
        await stage.close()
    return stage.history


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_real_hub_keeps_every_promise(
    scenario: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = asyncio.run(play(SCENARIOS[scenario], None, tmp_path, monkeypatch))
    assert [str(finding) for found in judge(history).values() for finding in found] == []
    assert history.steps or history.measured


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = MUTANTS[mutant]
    history = asyncio.run(play(SCENARIOS[broken.scenario], broken, tmp_path, monkeypatch))
    assert broken.promise in judge(history)


def test_every_promise_has_a_mutant() -> None:
    mutants = [*MUTANTS.values(), *watch_mutants.MUTANTS.values()]
    assert {mutant.promise for mutant in mutants} | {cache_mutants.PROMISE} == set(VALIDATORS)
