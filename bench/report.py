"""How long the report takes, and how that grows, next to DuckDB on the same files.

    python bench/report.py                              # 1 and 10 million events, as many cores as there are
    python bench/report.py --events 1000000 --cores 1
    python bench/report.py --unprepared                 # without what `python -m spark_stats prepare` makes

The record is made up by tests/spark/traffic.py: six hours, in segments of five minutes as the recorder makes them by
default. The report has all its tables and the page. DuckDB makes one of them, deliveries, into Parquet, and so does
Spark alone; the two must be equal. Times are of the clock and of the processors (all processes together), which says
more on a busy machine. Java's classes are prepared first, where they are not yet, and that is not counted.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import io
import multiprocessing
import os
import pathlib
import resource
import sys
import tempfile
import time
from dataclasses import dataclass

import duckdb

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from spark_stats.__main__ import main as spark_stats  # noqa: E402
from spark_stats.reports import deliveries, page  # noqa: E402
from spark_stats.reports.events import Events  # noqa: E402
from spark_stats.reports.inventory import inventory  # noqa: E402
from spark_stats.reports.report import MEMORY, SETTINGS, make  # noqa: E402
from spark_stats.reports.session import session  # noqa: E402
from spark_stats.reports.span import Span  # noqa: E402
from tests.spark import traffic  # noqa: E402

COLUMNS = (
    'per, start, "by", instance, channel, transport, items, deliveries, blocks, fanout_median, fanout_p95, fanout_max'
)
QUERY = """
    WITH cut AS (SELECT DISTINCT session, seq, received_at, "from" AS instance, channel, transport, blocks, "count",
                        power(10, greatest(length(CAST("count" AS VARCHAR)) - 3, 0))::BIGINT AS place
                 FROM read_parquet('{root}/date=*/type=message/*.parquet', hive_partitioning = true)
                 WHERE received_at >= '{since}' AND received_at < '{until}'),
         timed AS (SELECT *, "count" - "count" % place AS fanout, date_trunc(per, received_at) AS start
                   FROM cut, (SELECT unnest(['minute', 'hour', 'day']) AS per))
    SELECT per, start,
           CASE grouping(instance, channel, transport)
               WHEN 7 THEN 'all' WHEN 3 THEN 'instance' WHEN 6 THEN 'transport' WHEN 5 THEN 'channel'
               ELSE 'instance+transport' END AS "by",
           instance, channel, transport, count(*) AS items, sum("count")::BIGINT AS deliveries,
           sum(blocks)::BIGINT AS blocks, quantile_disc(fanout, 0.5) AS fanout_median,
           quantile_disc(fanout, 0.95) AS fanout_p95, max("count") AS fanout_max
    FROM timed
    GROUP BY GROUPING SETS ((per, start), (per, start, instance), (per, start, transport), (per, start, channel),
                            (per, start, instance, transport))
"""


def processors() -> float:
    """Seconds of processor time of this process and all below it so far."""
    parents, seconds = {}, {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        fields = text[text.rindex(")") + 2 :].split()
        parents[int(path.parent.name)] = int(fields[1])
        # Its own, and that of children it has waited for.
        seconds[int(path.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total = 0.0
    for process, took in seconds.items():
        above = process
        while above not in {0, os.getpid()}:
            above = parents.get(above, 0)
        total += took if above else 0.0
    return total


def java_memory() -> float:
    """The most memory that Java, a child of this process, has had so far, in MB."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if fields["Name"].strip() == "java" and int(fields["PPid"]) == os.getpid():
            return int(fields["VmHWM"].split()[0]) / 1024
    return 0.0


class Watch:
    """Time since it was made, by the clock and by the processors."""

    def __init__(self) -> None:
        self._began, self._spent = time.monotonic(), processors()

    def read(self) -> Took:
        return Took(time.monotonic() - self._began, processors() - self._spent)


@dataclass(frozen=True)
class Took:
    """Seconds by the clock, and of processors."""

    seconds: float
    spent: float

    def of(self, events: int) -> str:
        return f"{self.seconds:.1f} s, {self.spent:.1f} s of processors, {events / self.seconds:,.0f} events/s"


