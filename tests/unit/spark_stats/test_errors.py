"""The tree of errors: every exception of spark_stats is below one that names the party at fault."""

from __future__ import annotations

import ast

from spark_stats.directory import DirectoryInUse
from spark_stats.errors import OperatorError, SenderError, SparkStatsError
from spark_stats.event import Malformed
from spark_stats.recording import RecordError
from tests.support.service import ROOT


def test_parties() -> None:
    assert issubclass(OperatorError, SparkStatsError)
    assert issubclass(SenderError, SparkStatsError)
    assert issubclass(DirectoryInUse, OperatorError)
    assert issubclass(RecordError, OperatorError)
    assert issubclass(Malformed, SenderError)


def test_no_exception_stands_outside_the_tree() -> None:
    bases = {
        ast.unparse(base)
        for path in (ROOT / "spark_stats").rglob("*.py")
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    }
    assert not bases & {"Exception", "ValueError", "RuntimeError", "OSError", "SparkStatsError"}
