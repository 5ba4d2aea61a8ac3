"""The test of the tests of push subscriptions: each promise, broken on purpose, is missed by its validator."""

from __future__ import annotations

import pytest

from tests.faults.push_mutants import MUTANTS
from tests.support.push_scenarios import SCENARIOS
from tests.support.push_validators import VALIDATORS, judge

SEEDS = 12
"""Runs of a scenario, one of which has to show the fault; most show it in the first."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = MUTANTS[mutant]
    play = SCENARIOS[broken.scenario]
    broken.patch(monkeypatch)
    assert any(broken.promise in judge(play(seed)) for seed in range(SEEDS))


def test_every_promise_has_a_mutant() -> None:
    assert {mutant.promise for mutant in MUTANTS.values()} == set(VALIDATORS)
