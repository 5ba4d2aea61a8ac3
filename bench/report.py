"""How long the report takes, and how that grows, next to DuckDB on the same files.

    python bench/report.py                              # 1 and 10 million events, as many cores as there are
    python bench/report.py --events 1000000 --cores 1

The record is made up by tests/spark/traffic.py: six hours, in segments of five minutes as the recorder makes them by
default. DuckDB answers one query, without writing anything: items, deliveries and the quantiles of the fan-out, per
minute, hour and day. The report answers it too, as one of its tables, and for comparison alone.
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

import duckdb

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from spark_stats.reports import deliveries, page  # noqa: E402
from spark_stats.reports.events import Events  # noqa: E402
from spark_stats.reports.report import make  # noqa: E402
from spark_stats.reports.session import session  # noqa: E402
from spark_stats.reports.span import Span  # noqa: E402
from tests.spark import traffic  # noqa: E402

QUERY = """
    SELECT per, date_trunc(per, received_at) AS start, "from", transport, channel, count(*), sum("count"), sum(blocks),
           quantile_disc("count", 0.5), quantile_disc("count", 0.95), max("count")
    FROM read_parquet('{root}/date=*/type=message/*.parquet', hive_partitioning = true),
         (SELECT unnest(['minute', 'hour', 'day']) AS per)
    GROUP BY GROUPING SETS ((per, start), (per, start, "from"), (per, start, transport), (per, start, channel),
                            (per, start, "from", transport))
"""


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


def run(events: int, cores: int, memory: str) -> float:
    """One report; prints what it took, and returns the seconds."""
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

        began = time.monotonic()
        with session("bench", f"local[{cores}]", memory) as spark:
            started = time.monotonic() - began
            out = io.StringIO()
            page.write(into, make(spark, root, into, span, out=out))
            seconds = time.monotonic() - began
            print(
                f"report: {seconds:.1f} s, {made.events / seconds:,.0f} events/s, {started:.1f} s of it to start Spark"
            )
            print("".join(f"    {line}\n" for line in out.getvalue().splitlines()), end="")
            own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"memory at most: {java_memory():.0f} MB Java, {own:.0f} MB Python")

            began = time.monotonic()
            alone = Events(spark, root, span)
            rows = deliveries.course(deliveries.minutes(alone)).count()
            took = time.monotonic() - began
            print(f"deliveries alone, Spark: {took:.2f} s, {rows:,} rows")
        began = time.monotonic()
        with duckdb.connect() as db:
            db.execute(f"SET threads = {cores}")
            rows = len(db.execute(QUERY.format(root=root)).fetchall())
        print(f"deliveries alone, DuckDB: {time.monotonic() - began:.2f} s, {rows:,} rows, read into memory\n")
        return seconds


def main() -> int:
    """Run for each size; the exit status is 1 if the time grew faster than the number of events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 10_000_000], help="sizes, in order")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="threads of Spark and DuckDB")
    parser.add_argument("--memory", default="1g", help="Java heap")
    given = parser.parse_args()
    took = [run(events, given.cores, given.memory) for events in given.events]
    growth = took[-1] / took[0]
    if len(took) > 1:
        print(f"{given.events[-1] / given.events[0]:.0f} times the events take {growth:.1f} times as long")
    return 0 if growth <= given.events[-1] / given.events[0] else 1


if __name__ == "__main__":
    raise SystemExit(main())
