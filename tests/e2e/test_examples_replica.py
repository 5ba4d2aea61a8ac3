"""The example of a replica: pubsub shows states that never were, watching none; and its judge notices both."""

from __future__ import annotations

import pytest

from examples.replica.access import beginning, grant, group, leaks, withdraw
from examples.replica.judge import Seen, State, StoreLog, Verdict
from tests.support.verdict_example import Run, run, shapes, transcript

BEGIN = {step.key: step.value for step in beginning()}
STEPS = [*grant(3), *withdraw(3)]
LOG = StoreLog(
    [
        *((1, key, value) for key, value in BEGIN.items()),
        *((2 + at, step.key, step.value) for at, step in enumerate(STEPS)),
    ]
)
QUIET = dict(BEGIN)


@pytest.fixture(scope="module")
def promised() -> Run:
    return run("replica", "--seconds", "4")


@pytest.mark.timeout(400)
def test_pubsub_shows_states_that_never_were_and_watching_none(promised: Run) -> None:
    assert promised.status == 0, promised.output
    pubsub, watch = promised.figures("of which: the consultant can read")
    assert pubsub > 0
    assert watch == 0
    assert promised.figures("of which: not as in the store") == (0, 0)
    assert promised.figures("versions shown")[1] > 0
    assert "right when it is quiet                         yes       yes" in promised.output


@pytest.mark.timeout(400)
def test_the_document_shows_such_a_run(promised: Run) -> None:
    """The first of two steps may be either one of a grant or one of a withdrawal."""
    shown = [line for line in transcript("examples/replica/README.md") if "  version " not in line]
    assert len(shown) > 13
    assert shapes(shown) - shapes(promised.output.splitlines()) == set()


@pytest.mark.timeout(400)
def test_without_one_version_of_all_workers_the_verdict_is_another_one() -> None:
    broken = run("replica", "--seconds", "2", "--newest")
    assert broken.status == 1, broken.output
    assert broken.figures("of which: not as in the store")[1] > 0
    assert "NOT AS PROMISED" in broken.output


@pytest.mark.timeout(400)
def test_a_duration_that_is_not_meant_is_refused() -> None:
    refused = run("replica", "--seconds", "3600")
    assert refused.status == 2
    assert "at most 600" in refused.output


def states() -> list[State]:
    """Return the states of the store from the beginning on, after each step."""
    return [LOG.at(version) for version in range(1, 2 + len(STEPS))]


def test_the_rule_holds_in_each_state_of_the_store() -> None:
    assert [leaks(state) for state in states()] == [[]] * (1 + len(STEPS))
    assert LOG.at() == BEGIN


def test_the_rule_is_broken_by_steps_in_another_order() -> None:
    removed, granted, taken, back = STEPS
    assert leaks({**BEGIN, granted.key: granted.value}) == [(granted.key, group(3))]
    assert leaks({**BEGIN, removed.key: removed.value, granted.key: granted.value}) == []
    assert leaks({**BEGIN, granted.key: granted.value, back.key: back.value}) == [(granted.key, group(3))]
    assert taken.value == []


def test_the_next_write_of_a_key() -> None:
    assert LOG.next_version(group(3), 1) == 2
    assert LOG.next_version(group(3), 2) == 5


def right() -> Seen:
    """Return the states that readers of a replica have seen, all of them right."""
    seen = Seen(quiet=QUIET)
    for version in (1, 2, 2, 4):
        seen.see(LOG.at(version), False, version)
    seen.miss()
    return seen


def leaking() -> Seen:
    """Return the states of a replica that has shown one that never was."""
    seen = Seen(quiet=QUIET)
    seen.see(BEGIN, False)
    seen.see({**BEGIN, STEPS[1].key: STEPS[1].value}, True)
    return seen


def test_a_verdict_as_promised() -> None:
    verdict = Verdict(leaking(), right(), LOG)
    assert (verdict.holds, verdict.shows) == (True, True)
    assert verdict.text.startswith("As promised")
    assert (verdict.watch.reads, verdict.watch.unknown) == (5, 1)


def wrong(version: int, state: State, leaking: bool = False, quiet: dict[str, list[str]] | None = None) -> Seen:
    """Return right states and one more."""
    seen = right()
    seen.see(state, leaking, version)
    if quiet is not None:
        seen.quiet = quiet
    return seen


@pytest.mark.parametrize(
    "watch",
    [
        wrong(3, BEGIN, leaking=True),
        wrong(3, BEGIN),  # a state of another version
        wrong(2, BEGIN),  # a version that was shown with another state before
        wrong(5, {key: value for key, value in BEGIN.items() if key != group(0)}),  # a part of a state
        wrong(5, BEGIN, quiet={**BEGIN, group(0): []}),  # wrong in the end
        Seen(reads=7, unknown=7, quiet=QUIET),  # never known
    ],
)
def test_a_watching_replica_that_is_wrong_is_noticed(watch: Seen) -> None:
    verdict = Verdict(leaking(), watch, LOG)
    assert not verdict.holds
    assert verdict.text.startswith("NOT AS PROMISED")


def test_a_run_without_an_anomaly_shows_nothing() -> None:
    verdict = Verdict(right(), right(), LOG)
    assert (verdict.holds, verdict.shows) == (True, False)
    assert verdict.text.startswith("NOTHING SHOWN")
