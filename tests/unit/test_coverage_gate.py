"""tests.support.coverage_gate: when ``make cover`` fails."""

from __future__ import annotations

from typing import Any

from tests.support.coverage_gate import BRANCHES, LINES, verdict


def entry(lines: int, branches: int) -> dict[str, Any]:
    """Return a file of 1,000 lines and 1,000 branches with so many covered."""
    return {
        "summary": {
            "covered_lines": lines,
            "num_statements": 1000,
            "missing_lines": 1000 - lines,
            "covered_branches": branches,
            "num_branches": 1000,
        }
    }


def files(lines: int = 1000, **branches: int) -> dict[str, Any]:
    packages = {package: branches.get(package.rpartition("/")[2], 1000) for package in BRANCHES}
    return {f"{package}/module.py": entry(lines, number) for package, number in packages.items()}


def test_all_gates_are_met() -> None:
    lines, failures = verdict(files())
    assert failures == []
    assert lines[-1].split() == ["all", "100.0", "100.0"]


def test_lines_missing() -> None:
    lines, failures = verdict(files(lines=int(LINES * 10) - 1))
    assert len(failures) == 1
    assert failures[0].startswith("lines: ")
    assert sum("lines missing: gripproxy/" in line for line in lines) == len(BRANCHES)


def test_branches_missing_in_one_package() -> None:
    _, failures = verdict(files(sessions=int(BRANCHES["gripproxy/sessions"] * 10) - 1))
    assert [failure.partition(":")[0] for failure in failures] == ["gripproxy/sessions"]


def test_a_package_that_is_not_there() -> None:
    report = files()
    del report["gripproxy/grip/module.py"]
    assert verdict(report)[1] == ["gripproxy/grip: not in the report"]