def run(events: int, cores: int, memory: str) -> Took:
    """One report, in this process; prints what it took."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        root, into = pathlib.Path(folder, "record"), pathlib.Path(folder, "report")
        began = time.monotonic()
        # In a process of its own, whose memory does not count.
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            made = pool.submit(traffic.make, root, events, hours=6, channels=2000, segment=300).result()
        files = list(root.glob("date=*/type=*/*"))
        size = sum(path.stat().st_size for path in files) / 1e6
        took = time.monotonic() - began
        print(f"{made.events:,} events in {len(files)} segments of {size:.0f} MB, made in {took:.0f} s")
        span = Span(made.since.replace(microsecond=0), made.until.replace(microsecond=0))
        ours, theirs = pathlib.Path(folder, "spark"), pathlib.Path(folder, "duckdb.parquet")

        watch = Watch()
        # As the command does it: the record is looked through while Spark starts.
        looking = concurrent.futures.ThreadPoolExecutor(1).submit(inventory, root, span)
        with session("bench", f"local[{cores}]", memory, SETTINGS) as spark:
            found = looking.result()
            started = watch.read()
            out = io.StringIO()
            page.write(into, make(spark, found, into, out=out))
            whole = watch.read()
            print(f"report: {whole.of(made.events)}; {started.seconds:.1f} s of it to start Spark")
            print("".join(f"    {line}\n" for line in out.getvalue().splitlines()), end="")
            own, java = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, java_memory()
            print(f"memory at most: {java:.0f} MB Java, {own:.0f} MB Python, {java + own:.0f} MB together")

            watch = Watch()
            alone = Events(spark, found)
            deliveries.course(deliveries.items(alone)).write.parquet(str(ours))
            one = watch.read()
        with duckdb.connect() as db:
            db.execute(f"SET threads = {cores}; SET TimeZone = 'UTC'")
            watch = Watch()
            db.execute(f"COPY ({QUERY.format(root=root, since=span.since, until=span.until)}) TO '{theirs}'")
            other = watch.read()
            of_all = f"SELECT sum(items) FROM '{theirs}' WHERE \"by\" = 'all' AND per = 'day'"
            (items,) = db.execute(of_all).fetchall()[0]
            print(f"deliveries alone, Spark:  {one.of(int(items))}\ndeliveries alone, DuckDB: {other.of(int(items))}")
            found, missing, total = (
                db.execute(f"SELECT count(*) FROM ({query})").fetchall()[0][0]
                for query in (
                    f"SELECT {COLUMNS} FROM '{ours}/*.parquet' EXCEPT ALL SELECT {COLUMNS} FROM '{theirs}'",
                    f"SELECT {COLUMNS} FROM '{theirs}' EXCEPT ALL SELECT {COLUMNS} FROM '{ours}/*.parquet'",
                    f"SELECT 1 FROM '{theirs}'",
                )
            )
        if found or missing:
            raise SystemExit(f"they differ: {found} rows are only Spark's, {missing} only DuckDB's")
        print(
            f"their {total:,} rows are equal; Spark takes {one.spent / other.spent:.1f} times DuckDB's processor time\n"
        )
        return whole


def main() -> int:
    """Run for each size; the exit status is 1 if the time grew faster than the number of events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 10_000_000], help="sizes, in order")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="threads of Spark and DuckDB")
    parser.add_argument("--memory", default=MEMORY, help="Java heap")
    parser.add_argument("--unprepared", action="store_true", help="Java without its prepared classes")
    given = parser.parse_args()
    took = []
    with tempfile.TemporaryDirectory(prefix="bench-") as none:
        if given.unprepared:
            os.environ["XDG_CACHE_HOME"] = none
            print("Java's classes are not prepared")
        elif spark_stats(["prepare"]):
            return 1
        for events in given.events:
            # Each in a process of its own, with a memory and a Java of its own.
            with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                took.append(pool.submit(run, events, given.cores, given.memory).result())
    if len(took) == 1:
        return 0
    more = given.events[-1] / given.events[0]
    growth, spent = took[-1].seconds / took[0].seconds, took[-1].spent / took[0].spent
    print(f"{more:.0f} times the events take {growth:.1f} times as long, and {spent:.1f} times the processor time")
    return 0 if spent <= more else 1


if __name__ == "__main__":
    raise SystemExit(main())
