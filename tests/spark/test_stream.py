"""The stream: every minute is there once and is what the report says of it, whatever happens in between."""

from __future__ import annotations

import datetime
import fcntl
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_stats.reports import stream
from spark_stats.reports.minutes import TABLES
from tests.spark.conftest import Small
from tests.spark.rows import Row, rows, same
from tests.spark.traffic import SESSIONS
from tests.support.service import ROOT

DELAY = 900
PATIENCE = 3000
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def moved(segments: list[pathlib.Path], root: pathlib.Path, record: pathlib.Path) -> None:
    """Let segments appear in a record as a recorder does: whole at once."""
    for path in segments:
        target = record / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{target.name}")
        shutil.copy(path, unfinished)
        unfinished.rename(target)


def parts(small: Small, number: int) -> list[list[pathlib.Path]]:
    """Its segments, by the time they begin, in so many parts; a copy is not far behind what it is of."""
    segments = sorted(
        small.record.glob("date=*/type=*/*"),
        key=lambda path: (path.parent.parent.name, path.name.removeprefix("restored ")),
    )
    return [segments[len(segments) * i // number : len(segments) * (i + 1) // number] for i in range(number)]


def micros(time: datetime.datetime) -> int:
    return (time - EPOCH) // datetime.timedelta(microseconds=1)


def columns(folder: pathlib.Path) -> list[str]:
    return list(pq.read_schema(next(folder.glob("*.parquet"))).names)


def all_final(small: Small) -> datetime.datetime:
    """Up to when minutes are final when all is read; the newest event comes just before the end."""
    newest = small.traffic.until - datetime.timedelta(microseconds=1)
    return (newest - datetime.timedelta(seconds=DELAY)).replace(second=0, microsecond=0)


def equals_the_report(into: pathlib.Path, small: Small) -> None:
    """All minutes that are final are in the tables as the report has them, and no others."""
    until = all_final(small)
    assert stream.final(into) == until
    for name in TABLES:
        if name == "events":
            continue
        names = columns(into / name)
        assert sorted(names) == sorted(pq.read_schema(small.into / f"{name}.parquet").names)
        whole = rows([small.into / f"{name}.parquet"], names)
        per, start = names.index("per"), names.index("start")
        expected = [row for row in whole if row[per] == "minute" and row[start] < micros(until)]
        same(rows(sorted((into / name).iterdir()), names), expected)
    same(counted(into, "events"), calculated(small, until))


def counted(into: pathlib.Path, name: str) -> list[Row]:
    """The table as a plain reader sees it: DuckDB, with all files of the folder."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        names = ", ".join(f'"{name}"' for name in columns(into / name)).replace('"start"', "epoch_us(start)")
        files = [str(path) for path in (into / name).iterdir()]
        found: list[Row] = db.execute(f"SELECT {names} FROM read_parquet(?)", [files]).fetchall()
        return found


def calculated(small: Small, until: datetime.datetime) -> list[Row]:
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        found: list[Row] = db.execute(
            f"""
            SELECT 'minute', epoch_us(date_trunc('minute', received_at)) AS minute,
                   CASE GROUPING(sender) WHEN 1 THEN 'type' ELSE 'type+instance' END, type, sender, count(*)
            FROM (SELECT received_at, type, coalesce("from", '') AS sender
                  FROM read_parquet('{small.record}/*/*/{SESSIONS[0][:4]}*.parquet', hive_partitioning = true)
                  WHERE received_at < make_timestamptz({micros(until)}))
            GROUP BY GROUPING SETS ((minute, type), (minute, type, sender))
            """
        ).fetchall()
        return found


# --- as processes, that are killed


def started(record: pathlib.Path, into: pathlib.Path, log: pathlib.Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "spark_stats", "stream", str(record), "--into", str(into), "--master", "local[2]"]
    # A group of its own: Java is a child of Python's.
    with open(log, "ab") as out:
        return subprocess.Popen(
            [*command, "--delay", str(DELAY), "--interval", "0.5"],
            cwd=ROOT,
            start_new_session=True,
            stdout=out,
            stderr=out,
        )


def wait_for(condition: Callable[[], object], process: subprocess.Popen[bytes], log: pathlib.Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)


def killed(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_killed_again_and_again_it_has_everything_once(small: Small, tmp_path: pathlib.Path) -> None:
    record, into, log = tmp_path / "record", tmp_path / "into", tmp_path / "log"
    own = into / stream.OWN
    record.mkdir()
    first, second, third = parts(small, 3)
    process = started(record, into, log)
    try:
        wait_for(lambda: "waiting for the recorder" in log.read_text(), process, log)
        moved(first, small.record, record)
        wait_for(lambda: (own / "000000.json").exists(), process, log)
        moved(second, small.record, record)
        # In the middle of a round: some of its tables are there, and others are not.
        wait_for(lambda: list(into.glob("*/round-000001.parquet")), process, log)
    finally:
        killed(process)
    assert not (own / "000001.json").exists()
    process = started(record, into, log)
    try:
        # At the end of one: the tables are there, and Spark may not have noted that.
        wait_for(lambda: (own / "000001.json").exists(), process, log)
    finally:
        killed(process)
    moved(third, small.record, record)
    end = all_final(small)
    process = started(record, into, log)
    try:
        wait_for(lambda: stream.final(into) == end, process, log)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()
    finally:
        if process.poll() is None:
            killed(process)
    assert "stopped; started again it goes on here" in log.read_text()
    assert "Traceback" not in log.read_text()
    equals_the_report(into, small)


# --- in this process, with all that goes wrong


@dataclass(frozen=True)
class Streamed:
    """What came out, and what was said."""

    into: pathlib.Path
    said: str


class Cut(Exception):
    """The round ends here."""


LATE = {("conn", "gripproxy-handler"): 7, ("message", ""): 3}


@pytest.fixture(scope="module")
def streamed(small: Small, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streamed:
    record, into = tmp_path_factory.mktemp("record [1] {ü}"), tmp_path_factory.mktemp("into [2]")
    first, second, third = parts(small, 3)
    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Handler()
    stream.logger.addHandler(handler)
    stream.logger.setLevel(logging.INFO)

    def go() -> None:
        stream.run(spark, record, into, DELAY, once=True)

    try:
        moved(first, small.record, record)
        go()
        moved(second, small.record, record)
        # What is left of a recorder that has died, and what somebody copied in part.
        (record / "_recorder" / "journal").mkdir(parents=True)
        (record / "_recorder" / "journal" / "x.journal").write_bytes(b"gsj\x01")
        (record / "_recorder" / "open").mkdir()
        shutil.copy(first[0], record / "_recorder" / "open" / "date=2026-11-19,type=conn,x.parquet")
        whole = next(path for path in second if "type=message" in str(path) and "restored" not in path.name)
        broken = record / whole.relative_to(small.record).with_name("broken.parquet")
        broken.write_bytes(whole.read_bytes()[:-100])
        half = pq.read_table(whole, partitioning=None).slice(3, 50)
        pq.write_table(half, broken.with_name("half of [it].parquet"))
        # Cut off before and behind the position, whatever number of tables is there.
        with pytest.MonkeyPatch.context() as patch:
            real = stream._settle

            def settle(unfinished: pathlib.Path, path: pathlib.Path) -> None:
                if path.name == "round-000001.parquet" and path.parent.name == "connection_time":
                    raise Cut("behind the first table")
                real(unfinished, path)

            patch.setattr(stream, "_settle", settle)
            with pytest.raises(stream.StreamError):
                go()
            assert (into / "connections" / "round-000001.parquet").exists()
            assert not (into / "connection_time" / "round-000001.parquet").exists()

            def behind(unfinished: pathlib.Path, path: pathlib.Path) -> None:
                real(unfinished, path)
                if path.name == "000001.json":
                    raise Cut("behind the position")

            patch.setattr(stream, "_settle", behind)
            with pytest.raises(stream.StreamError):
                go()
            assert (into / stream.OWN / "000001.json").exists()
        go()
        moved(third, small.record, record)
        late(small, record)
        # What was final in the first round, once more, and in another file.
        old = next(path for path in first if "type=conn" in str(path))
        again = record / old.relative_to(small.record).with_name("again.parquet")
        pq.write_table(pq.read_table(old, partitioning=None).slice(5, 20), again)
        go()
        go()
    finally:
        stream.logger.removeHandler(handler)
    return Streamed(into, "\n".join(said))


def late(small: Small, record: pathlib.Path) -> None:
    """Events of a session that nobody knows, from the first minutes."""
    for (kind, sender), number in LATE.items():
        of_kind = min(small.record.glob(f"date=*/type={kind}/{SESSIONS[0]}*"))
        table = pq.read_table(of_kind, partitioning=None).slice(0, number)
        for name, value in (("session", "20261119T000000Z-late"), ("from", sender or None)):
            place = table.column_names.index(name)
            table = table.set_column(place, table.schema.field(name), pa.array([value] * number, pa.string()))
        pq.write_table(table, record / of_kind.relative_to(small.record).with_name("late.parquet"))


def test_cut_off_rounds_copies_and_broken_segments_change_nothing(streamed: Streamed, small: Small) -> None:
    equals_the_report(streamed.into, small)
    assert streamed.said.count("a copy, of events that are counted already") >= 3
    assert "broken.parquet is broken, or no segment" in streamed.said
    # The last time there was nothing new.
    assert streamed.said.endswith("no segment that was not read before")
    # Nothing is left behind.
    assert {path.name for path in streamed.into.iterdir()} == {stream.OWN, stream.LATE, *TABLES}
    files = [path.name for path in streamed.into.glob("[!_]*/*")]
    assert all(name.startswith("round-") and name.endswith(".parquet") for name in files)
    assert len(list((streamed.into / stream.OWN).glob("*.json"))) <= 2


def test_what_comes_too_late_is_counted_apart(streamed: Streamed) -> None:
    found: dict[tuple[str, str], int] = {}
    for per, _, kind, instance, events in counted(streamed.into, stream.LATE):
        assert per == "minute"
        found[kind, instance] = found.get((kind, instance), 0) + events
    assert found == LATE
    assert "10 events came when their minute was final: see the table late" in streamed.said


def test_pandas_reads_the_tables(streamed: Streamed) -> None:
    import pandas as pd

    frame = pd.read_parquet(streamed.into / "deliveries")
    every = frame[frame["by"] == "all"]
    assert len(every) > 60
    assert every["start"].is_unique
    assert every["items"].min() > 0


def test_a_second_stream_is_refused(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    own = tmp_path / "into" / stream.OWN
    own.mkdir(parents=True)
    with open(own / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(stream.StreamError, match="another stream writes into"):
            stream.run(spark, tmp_path, tmp_path / "into", once=True)


def test_tables_without_their_checkpoint_are_refused(
    streamed: Streamed, spark: SparkSession, small: Small, tmp_path: pathlib.Path
) -> None:
    shutil.copytree(streamed.into, tmp_path / "into")
    shutil.rmtree(tmp_path / "into" / stream.OWN / "checkpoint")
    with pytest.raises(stream.StreamError, match="not all of its checkpoint"):
        stream.run(spark, small.record, tmp_path / "into", once=True)
    shutil.rmtree(tmp_path / "into" / stream.OWN)
    with pytest.raises(stream.StreamError, match="begin anew in an empty folder"):
        stream.run(spark, small.record, tmp_path / "into", once=True)


def test_without_a_record_there_is_a_plain_message(
    spark: SparkSession, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "record").mkdir()
    with caplog.at_level(logging.INFO, "spark_stats.stream"):
        stream.run(spark, tmp_path / "record", tmp_path / "into", once=True)
    assert [record.message for record in caplog.records] == [f"no segment in {tmp_path / 'record'} yet"]
    assert stream.final(tmp_path / "into") is None
    command = [sys.executable, "-m", "spark_stats", "stream", str(tmp_path / "nowhere"), "--into", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 2
    assert "nowhere is no folder: `gripproxy-stats record" in ended.stderr
