"""bench measures programs from outside: its workloads alone import what they measure. Their work: test_work.py."""

from __future__ import annotations

import ast

from tests.support.service import ROOT

PROJECT = {"gripproxy", "handler", "spark_stats", "tests"}


def test_only_the_workloads_import_the_project() -> None:
    found = set()
    for path in (ROOT / "bench").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if any(name.partition(".")[0] in PROJECT for name in names):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == {"bench/workloads.py", "bench/library_workloads.py"}
