"""A short run of the hub with readers of every representation, publishers, and kills, with a fixed seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.faults.hub_faults import KINDS
from tests.faults.hub_soak import CONFIG, Scale, run
from tests.support.hub import hub_site

SCALE = Scale(readers=30, watchers=60, seconds=24.0, pause=0.6)

HAPPENINGS = (
    "published",
    "deleted",
    "replayed",
    "retentions",
    "compacted",
    "kept below the floor",
    "deletions of topics",
    "lost",
    "received",
    "reports",
    "watched",
    "progress",
    "resyncs",
    "snapshots",
    "earlier snapshots",
    "handovers",
    "region reads",
    "unknown regions",
    "resyncs of caches",
    "pushed",
)
"""Counts of what has to happen in a run, beside each kind of fault."""


@pytest.mark.timeout(240)
def test_a_run_with_faults_keeps_every_promise(tell: Callable[[str], None]) -> None:
    with hub_site(CONFIG) as site:
        report = asyncio.run(run(site, 7, SCALE))
    tell(str(report))
    assert [str(finding) for finding in report.findings] == []
    for name in (*HAPPENINGS, *KINDS):
        assert report.counts[name], f"{name}: {report}"
