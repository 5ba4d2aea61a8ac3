"""The test of the tests: gripproxy broken on purpose is caught, each time by the validator of what was broken."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.drill import drill
from tests.faults.mutants import GUARANTEES, MUTANTS
from tests.faults.validators import VALIDATORS, Case, judge

AT_ONCE = 3
"""Services that run at the same time."""

PATIENCE = 40.0
"""Seconds that the real gripproxy has."""

MUTANT_PATIENCE = 2.0
"""Seconds that a mutant has: what it breaks does not come anyway."""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """The drill of every mutant by its name, and of the real thing by the empty one."""

    async def run_all() -> dict[str, Case]:
        free = asyncio.Semaphore(AT_ONCE)

        async def run(mutant: str) -> Case:
            async with free:
                folder = tmp_path_factory.mktemp(mutant or "real")
                return await drill(folder, mutant, MUTANT_PATIENCE if mutant else PATIENCE)

        names = ["", *MUTANTS]
        return dict(zip(names, await asyncio.gather(*map(run, names)), strict=True))

    return asyncio.run(run_all())


def test_every_guarantee_has_a_mutant() -> None:
    assert set(GUARANTEES) == set(MUTANTS)
    assert set(GUARANTEES.values()) == set(VALIDATORS)


# The first test waits for all of them.
@pytest.mark.timeout(500)
def test_the_real_gripproxy_keeps_every_guarantee(cases: dict[str, Case]) -> None:
    findings = [str(finding) for found in judge(cases[""]).values() for finding in found]
    assert findings == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(cases: dict[str, Case], mutant: str) -> None:
    assert GUARANTEES[mutant] in judge(cases[mutant])
