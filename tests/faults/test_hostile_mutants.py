"""The test of the hostile runs: with one cure undone the attack that it is against is noticed."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.crowd import room_for_files
from tests.faults.hostile import backend, client, publisher
from tests.faults.hostile.arena import ROLES
from tests.faults.hostile.mutants import MUTANTS
from tests.faults.hostile.run import Report, Scale, run
from tests.faults.hostile.verdict import limit

AT_ONCE = 2
"""Services that run at the same time: some of them use a gigabyte, and the processor."""

CLIENTS = 60
"""Ordinary clients beside an attack."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """What came of a run with each mutant, by its name."""

    async def run_all() -> dict[str, Report]:
        free = asyncio.Semaphore(AT_ONCE)

        async def attacked(name: str) -> Report:
            mutant = MUTANTS[name]
            scale = Scale(
                clients=CLIENTS,
                quiet=2.0,
                seconds=mutant.seconds,
                roles=(mutant.role,),
                only=(mutant.attack,),
                converge=1.0,
            )
            async with free:
                return await run(tmp_path_factory.mktemp(name), scale, name)

        return dict(zip(MUTANTS, await asyncio.gather(*map(attacked, MUTANTS)), strict=True))

    with room_for_files(4000):
        return asyncio.run(run_all())


def test_there_are_eight_and_each_has_its_attack() -> None:
    attacks = dict(zip(ROLES, (publisher.ATTACKS, client.ATTACKS, backend.ATTACKS), strict=True))
    assert len(MUTANTS) == 8
    assert all(mutant.attack in attacks[mutant.role] for mutant in MUTANTS.values())


# The first test waits for all of them.
@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(reports: dict[str, Report], name: str) -> None:
    mutant, report = MUTANTS[name], reports[name]
    assert report.idle(mutant.role) == []
    complaints = report.complaints(mutant.role)
    verdict = report.verdicts[mutant.role]
    if verdict.late > limit(report.verdicts["quiet"].late, 0.0):
        # As on a quiet machine: what a busy one excuses could hide it.
        complaints.append(f"late: {verdict}")
    assert any(mutant.sign in complaint for complaint in complaints), complaints
