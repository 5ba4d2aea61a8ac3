"""The catalogue has every measure that a trial takes, and no other."""

from __future__ import annotations

import ast
import re

from bench.catalogue import MEASURES
from bench.targets import TARGETS
from bench.trials import MAIN, TRIALS
from tests.support.service import ROOT


def patterns() -> list[str]:
    """Every text in the trials that could be a key, as a regular expression: what is filled in is anything."""
    found = []
    for node in ast.walk(ast.parse((ROOT / "bench" / "trials.py").read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*" for part in node.values]
            found.append("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(re.escape(node.value))
    return found


def test_no_measure_is_never_taken() -> None:
    derived = {"growth ratio"}
    missing = [
        key
        for key in MEASURES
        if key not in derived and not any(re.fullmatch(pattern, key) for pattern in patterns() if pattern != ".*")
    ]
    assert missing == []


def test_bounds_name_servers_that_there_are() -> None:
    assert {bound.peer for one in MEASURES.values() for bound in one.bounds} <= {"", *TARGETS}


def test_the_main_tests_exist() -> None:
    assert set(MAIN) <= set(TRIALS)
