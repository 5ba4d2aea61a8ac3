"""docs/push-scenarios.md: each situation of push subscriptions has a test, which exists."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from tests.support.architecture import ROOT

ROWS = re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", (ROOT / "docs" / "push-scenarios.md").read_text(), re.MULTILINE)


@functools.cache
def functions(path: str) -> frozenset[str]:
    """Return the names of all functions in a file."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_situation_is_there() -> None:
    assert {int(number) for number, _ in ROWS} == set(range(1, 51))


@pytest.mark.parametrize(("number", "tests"), ROWS)
def test_its_tests_exist(number: str, tests: str) -> None:
    for test in tests.split(", "):
        path, _, name = test.partition("::")
        assert name in functions(path), f"no. {number}: {path} has no {name}"
