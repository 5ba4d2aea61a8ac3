"""The cases as a whole: nothing of the reference is forgotten, and the list of differences is up to date."""

from __future__ import annotations

from tests.wire import coverage, differences


def test_every_row_has_a_case_or_a_reason() -> None:
    assert coverage.main([]) == 0


def test_list_of_differences_is_up_to_date() -> None:
    assert differences.main(["--check"]) == 0
