"""tests.support.changed: which unit tests ``make quick`` runs."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.changed import unit_tests as chosen


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in (
        "tests/unit/test_prose.py",
        "tests/unit/test_architecture.py",
        "tests/unit/grip/test_item.py",
        "tests/unit/grip/test_item_json.py",
        "tests/unit/grip/test_links.py",
        "tests/unit/grip/doubles.py",
        "tests/unit/handler/test_dedupe.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


ALWAYS = ["tests/unit/test_architecture.py", "tests/unit/test_prose.py"]


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ([], []),
        (["docs/index.md", "README.md"], []),
        (["gripproxy/grip/links.py"], ["tests/unit/grip/test_links.py"]),
        (["gripproxy/grip/item.py"], ["tests/unit/grip/test_item.py", "tests/unit/grip/test_item_json.py"]),
        (["gripproxy/grip/unknown.py"], ["tests/unit/grip"]),
        (["gripproxy/grip/unknown.py", "gripproxy/grip/item.py"], ["tests/unit/grip"]),
        (["gripproxy/__main__.py"], []),
        (["handler/dedupe.py"], ["tests/unit/handler/test_dedupe.py"]),
        (["tests/unit/grip/test_links.py", "tests/unit/grip/test_removed.py"], ["tests/unit/grip/test_links.py"]),
        (["tests/unit/grip/doubles.py"], ["tests/unit/grip"]),
        (["tests/support/prose.py"], []),
    ],
)
def test_tests_of_changed_files(root: pathlib.Path, changed: list[str], tests: list[str]) -> None:
    assert chosen(changed, root) == sorted([*ALWAYS, *tests])
