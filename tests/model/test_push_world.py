"""Push subscriptions in virtual time: every promise holds in every scenario, whatever the seed."""

from __future__ import annotations

import pytest

from tests.support.push_scenarios import SCENARIOS
from tests.support.push_validators import judge


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_promise_holds(scenario: str, seed: int) -> None:
    history = SCENARIOS[scenario](seed)
    assert judge(history) == {}
    assert len(history.begun) > 20
