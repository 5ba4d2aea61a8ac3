"""A short run of the hub with readers of every representation, publishers, and kills, with a fixed seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.faults.hub_soak import Scale, run
from tests.support.hub import hub_site

SCALE = Scale(readers=40, watchers=40, seconds=20.0, pause=2.5)


@pytest.mark.timeout(240)
def test_a_run_with_faults_keeps_every_promise(tell: Callable[[str], None]) -> None:
    with hub_site() as site:
        report = asyncio.run(run(site, 7, SCALE))
    tell(str(report))
    assert [str(finding) for finding in report.findings] == []
    for name in (
        "published",
        "received",
        "replayed",
        "retentions",
        "deletions",
        "reports",
        "watched",
        "progress",
        "resyncs",
        "snapshots",
    ):
        assert report.counts[name], report
