"""Messages of a process: one kind of line is left out, all others arrive as they are."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from spark_stats.reports.java_messages import without_meaningless

PATIENCE = 20.0
MESSAGES = """
import os
os.write(2, b"WARNING: Using incubator modules: jdk.incubator.vector\\nWARNING: out of ")
os.write(2, b"memory\\nlast")
"""


def test_lines_that_mean_nothing_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    with without_meaningless():
        child = subprocess.Popen([sys.executable, "-c", MESSAGES])
    sys.stderr.write("ours\n")
    assert child.wait(PATIENCE) == 0
    seen = ""
    deadline = time.monotonic() + PATIENCE
    while "last" not in seen:
        assert time.monotonic() < deadline, seen
        seen += capfd.readouterr().err
    assert sorted(seen.replace("last", "last\n").split("\n")) == ["", "WARNING: out of memory", "last", "ours"]
