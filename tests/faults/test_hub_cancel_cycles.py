"""Obedient: no request with a subscription's id begins after its DELETE was answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.faults.hub_cancel_cycles import CHANGES, cycles
from tests.support.hub import hub_site


def test_no_request_begins_after_the_answer_to_delete(tell: Callable[[str], None]) -> None:
    with hub_site(CHANGES) as site:
        report = asyncio.run(cycles(site, 600, 7, kill_each=250))
    tell(f"cancelled: {report.cycles} subscriptions, {report.requests} requests, {dict(report.moments)}")
    assert report.late == []
    assert report.cycles == 600
    assert report.kills == 2
    assert report.requests > report.cycles
