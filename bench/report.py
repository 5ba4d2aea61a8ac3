"""How long ``python -m spark_stats report`` takes, and how that grows with the number of events.

    python bench/report.py                              # 1 and 10 million events, as many cores as there are
    python bench/report.py --events 1000000 --cores 1

The record is made by ``python -m tests.spark.traffic``: six hours, in segments of five minutes as the recorder makes
them by default. The report has all its tables and the page. Times are of the clock and of the processors (Java and
Python together), which vary less on a busy machine. One table beside DuckDB: tests/spark/test_speed.py.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent

PR_SET_CHILD_SUBREAPER = 36
"""Option of prctl(2): orphans below this process become its children."""


@dataclass(frozen=True)
class Took:
    """Cost of one report.

    Attributes:
        seconds: by the clock.
        spent: processor time of all its processes, seconds.
        python: most memory of its Python processes, MB.
        java: most memory of its Java, MB.
    """

    seconds: float
    spent: float
    python: float
    java: float


def adopt_orphans() -> None:
    """Make Java a child of this process when the report that started it has ended, so that its cost can be read.

    The report does not wait for its Java to end: without this, init would, and RUSAGE_CHILDREN would not contain it.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def make_record(root: pathlib.Path, events: int) -> tuple[int, str, str]:
    """Write a record of about ``events`` events into ``root``; return their number, the first and the last second."""
    command = [sys.executable, "-m", "tests.spark.traffic", str(root), "--events", str(events)]
    command += ["--hours", "6", "--channels", "2000", "--segment", "300"]
    made = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = re.fullmatch(r"(\d+) events from (\S+) to (\S+)\n", made)
    if found is None:
        raise SystemExit(f"tests.spark.traffic printed {made!r}")
    return int(found[1]), found[2], found[3]


def measure(command: list[str]) -> Took:
    """Run a command; return what it and every process below it cost."""
    began = time.monotonic()
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    seconds = spent = python = java = 0.0
    while True:
        try:
            process, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            break
        spent += usage.ru_utime + usage.ru_stime
        if process == child.pid:
            seconds = time.monotonic() - began
            child.returncode = os.waitstatus_to_exitcode(status)
            python = usage.ru_maxrss / 1024
        else:
            java = max(java, usage.ru_maxrss / 1024)
    if child.returncode:
        raise SystemExit(child.returncode)
    return Took(seconds, spent, python, java)


def run(events: int, cores: int, memory: str | None) -> Took:
    """Measure one report over a new record, and print the result."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        root = pathlib.Path(folder, "record")
        began = time.monotonic()
        number, since, until = make_record(root, events)
        files = list(root.glob("date=*/type=*/*"))
        size = sum(path.stat().st_size for path in files) / 1e6
        took = time.monotonic() - began
        print(f"{number:,} events in {len(files)} segments of {size:.0f} MB, made in {took:.0f} s", flush=True)
        command = [
            sys.executable,
            "-m",
            "spark_stats",
            "report",
            str(root),
            "--into",
            str(pathlib.Path(folder, "into")),
        ]
        command += ["--since", since, "--until", until, "--master", f"local[{cores}]"]
        report = measure(command + (["--memory", memory] if memory else []))
    each = number / report.seconds
    print(f"report: {report.seconds:.1f} s, {report.spent:.1f} s of processors, {each:,.0f} events/s")
    together = report.java + report.python
    print(f"memory at most: {report.java:.0f} MB Java, {report.python:.0f} MB Python, {together:.0f} MB together\n")
    return report


def main() -> int:
    """Run for each size; the exit status is 1 if the processor time grew faster than the number of events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 10_000_000], help="sizes, in order")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="threads of Spark")
    parser.add_argument("--memory", help="Java heap (default: that of the report)")
    given = parser.parse_args()
    adopt_orphans()
    took = [run(events, given.cores, given.memory) for events in given.events]
    if len(took) == 1:
        return 0
    more = given.events[-1] / given.events[0]
    growth, spent = took[-1].seconds / took[0].seconds, took[-1].spent / took[0].spent
    print(f"{more:.0f} times the events take {growth:.1f} times as long, and {spent:.1f} times the processor time")
    return 0 if spent <= more else 1


if __name__ == "__main__":
    raise SystemExit(main())
