"""The example of a sharded cache: pubsub leaves stale keys, watching none; and its judge notices both."""

from __future__ import annotations

import pytest

from examples.sharded_cache.judge import Shown, StoreLog, Verdict
from tests.support.verdict_example import Run, run, shapes, transcript

LOG = StoreLog([(1, "a", 0), (1, "b", 0), (2, "a", 1), (3, "b", 2), (4, "a", 3)])


@pytest.fixture(scope="module")
def promised() -> Run:
    return run("sharded-cache", "--seconds", "4")


@pytest.mark.timeout(400)
def test_pubsub_leaves_stale_keys_and_watching_none(promised: Run) -> None:
    assert promised.status == 0, promised.output
    pubsub, watch = promised.figures("stale keys when it is quiet")
    assert pubsub > 0
    assert watch == 0
    pubsub, watch = promised.figures("of which: a state that never was")
    assert pubsub > 0
    assert watch == 0
    assert "still has" in promised.output


@pytest.mark.timeout(400)
def test_the_document_shows_such_a_run(promised: Run) -> None:
    shown = transcript("examples/sharded_cache/README.md")
    assert len(shown) > 15
    assert shapes(shown) - shapes(promised.output.splitlines()) == set()


@pytest.mark.timeout(400)
def test_without_one_version_of_all_servers_the_verdict_is_another_one() -> None:
    broken = run("sharded-cache", "--seconds", "2", "--newest")
    assert broken.status == 1, broken.output
    assert broken.figures("of which: a state that never was")[1] > 0
    assert "NOT AS PROMISED" in broken.output


@pytest.mark.timeout(400)
def test_a_duration_that_is_not_meant_is_refused() -> None:
    refused = run("sharded-cache", "--seconds", "3600")
    assert refused.status == 2
    assert "at most 600" in refused.output


def test_states_of_the_log() -> None:
    assert LOG.at() == {"a": 3, "b": 2}
    assert [LOG.at(version) for version in (0, 1, 2, 3)] == [
        {},
        {"a": 0, "b": 0},
        {"a": 1, "b": 0},
        {"a": 1, "b": 2},
    ]


@pytest.mark.parametrize(
    "values", [{"a": 0, "b": 0}, {"a": 1, "b": 0}, {"a": 1, "b": 2}, {"a": 3, "b": 2}, {"a": 3}, {}]
)
def test_states_that_were(values: dict[str, int]) -> None:
    assert LOG.existed(values)


@pytest.mark.parametrize("values", [{"a": 0, "b": 2}, {"a": 3, "b": 0}, {"a": 7}, {"c": 0}])
def test_states_that_never_were(values: dict[str, int]) -> None:
    assert not LOG.existed(values)


def right() -> Shown:
    """Return what a cache has shown that was right."""
    return Shown(together=[(1, {"a": 0, "b": 0}), (3, {"a": 1, "b": 2})], quiet={"a": 3, "b": 2})


def stale() -> Shown:
    """Return what a cache has shown that has a stale key."""
    return Shown(together=[(None, {"a": 1, "b": 2}), (None, {"a": 3, "b": 0})], quiet={"a": 1, "b": 2})


def test_a_verdict_as_promised() -> None:
    verdict = Verdict(stale(), right(), LOG)
    assert (verdict.holds, verdict.shows) == (True, True)
    assert verdict.text.startswith("As promised")
    assert verdict.pubsub.stale(LOG) == ["a"]
    assert verdict.pubsub.impossible(LOG) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        Shown(together=[(1, {"a": 0, "b": 0})], quiet={"a": 1, "b": 2}),  # stale
        Shown(together=[(1, {"a": 0, "b": 0})], quiet={"a": 3}),  # a key is missing
        Shown(together=[(2, {"a": 0, "b": 0})], quiet={"a": 3, "b": 2}),  # a state of another version
        Shown(together=[(3, {"a": 1})], quiet={"a": 3, "b": 2}),  # a part of a state
        Shown(quiet={"a": 3, "b": 2}),  # never known
    ],
)
def test_watching_caches_that_are_wrong_are_noticed(wrong: Shown) -> None:
    verdict = Verdict(stale(), wrong, LOG)
    assert not verdict.holds
    assert verdict.text.startswith("NOT AS PROMISED")


def test_a_run_without_an_anomaly_shows_nothing() -> None:
    verdict = Verdict(right(), right(), LOG)
    assert (verdict.holds, verdict.shows) == (True, False)
    assert verdict.text.startswith("NOTHING SHOWN")
