"""Gate of ``make cover``: shares of lines and branches that unit tests run, from the JSON report of coverage.

    python -m tests.support.coverage_gate REPORT.json

prints the share of each package and the modules below it that are least covered, and fails below a gate.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections import defaultdict
from typing import Any, Final

__all__ = ["BRANCHES", "LINES", "verdict"]

LINES: Final = 95.0
"""Percent of the lines of gripproxy and handler together that unit tests must run."""
BRANCHES: Final[dict[str, float]] = {
    "gripproxy/grip": 95.0,
    "gripproxy/http1": 95.0,
    "gripproxy/sessions": 95.0,
}
"""Percent of the branches of a package that unit tests must take."""
LEAST: Final = 12
"""Modules listed, those with most lines missing."""


def verdict(files: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Compare a report with the gates.

    Args:
        files: The ``files`` of a JSON report of coverage, made with branches.

    Returns:
        Lines to print, and the gates that are not met.
    """
    numbers: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name, entry in files.items():
        summary = entry["summary"]
        folder = pathlib.PurePosixPath(name).parent
        for key in {str(folder), "all"}:
            numbers[key][0] += summary["covered_lines"]
            numbers[key][1] += summary["num_statements"]
            numbers[key][2] += summary["covered_branches"]
            numbers[key][3] += summary["num_branches"]
    lines = [f"{'':32} lines  branches"]
    for key in sorted(numbers, key=lambda key: (key == "all", key)):
        run, statements, taken, branches = numbers[key]
        lines.append(f"{key:32} {_percent(run, statements):5.1f}  {_percent(taken, branches):8.1f}")
    missing = sorted(((entry["summary"]["missing_lines"], name) for name, entry in files.items()), reverse=True)
    lines += [f"{number:4} lines missing: {name}" for number, name in missing[:LEAST] if number]
    failures = []
    if (share := _percent(*numbers["all"][:2])) < LINES:
        failures.append(f"lines: {share:.1f}% are run, {LINES:g}% must be")
    for package, gate in BRANCHES.items():
        if package not in numbers:
            failures.append(f"{package}: not in the report")
        elif (share := _percent(*numbers[package][2:])) < gate:
            failures.append(f"{package}: {share:.1f}% of branches are taken, {gate:g}% must be")
    return lines, failures


def _percent(part: int, whole: int) -> float:
    """Return a share in percent, 100 of nothing."""
    return 100.0 * part / whole if whole else 100.0


def main(arguments: list[str]) -> int:
    """Print the verdict on a report.

    Args:
        arguments: Path of the JSON report.

    Returns:
        Exit status: 1 if a gate is not met.
    """
    lines, failures = verdict(json.loads(pathlib.Path(arguments[0]).read_text())["files"])
    print("\n".join([*lines, *failures]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
