"""Subscriptions by callback in virtual time: the promises hold in any order of things.

The sender's dispatcher and the subscriber's state are the real ones; store, network and applications are simulated
(tests/support/p3sub_world.py). Each seed is one run, which the validators of all promises judge.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from griphub.callbacks.dispatcher import DispatcherLimits
from griphub.client.subscription_actions import Strategy
from tests.support.p3sub_history import (
    Answered,
    Committed,
    Deleted,
    Ended,
    History,
    Made,
    Pushed,
    Restored,
    Told,
    Took,
)
from tests.support.p3sub_scenarios import SCENARIOS, cycles, neighbours, one_victim
from tests.support.p3sub_validators import judge
from tests.support.p3sub_world import HOUR, YEAR, World

SEEDS = {"storm": 15, "weather": 8, "busy": 4, "one-victim": 1, "slow-crowd": 1, "dead-callback": 1}
"""Runs of a scenario; of others five."""


def findings(history: History) -> list[str]:
    return [str(finding) for found in judge(history).values() for finding in found]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_promise_is_kept(scenario: str) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(SEEDS.get(scenario, 5)):
        history = SCENARIOS[scenario](seed)
        assert findings(history) == [], f"seed {seed}"
        kinds.update(type(record).__name__ for record in history.records)
        kinds.update(record.kind for record in history.records if isinstance(record, Told))
    print(dict(kinds), end=" ")
    assert kinds["Pushed"] > 100
    met = {"storm": ("Restored", "Trimmed", "Stopped", "gone"), "weather": ("Stopped", "renewed")}
    assert all(kinds[each] for each in met.get(scenario, ()))


def test_scenario_14_a_clock_that_is_turned_loses_and_repeats_nothing() -> None:
    """An hour back, then a year ahead, then right: times go on to increase, and no event is missing."""
    world = World(1)
    world.reader("a.example")
    world.flow(100.0, lambda: 1.0)
    for when, wall in ((20.0, -HOUR), (50.0, YEAR), (80.0, 0.0)):
        world.clock.run(when)
        world.publisher.turn_clock(wall)
    history = world.finish()
    assert findings(history) == []
    times = [record.time for record in history.records if isinstance(record, Committed)]
    assert len(times) == 100
    assert times == sorted(set(times))
    assert max(times) - min(times) > YEAR * 1e6
    assert sum(isinstance(record, Took) for record in history.records) == 100


def test_scenario_17_an_event_that_was_committed_before_a_kill_is_pushed_after_the_start() -> None:
    world = World(1)
    world.reader("a.example", Strategy.PUSH_ONLY)
    world.clock.run(5.0)
    world.publisher.publish()
    world.publisher.kill()
    world.clock.run(8.0)
    assert not any(isinstance(record, Took) for record in world.history.records)
    world.publisher.start()
    world.clock.run(9.0)
    [took] = [record for record in world.history.records if isinstance(record, Took)]
    [committed] = [record for record in world.history.records if isinstance(record, Committed)]
    assert took.cursor == committed.cursor
    assert findings(world.finish()) == []


def test_scenario_21_a_reader_ahead_of_a_restored_store_is_told_and_goes_on() -> None:
    """Events behind the backup are lost with the disk; the reader has them, and gets those of the new epoch."""
    world = World(1)
    world.reader("a.example")
    world.flow(10.0, lambda: 1.0)
    world.clock.run(20.0)
    backup = world.publisher.store.backup()
    world.flow(25.0, lambda: 1.0)
    world.clock.run(30.0)
    world.publisher.kill()
    world.publisher.restore(backup)
    world.publisher.start()
    world.flow(35.0, lambda: 1.0)
    world.clock.run(40.0)
    history = world.finish()
    assert findings(history) == []
    took = [record.cursor for record in history.records if isinstance(record, Took)]
    assert len(took) == len(set(took)) == 20
    assert sum(each.startswith("e1.") for each in took) == 5
    [told] = [record for record in history.records if isinstance(record, Told) and record.kind == "gone"]
    [restore] = [record for record in history.records if isinstance(record, Restored)]
    assert told.after.startswith("e0.")
    assert told.after > restore.newest


@pytest.mark.parametrize("scenario", ["dead-callback", "slow-crowd"])
def test_scenario_33_dead_and_slow_callbacks_delay_no_other(scenario: str) -> None:
    """A callback takes 30 s for each answer; 600 take 20 s each. Delays of others stay as they are alone."""
    history = SCENARIOS[scenario](7)
    assert findings(history) == []
    late = max(max(delays) for delays in history.beside.values())
    assert late < 1.0
    owners = {record.id.partition("-")[0] for record in history.records if isinstance(record, Pushed)}
    assert owners & {"dead", "slow"}


def test_thousands_of_subscriptions_to_one_victim_delay_no_other_and_are_few_requests() -> None:
    history = neighbours(7, partial(one_victim, number=10_000))
    assert findings(history) == []
    at_once = flying = 0
    victims: set[int] = set()
    for record in history.records:
        if isinstance(record, Made) and record.id.startswith("victim"):
            victims.add(record.number)
        elif isinstance(record, Pushed):
            flying += record.number in victims
        elif isinstance(record, Answered | Ended):
            flying -= record.number in victims
        at_once = max(at_once, flying)
    assert 0 < at_once <= DispatcherLimits().retries_per_host


def test_scenario_34_no_request_begins_after_the_answer_to_a_deletion() -> None:
    """10,000 cycles of a subscription, its deliveries and its deletion at any moment."""
    history = cycles(3, 10_500)
    assert findings(history) == []
    last: dict[str, str] = {}
    """State of each subscription before its deletion."""
    names: dict[int, str] = {}
    found: Counter[str] = Counter()
    for record in history.records:
        if isinstance(record, Pushed):
            last[record.id] = "request under way"
            names[record.number] = record.id
        elif isinstance(record, Answered):
            last[names[record.number]] = "all is sent" if record.success else "retry sleeps"
        elif isinstance(record, Ended):
            last[names[record.number]] = "request aborted"
        elif isinstance(record, Deleted):
            found[last.pop(record.id, "nothing yet")] += 1
    assert found.total() >= 10_000
    assert min(found[each] for each in ("retry sleeps", "request aborted", "all is sent", "nothing yet")) > 100
