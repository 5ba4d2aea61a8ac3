"""A standalone cluster, one master and two workers, makes the same report as one process."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pyarrow.parquet as pq
import pyspark
import pytest

from spark_stats.reports import java
from spark_stats.reports.report import TABLES
from tests.spark.conftest import Small
from tests.spark.rows import rows
from tests.support.ports import free_ports
from tests.support.service import ROOT

PATIENCE = 3000


@contextlib.contextmanager
def daemon(log: pathlib.Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Spark's, ended with its children by their group."""
    home = pathlib.Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.find()),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
    }
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[tuple[str, str]]:
    """The address of the master, and of its page."""
    port, page, *pages = free_ports(4)
    package, address = "org.apache.spark.deploy", f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        master = (f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        running = [stack.enter_context(daemon(tmp_path / "master.log", *master))]
        for number, own in enumerate(pages):
            worker = (
                f"{package}.worker.Worker",
                "-c",
                "1",
                "-m",
                "1g",
                "--webui-port",
                str(own),
                "--host",
                "127.0.0.1",
            )
            folder = ("--work-dir", str(tmp_path / f"work{number}"), address)
            running.append(stack.enter_context(daemon(tmp_path / f"worker{number}.log", *worker, *folder)))
        deadline = time.monotonic() + PATIENCE
        while ask(f"http://127.0.0.1:{page}/json/").count('"state" : "ALIVE"') < 2:
            assert all(process.poll() is None for process in running), (tmp_path / "master.log").read_text()
            assert time.monotonic() < deadline, "the workers do not come up"
            time.sleep(0.2)
        yield address, f"http://127.0.0.1:{page}/json/"


def ask(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_two_workers_make_the_same_report(tmp_path: pathlib.Path, cluster: tuple[str, str], small: Small) -> None:
    address, page = cluster
    into = tmp_path / "into"
    command = [sys.executable, "-m", "spark_stats", "report", str(small.record), "--into", str(into)]
    span = ["--since", small.span.since.isoformat(), "--until", small.span.until.isoformat(), "--master", address]
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    ended = subprocess.run([*command, *span], cwd=ROOT, env=environment, capture_output=True, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr.decode()
    assert ended.stdout.decode() == f"{into / 'report.html'}\n"
    # Both workers had an executor.
    assert ask(page).count('"name" : "gripproxy report"') == 1
    assert all(list((tmp_path / f"work{number}").glob("app-*/*/stderr")) for number in range(2))
    for name in TABLES:
        names = pq.read_schema(small.into / f"{name}.parquet").names
        one, other = (rows([folder / f"{name}.parquet"], names) for folder in (into, small.into))
        assert Counter(one) == Counter(other), name
