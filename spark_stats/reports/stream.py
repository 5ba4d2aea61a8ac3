"""Streaming job: the report's figures per minute, as segments appear.

Spark polls the record and hands over the names of new segments in rounds, with a checkpoint of the names in each. A
round makes the tables of the minutes that have become final with it, by :mod:`~spark_stats.reports.position`. Each
table gets one file per round, named for the round, and then the position is written, named likewise. A round that was
cut off is done again, from the position before it and with the segments of its checkpoint, and replaces its files:
every minute is there once, for every reader.

Spark's own watermark would drop late events without counting them, and its own duplicate check would keep every event
for as long as events may be late.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import logging
import os
import pathlib
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, Final

import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_stats.directory import sync_folder
from spark_stats.errors import OperatorError
from spark_stats.reports.events import escaped
from spark_stats.reports.minutes import TABLES, Minutes, late
from spark_stats.reports.position import Position, Round, Segment

__all__ = ["DELAY", "LATE", "OWN", "SETTINGS", "StreamError", "final", "run"]

logger = logging.getLogger("spark_stats.stream")

DELAY: Final = 900.0
"""Seconds that events may be late: until a segment is closed (300 by default), and a recorder that died is back."""
LATE: Final = "late"
"""Table of late events."""
OWN: Final = "_stream"
"""The folder with the checkpoint and the position; readers leave out names that begin with ``_``."""
AT_ONCE: Final = 3
"""Tables that are made side by side: most of the time is spent planning them, one after the other."""
FINISHING: Final = 30.0
"""Time that a round may take after the job was asked to end, seconds."""
LOOK: Final = 0.2
"""Time between two checks whether the round has ended, seconds."""

SETTINGS: Final = {
    # A round has little data next to a report.
    "spark.sql.shuffle.partitions": "4",
    # Names of segments are known: to ask for each of them is quicker than a job that does.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
}

_FILES: Final = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"


class StreamError(OperatorError):
    """Failure that ends the stream; the text names the reason and the remedy."""


def final(into: pathlib.Path) -> datetime.datetime | None:
    """Return the time before which all minutes are in the tables of the folder ``into``; None if there is none yet."""
    rounds = _Rounds.written(into / OWN)
    if not rounds:
        return None
    reached = _position(into / OWN, rounds[-1]).final
    return None if reached is None else _time(reached)


def run(
    spark: SparkSession,
    root: pathlib.Path,
    into: pathlib.Path,
    delay: float = DELAY,
    interval: float = 10.0,
    once: bool = False,
) -> None:
    """Follow the record until SIGTERM or SIGINT.

    Args:
        spark: session.
        root: folder of the record.
        into: folder with the tables and the position: the stream continues from there.
        delay: seconds an event may be late.
        interval: seconds between two polls for segments.
        once: read the segments that are there and return.

    Raises:
        StreamError: the stream cannot continue.
    """
    own = into / OWN
    own.mkdir(parents=True, exist_ok=True)
    with _locked(own / "lock"), _stoppable() as stop:
        rounds = _Rounds(spark, root, into, delay)
        rounds.check()
        empty = not any(root.glob("date=*/type=*/[!._]*"))
        if empty:
            logger.info("no segment in %s yet%s", root, "" if once else ": waiting for the recorder to close one")
        # Only names are read here: a broken file is no reason to fail.
        source = spark.readStream.format("binaryFile").schema(_FILES).option("recursiveFileLookup", "true")
        writer = (
            source.load(escaped(root))
            .select("path")
            .writeStream.foreachBatch(rounds.make)
            .option("checkpointLocation", str((own / "checkpoint").absolute()))
        )
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval} seconds")
        query = writer.start()
        _follow(spark, query, stop, rounds)
        if once and not (empty or rounds.made or stop.asked):
            logger.info("no segment that was not read before")


def _follow(spark: SparkSession, query: Any, stop: _Stop, rounds: _Rounds) -> None:
    try:
        while not stop.asked and not query.awaitTermination(LOOK):
            pass
        if not stop.asked:
            return
        if query.status["isTriggerActive"]:
            logger.info("finishing the round; once more to leave it for the next start")
        deadline = time.monotonic() + FINISHING
        while query.isActive and query.status["isTriggerActive"] and stop.asked < 2 and time.monotonic() < deadline:
            stop.wait(LOOK)
        rounds.stopping = True
        spark.sparkContext.cancelAllJobs()
        query.stop()
    except (PySparkException, Py4JError, OSError) as e:  # The last two: Java is gone.
        if not stop.asked:
            raise StreamError(rounds.failure or _plain(e)) from e
    logger.info("stopped; started again it goes on here")


class _Rounds:
    """Makes one round after the other; Spark calls :meth:`make`."""

    def __init__(self, spark: SparkSession, root: pathlib.Path, into: pathlib.Path, delay: float) -> None:
        self._spark = spark
        self._root = root.absolute()
        self._into = into
        self._own = into / OWN
        self._delay = delay
        self.stopping = False
        self.made = 0
        """Rounds made so far."""
        self.failure: str | None = None

    @staticmethod
    def written(own: pathlib.Path) -> list[int]:
        """Numbers of the rounds whose position is there."""
        return sorted(int(path.stem) for path in own.glob("*.json") if path.stem.isdigit())

    def check(self) -> None:
        """Check that checkpoint, position and tables belong together.

        Raises:
            StreamError: they do not.
        """
        started = [int(path.name) for path in (self._own / "checkpoint" / "offsets").glob("*") if path.name.isdigit()]
        done = self.written(self._own)
        tables = [name for name in (*TABLES, LATE) if any((self._into / name).glob("round-*.parquet"))]
        if (tables and not started) or (done and done[-1] > max(started, default=-1)):
            raise StreamError(
                f"{self._into} has tables of a stream, but not all of its checkpoint ({self._own}): "
                "restore it, or begin anew in an empty folder"
            )

    def make(self, names: DataFrame, number: int) -> None:
        """Make the round ``number`` of the files with these ``names``."""
        try:
            self._make([row.path for row in names.select("path").distinct().collect()], number)
            self.made += 1
        except Exception as e:
            if not self.stopping:
                self.failure = _plain(e)
            raise

    def _make(self, names: list[str], number: int) -> None:
        began = time.monotonic()
        done = self.written(self._own)
        before = Position()
        if number:
            if number - 1 not in done:
                raise StreamError(f"{self._own} has no position of round {number - 1}: begin anew in an empty folder")
            before = _position(self._own, number - 1)
        new = list(self._segments(names))
        now = datetime.datetime.now(datetime.UTC)
        work, after = before.following(new, self._delay, now, lambda each: (self._root / each.path).exists())
        for segment in work.copies:
            logger.info("%s: a copy, of events that are counted already", segment.path)
        for segment in work.gone:
            logger.error("%s was taken away before its %d events were counted", segment.path, segment.rows)
        carried = self._own / f"{number - 1:06d}.events"
        known = self._spark.read.parquet(escaped(carried)) if number and carried.exists() else None
        late_rows = self._late(work, before, number)
        if work.span is None:
            for name in TABLES:
                self._file(name, number).unlink(missing_ok=True)
            self._carry(known, number)
        else:
            minutes = Minutes(self._spark, self._root, work.span, work, known)
            try:
                # More than one of them is made of these.
                assert minutes.spells is not None
                with ThreadPoolExecutor(AT_ONCE, "tables") as pool:
                    jobs = [pool.submit(self._table, minutes, name, number) for name in TABLES]
                    jobs.append(pool.submit(self._carried, minutes, number))
                    try:
                        for job in as_completed(jobs):
                            job.result()
                    finally:
                        # If one has failed, those that wait are of no use.
                        pool.shutdown(cancel_futures=True)
            finally:
                minutes.forget()
        _put(self._own / f"{number:06d}.json", json.dumps(after.to_json()))
        for old in done:
            if old < number - 1:
                (self._own / f"{old:06d}.json").unlink(missing_ok=True)
                shutil.rmtree(self._own / f"{old:06d}.events", ignore_errors=True)
        self._log(work, new, after, late_rows, time.monotonic() - began)

    def _segments(self, names: list[str]) -> Iterator[Segment]:
        for name in sorted(names):
            path = pathlib.Path(re.sub("^file:/+", "/", name))
            try:
                segment = Segment.read(self._root, path)
            except ValueError as e:
                logger.error("%s: left out. Under another name a good one is read", e)
                continue
            except FileNotFoundError:
                logger.error("%s was taken away before it was read", path)
                continue
            if segment is not None:
                yield segment

    def _late(self, work: Round, before: Position, number: int) -> int:
        if not work.late or before.final is None:
            self._file(LATE, number).unlink(missing_ok=True)
            return 0
        self._write(late(self._spark, self._root, work, before.segments, _time(before.final)), LATE, number)
        path = self._file(LATE, number)
        return sum(pq.read_table(path, columns=["events"])["events"].to_pylist()) if path.exists() else 0

    def _file(self, name: str, number: int) -> pathlib.Path:
        return self._into / name / f"round-{number:06d}.parquet"

    def _write(self, frame: DataFrame, name: str, number: int) -> None:
        """Replace the file of a table by one with these rows, or by none if there are no rows."""
        target = self._file(name, number)
        parts = self._own / f"{name}.parts"
        keys = [key for key in ("by", "start", "instance", "channel", "route") if key in frame.columns]
        ordered = frame.repartition(1).sortWithinPartitions(*keys)
        ordered.write.mode("overwrite").option("compression", "zstd").parquet(str(parts.absolute()))
        files = [path for path in parts.glob("*.parquet") if pq.read_metadata(path).num_rows]
        if files:
            (part,) = files
            target.parent.mkdir(exist_ok=True)
            _settle(part, target)
        else:
            target.unlink(missing_ok=True)
        shutil.rmtree(parts)

    def _table(self, minutes: Minutes, name: str, number: int) -> None:
        self._write(minutes.final(minutes.tables()[name]()), name, number)

    def _carried(self, minutes: Minutes, number: int) -> None:
        self._carry(minutes.carry(), number)

    def _carry(self, frame: DataFrame | None, number: int) -> None:
        target = self._own / f"{number:06d}.events"
        if frame is not None:
            frame.repartition(1).write.mode("overwrite").parquet(str(target.absolute()))
        else:
            shutil.rmtree(target, ignore_errors=True)

    def _log(self, work: Round, new: list[Segment], after: Position, late_rows: int, seconds: float) -> None:
        events = sum(each.rows for each in new)
        upto = "none yet" if after.final is None else f"before {_time(after.final):%Y-%m-%d %H:%M} UTC"
        logger.info("%d segments, %d events in %.1f s; final minutes: %s", len(new), events, seconds, upto)
        if late_rows:
            logger.warning("%d events came when their minute was final: see the table %s", late_rows, LATE)


def _position(own: pathlib.Path, number: int) -> Position:
    return Position.of_json(json.loads((own / f"{number:06d}.json").read_text()))


def _time(micros: int) -> datetime.datetime:
    """The time of a whole minute."""
    return datetime.datetime.fromtimestamp(micros // 1_000_000, datetime.UTC)


def _put(path: pathlib.Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text)
    _settle(unfinished, path)


def _settle(unfinished: pathlib.Path, path: pathlib.Path) -> None:
    """Give a file its name when it is on the disk."""
    with open(unfinished, "rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)


def _plain(error: Exception) -> str:
    """Text of an error without Java's trace."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Keep a second stream out of the folder."""
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StreamError(
                f"another stream writes into {path.parent.parent}: give each a folder of its own"
            ) from None
        yield


class _Stop(threading.Event):
    """Event whose ``asked`` counts the requests to end."""

    asked = 0


@contextmanager
def _stoppable() -> Iterator[_Stop]:
    """Count SIGTERM and SIGINT instead of dying of them; in a thread that gets none nothing is changed."""
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def asked(number: int, frame: object) -> None:
        stop.asked += 1

    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
