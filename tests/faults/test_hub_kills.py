"""The hub and its writer killed under load."""

from __future__ import annotations

import asyncio

from tests.faults.hub_kills import Outcome, run
from tests.support.hub import hub_site

KILLS = 8


def test_each_answered_publication_is_there_once() -> None:
    with hub_site() as site:
        outcome = asyncio.run(run(site, KILLS, 15))
        assert outcome.faults() == []
        assert sum(outcome.kills.values()) == KILLS
        assert outcome.repeated > 0
        assert len(outcome.stored) >= len(outcome.answered) > 100


def test_what_would_be_found() -> None:
    outcome = Outcome(answered={"a": "1", "b": "2", "c": "3"}, stored={"b": ["2", "4"], "c": ["5"]})
    assert len(outcome.faults()) == 3
