"""The command: names on its line, and what a quick run finds wrong."""

from __future__ import annotations

import json

import pytest

from bench.compare import check, chosen
from bench.programs import BenchError
from bench.results import Results


def line(target: str, **fields: object) -> str:
    return json.dumps({"round": 1, "target": target, "trial": "proxy"} | fields)


def figure(target: str, **fields: object) -> str:
    return line(target, measure="echo", value=1.0, **fields)


def test_names_are_taken_from_a_list() -> None:
    assert chosen(" hold,proxy", ["hold", "proxy", "ids"], "test") == ["hold", "proxy"]
    assert chosen("", ["hold"], "test") == []


def test_a_name_that_there_is_not_is_an_error_that_says_which_there_are() -> None:
    with pytest.raises(BenchError, match="there is no test 'held'; there are hold, proxy"):
        chosen("held", ["hold", "proxy"], "test")


def test_all_is_well() -> None:
    assert check(Results([figure("gripproxy"), figure("pushpin")]), ["gripproxy", "pushpin"]) == []


def test_a_server_without_a_figure_is_found() -> None:
    assert check(Results([figure("gripproxy")]), ["gripproxy", "pushpin"]) == ["pushpin has no figure"]


def test_a_measure_that_only_the_others_have_is_found() -> None:
    assert check(Results([figure("pushpin")]), ["pushpin"]) == ["gripproxy has no figure of echo"]


def test_a_failure_is_found() -> None:
    results = Results([figure("gripproxy"), line("gripproxy", failed="no answer")])
    assert check(results, ["gripproxy"]) == ["round 1, gripproxy, proxy: no answer"]


def test_what_others_did_once_more_is_theirs() -> None:
    lines = [figure("gripproxy"), figure("pushpin"), line("pushpin", again="no answer")]
    assert check(Results(lines), ["gripproxy", "pushpin"]) == []
    lines.append(line("gripproxy", again="no answer"))
    assert check(Results(lines), ["gripproxy", "pushpin"]) == ["round 1, gripproxy, proxy: no answer"]


def test_a_loss_of_ours_is_found_and_one_of_others_is_theirs() -> None:
    results = Results([figure("gripproxy", lost=1, of=9), figure("pushpin", lost=2, of=9), figure("loop")])
    assert check(results, ["gripproxy", "pushpin", "loop"]) == ["gripproxy lost 1 of 9 in echo"]


def test_a_run_without_any_figure_is_no_success() -> None:
    assert check(Results([]), []) == ["there is no figure at all"]
