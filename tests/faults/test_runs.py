"""Randomised runs with fixed seeds: everything is hurt, and every guarantee holds. `make soak` does it for longer."""

from __future__ import annotations

import asyncio
import pathlib
import tempfile
from collections.abc import Callable

import pytest

from tests.e2e.crowd import room_for_files
from tests.faults.faults import KINDS
from tests.faults.run import Report, Scale, run
from tests.faults.validators import Case

SERVICE = tuple(kind for kind in KINDS if kind.split(" ")[-1] in ("worker", "handler", "pipe", "routes", "reload"))
OTHERS = tuple(kind for kind in KINDS if kind not in SERVICE)
RUNS = {1: SERVICE, 2: OTHERS}
"""Faults by seed."""

Outcome = tuple[Report, Case]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Outcome]:
    """What came of the runs, which are made at the same time: most of it is waiting."""

    async def run_all() -> dict[int, Outcome]:
        scales = {seed: Scale(seconds=9, pause=0.8, faults=kinds) for seed, kinds in RUNS.items()}
        runs = [run(tmp_path_factory.mktemp("run"), seed, scale) for seed, scale in scales.items()]
        return dict(zip(RUNS, await asyncio.gather(*runs), strict=True))

    with room_for_files(4000):
        return asyncio.run(run_all())


# The first test waits for all of them.
@pytest.mark.timeout(500)
@pytest.mark.parametrize("seed", RUNS)
def test_every_guarantee_holds_while_everything_breaks(
    outcomes: dict[int, Outcome], seed: int, tell: Callable[[str], None]
) -> None:
    report, case = outcomes[seed]
    tell(str(report))
    if report.findings:
        path = pathlib.Path(tempfile.mkdtemp(prefix="gripproxy-history-")) / f"seed-{seed}.jsonl"
        case.history.write(path)
        print(f"the whole history is in {path}")
    assert [str(finding) for finding in report.findings] == []
    assert report.trouble == []
    assert set(report.faults) == set(RUNS[seed]), "a kind of fault never happened"
    assert 0 not in report.counts.values()
    assert report.counts["delivered"] == report.counts["expected"]
