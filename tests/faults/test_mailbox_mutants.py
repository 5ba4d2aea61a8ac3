"""The test of the tests of mailboxes: unbroken they keep each promise, and broken on purpose they are caught."""

from __future__ import annotations

import pytest

from griphub.mailboxes import deliveries
from griphub.mailboxes.bounds import Bounds
from tests.faults.mailbox_mutants import MUTANTS
from tests.support.mailbox_world import PROMISES, play

SEEDS = 150


def promises_broken(patch: pytest.MonkeyPatch) -> set[str]:
    """Return the promises that are seen to be broken, with deliveries at once and with those that wait."""
    found: set[str] = set()
    for at_once, bounds in ((deliveries.AT_ONCE, None), (0, Bounds(messages=3)), (0, Bounds())):
        patch.setattr(deliveries, "AT_ONCE", at_once)
        patch.setattr(deliveries, "SLICE", 1500 if at_once else 1)
        for seed in range(SEEDS):
            found |= {finding.promise for finding in play(seed, bounds).findings}
    return found


def test_unbroken_they_keep_every_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert promises_broken(monkeypatch) == set()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant].patch(monkeypatch)
    assert MUTANTS[mutant].promise in promises_broken(monkeypatch)


def test_every_promise_has_a_mutant() -> None:
    assert {mutant.promise for mutant in MUTANTS.values()} == set(PROMISES)
