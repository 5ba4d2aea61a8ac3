"""What the Autobahn runner makes of the fuzzing client's results."""

from __future__ import annotations

import tomllib

import pytest

from tests.autobahn.fuzzing_client import Result
from tests.autobahn.run import HERE, MODES, surprises
from tests.autobahn.table import render

PASSED = Result("1.1.1", "OK", "OK")
LAX = Result("1.1.2", "NON-STRICT", "OK")
FAILED = Result("1.1.3", "FAILED", "OK")
UNCLEAN = Result("10.1.1", "OK", "UNCLEAN")
MISSING = Result("12.1.1", "UNIMPLEMENTED", "OK")


def test_nothing_to_say_when_all_is_as_expected() -> None:
    assert surprises([PASSED, LAX, FAILED], {"1.1.3": "its reason"}) == []


@pytest.mark.parametrize("result", [FAILED, UNCLEAN, MISSING])
def test_a_failure_without_a_reason(result: Result) -> None:
    [line] = surprises([PASSED, result], {})
    assert line.startswith(f"{result.case} failed ({result.verdict})")


@pytest.mark.parametrize("result", [PASSED, LAX])
def test_a_pass_with_a_reason_to_fail(result: Result) -> None:
    [line] = surprises([result], {result.case: "once upon a time"})
    assert line.startswith(f"{result.case} passes")


def test_a_reason_for_a_case_that_did_not_run() -> None:
    assert surprises([PASSED], {"9.9.9": "?"}) == ["9.9.9 is in expected.toml, but did not run"]


def test_table() -> None:
    text = render(
        {"title": "Set", "note": "A note.\n"},
        {"m": [PASSED, LAX, FAILED, UNCLEAN]},
        {"m": {"1.1.3": "R."}},
        {"m": "mode"},
    )
    assert text == (
        "A note.\n\n### Set, mode\n\n"
        "| case | run | OK | non-strict | informational | failed |\n|---|--:|--:|--:|--:|--:|\n"
        "| 1.* | 3 | 1 | 1 | 0 | 1.1.3 |\n| 10.* | 1 | 0 | 0 | 0 | 10.1.1 |\n| all | 4 | 1 | 1 | 0 | 1.1.3, 10.1.1 |\n"
        "\nNon-strict: 1.1.2.\n"
        "\n- 1.1.3 fails: R.\n- 10.1.1 fails: not known why\n"
    )


def test_at_most_five_failures_are_excused_in_each_mode() -> None:
    cases = tomllib.loads((HERE / "cases.toml").read_text())
    expected = tomllib.loads((HERE / "expected.toml").read_text())
    for name, modes in expected.items():
        assert name in cases
        for mode, reasons in modes.items():
            assert mode in MODES
            assert len(reasons) <= 5
            assert all(reason.strip() for reason in reasons.values())
