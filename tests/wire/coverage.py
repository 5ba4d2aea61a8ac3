"""Print the rows of rows.toml that no case covers and no reason excuses. Exit status 1 if there are any.

Usage: ``python tests/wire/coverage.py [--all]`` (with ``--all`` also the rows with a reason, and who covers what).
Reads the sources only, so it needs no proxy and sees every case.
"""

from __future__ import annotations

import ast
import pathlib
import sys
import tomllib
from dataclasses import dataclass

HERE = pathlib.Path(__file__).parent


@dataclass
class Row:
    """One promise of the reference: its text, and why it has no case (None if it must have one)."""

    text: str
    reason: str | None


def rows() -> dict[str, Row]:
    """Return the rows of rows.toml by id, ``"<section> <name>"``."""
    found = {}
    for section, entries in tomllib.loads((HERE / "rows.toml").read_text()).items():
        for name, entry in entries.items():
            row = Row(entry, None) if isinstance(entry, str) else Row(entry["text"], entry.get("reason"))
            found[f"{section} {name}"] = row
    return found


def cases() -> dict[str, list[str]]:
    """Return, by row id, the cases whose ``@covers`` names it."""
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "covers":
                    for argument in decorator.args:
                        found.setdefault(str(ast.literal_eval(argument)), []).append(f"{path.name}::{node.name}")
    return found


def main(arguments: list[str]) -> int:
    """Print what is missing; return the exit status."""
    known, covered = rows(), cases()
    missing = [i for i, row in known.items() if i not in covered and row.reason is None]
    unknown = [i for i in covered if i not in known]
    idle = [i for i, row in known.items() if i in covered and row.reason is not None]
    if "--all" in arguments:
        for i, row in known.items():
            print(f"{i}: {', '.join(covered.get(i, [])) or row.reason or 'MISSING'}")
    for i in missing:
        print(f"no case: {i} ({known[i].text})")
    for i in unknown:
        print(f"not in rows.toml: {i} ({', '.join(covered[i])})")
    for i in idle:
        print(f"has a case and a reason for having none: {i} ({', '.join(covered[i])})")
    excused = sum(1 for row in known.values() if row.reason)
    number = len({case for names in covered.values() for case in names})
    print(f"{len(known)} rows, {len(missing)} without a case, {excused} excused; {number} cases")
    return 1 if missing or unknown or idle else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
