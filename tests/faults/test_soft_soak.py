"""A short run of soft topics with ingesters that change, watchers of every form, and kills, with a fixed seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.faults.soft_soak import FAULTS, SETTINGS, Scale, run
from tests.support.hub import hub_site

HAPPENED = (
    # of ingesters
    *("commits", "ingested", "repeated", "again", "crashes", "handovers", "conflicts", "other epochs", "limits"),
    # of sources
    *("restores", "full resets", "truncations", "truncated parts"),
    # of windows
    *("ranges: reset", "ranges: full"),
    # of watchers
    *("received", "progress", "resyncs", "snapshots"),
    *(f"kills of {kind}" for kind in FAULTS),
)

SCALE = Scale(watchers=48, seconds=13.0, pause=1.8, wanted=tuple(name for name in HAPPENED if name != "commits"))


@pytest.mark.timeout(240)
def test_a_run_with_faults_keeps_every_promise(tell: Callable[[str], None]) -> None:
    with hub_site(SETTINGS) as site:
        report = asyncio.run(run(site, 7, SCALE))
    tell(str(report))
    assert [str(finding) for finding in report.findings] == []
    assert [name for name in HAPPENED if not report.counts[name]] == [], report
