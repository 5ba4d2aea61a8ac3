"""The stream: killed with SIGKILL in between, it has every minute once, with every event in it once."""

from __future__ import annotations

import datetime
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import duckdb

from spark_stats.reports.stream import CHECKPOINT, OUTPUT
from tests.service import ROOT
from tests.spark import traffic

DELAY = 900
PATIENCE = 600
COLUMNS = 'epoch_us(minute), type, instance, route, channel, transport, events, gone, "count", received, largest'


def start(record: pathlib.Path, into: pathlib.Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "spark_stats", "stream", str(record), "--into", str(into), "--master", "local[2]"]
    # A group of its own: Java is a child of Python's.
    return subprocess.Popen([*command, "--delay", str(DELAY), *more], cwd=ROOT, start_new_session=True)


def commits(into: pathlib.Path) -> int:
    """Rounds that are complete."""
    return len(list((into / CHECKPOINT / "commits").glob("[0-9]*")))


def wait_for(done: int, into: pathlib.Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while commits(into) < done:
        assert process.poll() is None, "the stream has ended"
        assert time.monotonic() < deadline, f"{commits(into)} rounds after {PATIENCE} s"
        time.sleep(0.05)


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def move(segments: list[pathlib.Path], root: pathlib.Path, record: pathlib.Path) -> None:
    """Let segments appear in a record, in order of time, as a recorder does: whole at once."""
    for path in segments:
        target = record / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{target.name}")
        shutil.copy(path, unfinished)
        unfinished.rename(target)


def test_killed_and_started_again_it_counts_everything_once(tmp_path: pathlib.Path) -> None:
    root, record, into = tmp_path / "all", tmp_path / "record", tmp_path / "into"
    record.mkdir()
    made = traffic.make(root, 50_000, hours=2, segment=600)
    # By the time they begin, and a copy not far behind what it is of.
    segments = sorted(
        root.glob("date=*/type=*/*"),
        key=lambda path: (path.parent.parent.name, path.name.removeprefix("restored ")),
    )
    third = len(segments) // 3
    move(segments[:third], root, record)
    first = start(record, into, "--interval", "0.5")
    try:
        wait_for(1, into, first)
        move(segments[third : 2 * third], root, record)
        # In the middle of a round: it has begun and is not complete.
        done = commits(into)
        deadline = time.monotonic() + PATIENCE
        while len(list((into / CHECKPOINT / "offsets").glob("[0-9]*"))) <= done:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        kill(first)
    move(segments[2 * third :], root, record)
    second = start(record, into, "--interval", "0.5")
    try:
        wait_for(commits(into) + 1, into, second)
    finally:
        kill(second)
    assert start(record, into, "--once").wait(PATIENCE) == 0

    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    # What counts is in the sink's own list of files: those of a round that was cut off are not in it.
    names = [
        entry.partition('"path":"file://')[2].partition('"')[0]
        for log in (into / OUTPUT / "_spark_metadata").iterdir()
        if not log.name.startswith(".")
        for entry in log.read_text().splitlines()[1:]
    ]
    assert names
    found = db.execute(f"SELECT {COLUMNS} FROM read_parquet(?)", [sorted(set(names))]).fetchall()
    last = int((made.until - datetime.timedelta(seconds=DELAY)).timestamp()) // 60 * 60_000_000
    expected = db.execute(
        f"""
        SELECT epoch_us(date_trunc('minute', received_at)) AS minute, type, "from", coalesce(route, ''),
               coalesce(channel, ''), coalesce(transport, conn_type, mode, ''), count(*),
               count(*) FILTER (unavailable), CAST(sum("count") AS BIGINT), CAST(sum(received) AS BIGINT), max("count")
        FROM read_parquet('{root}/*/*/{traffic.SESSIONS[0][:4]}*.parquet', hive_partitioning = true)
        WHERE type != 'recorder' GROUP BY ALL
        """
    ).fetchall()
    assert len(found) == len(set(found))
    # The last minutes are not final yet.
    final = max(row[0] for row in found)
    assert last - 120_000_000 <= final < last + 60_000_000
    assert set(found) == {row for row in expected if row[0] <= final}
