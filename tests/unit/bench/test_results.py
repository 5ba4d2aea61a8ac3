"""Results: lines of all rounds become medians, ratios within rounds, and verdicts."""

from __future__ import annotations

import json

import pytest

from bench.catalogue import MEASURES
from bench.results import Results

SINGLE = "single stream 1000"


def line(target: str, value: float, number: int = 1, measure: str = SINGLE, lost: int = 0) -> str:
    return json.dumps(
        {
            "round": number,
            "target": target,
            "trial": "streams",
            "measure": measure,
            "value": value,
            "lost": lost,
            "of": 1000,
        }
    )


def test_medians_over_rounds() -> None:
    results = Results([line("gripproxy", value, number) for number, value in enumerate([3, 100, 1], 1)])
    assert results.median(SINGLE, "gripproxy") == 3
    assert results.rounds == 3
    assert results.median(SINGLE, "pushpin") is None


def test_a_ratio_is_the_median_of_those_within_rounds() -> None:
    # In round 2 the machine was ten times slower for both.
    ours, theirs = [100, 10, 100], [50, 5, 10]
    lines = [line("gripproxy", value, number) for number, value in enumerate(ours, 1)]
    lines += [line("pushpin", value, number) for number, value in enumerate(theirs, 1)]
    assert Results(lines).ratio(SINGLE, "pushpin") == 2


def test_rounds_that_only_one_of_them_has_do_not_count() -> None:
    results = Results([line("gripproxy", 100, 1), line("gripproxy", 7, 2), line("loop", 50, 1), line("loop", 1, 3)])
    assert results.ratio(SINGLE, "loop") == 2
    assert Results([line("gripproxy", 100, 1), line("loop", 50, 2)]).ratio(SINGLE, "loop") is None


def test_a_figure_that_was_taken_twice_in_a_round_counts_once() -> None:
    results = Results([line("gripproxy", 1, 1), line("gripproxy", 2, 1)])
    assert results.values(SINGLE, "gripproxy") == [2]


def test_what_was_lost_the_first_time_of_two_in_a_round_does_not_count() -> None:
    assert [one.lost for one in Results([line("pushpin", 1, lost=3), line("pushpin", 1, lost=2)]).lost] == [2]
    assert Results([line("pushpin", 1, lost=3), line("pushpin", 1)]).lost == []
    assert len(Results([line("pushpin", 1, 1, lost=3), line("pushpin", 1, 2)]).lost) == 1


def test_verdicts_know_which_way_is_better() -> None:
    results = Results(
        [line(target, value) for target, value in (("gripproxy", 100), ("pushpin", 20), ("nginx", 200), ("loop", 110))]
        + [line("gripproxy", 2.1, measure="memory stream 5000")]
    )
    assert [verdict.holds for verdict in results.verdicts(SINGLE)] == [True, False, True]
    assert [verdict.holds for verdict in results.verdicts("memory stream 5000")] == [False]


def test_what_was_not_measured_is_not_judged() -> None:
    assert Results([line("gripproxy", 100)]).verdicts(SINGLE) == []


def test_a_trial_that_is_added_later_begins_with_its_own_first_round() -> None:
    results = Results([line("gripproxy", 1, number) for number in (1, 2, 3)])
    assert results.rounds_of(["streams"]) == 3
    assert results.rounds_of(["ids", "memreal"]) == 0
    assert results.rounds_of(["ids", "streams"]) == 3


def test_losses_and_failures_are_kept() -> None:
    failed = json.dumps({"round": 2, "target": "pushpin", "trial": "hold", "failed": "no"})
    results = Results([line("pushpin", 1, lost=3), failed])
    assert [(one.target, one.lost, one.of) for one in results.lost] == [("pushpin", 3, 1000)]
    assert results.failures == ["round 2, pushpin, hold: no"]


def test_growth_is_compared_with_the_loop_within_a_round() -> None:
    figures = {("gripproxy", 1000): 80, ("gripproxy", 60000): 30, ("loop", 1000): 100, ("loop", 60000): 50}
    lines = [line(target, value, measure=f"growth single {step}") for (target, step), value in figures.items()]
    results = Results(lines)
    assert results.median("growth ratio", "gripproxy") == pytest.approx(0.75)
    assert [verdict.holds for verdict in results.verdicts("growth ratio")] == [False]


def test_a_line_that_was_cut_off_at_the_end_is_left_out() -> None:
    assert Results([line("gripproxy", 1), '{"round": 1, "tar']).values(SINGLE, "gripproxy") == [1]


def test_a_broken_line_in_between_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 1 is not JSON"):
        Results(['{"round": 1, "tar', line("gripproxy", 1)])


def test_measures_come_in_the_order_of_the_catalogue() -> None:
    results = Results([line("gripproxy", 1, measure=key) for key in ("echo", SINGLE, "memory ws 5000")])
    assert results.measures() == [key for key in MEASURES if key in {"echo", SINGLE, "memory ws 5000"}]
