"""The test of the tests of the hub: it keeps each promise in each scenario, and broken on purpose it is caught."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from griphub import service
from tests.faults.hub_mutants import MUTANTS
from tests.faults.hub_scenarios import SCENARIOS
from tests.faults.hub_stage import Stage
from tests.support.hub_history import VALIDATORS, History, judge


async def play(scenario: str, mutant: str, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> History:
    """Return the history of a scenario, of the real hub if ``mutant`` is empty."""
    steps = SCENARIOS[scenario]
    stage = Stage(directory, patch, steps.settings)
    if steps.learned:
        patch.setattr(service, "LEARNING_TIME", 0.0, raising=False)
    for change in steps.children:
        stage.change_children(change)
    if mutant:
        if MUTANTS[mutant].child:
            stage.change_children(MUTANTS[mutant].child)
        if (change_hub := MUTANTS[mutant].patch) is not None:
            change_hub(patch)
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
    history = asyncio.run(play(scenario, "", tmp_path, monkeypatch))
    assert [str(finding) for found in judge(history).values() for finding in found] == []
    assert history.steps or history.measured


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = asyncio.run(play(MUTANTS[mutant].scenario, mutant, tmp_path, monkeypatch))
    assert MUTANTS[mutant].promise in judge(history)


def test_every_promise_has_a_mutant() -> None:
    assert {mutant.promise for mutant in MUTANTS.values()} == set(VALIDATORS)
