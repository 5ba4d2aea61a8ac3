"""One table of the report beside DuckDB on the same files: the same rows, and not many times as long."""

from __future__ import annotations

import pathlib
import time

import duckdb
from pyspark.sql import SparkSession

from spark_stats.reports import deliveries
from spark_stats.reports.events import Events
from spark_stats.reports.inventory import inventory
from tests.spark.conftest import SPAN

MOST = 40.0
"""Times DuckDB's time that Spark may take: on a quiet machine it is 3 for 10 million events, and more for fewer.
The bound is for a plan that is wrong by an order of magnitude, not for noise."""
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


def test_deliveries_beside_duckdb(spark: SparkSession, record: pathlib.Path, tmp_path: pathlib.Path) -> None:
    ours, theirs = tmp_path / "spark", tmp_path / "duckdb.parquet"
    events = Events(spark, inventory(record, SPAN))
    took = 0.0
    # The second time counts: the first one compiles.
    for name in ("first", "second"):
        began = time.monotonic()
        deliveries.course(deliveries.items(events)).write.parquet(str(ours / name))
        took = time.monotonic() - began
    with duckdb.connect() as db:
        db.execute("SET threads = 2; SET TimeZone = 'UTC'")
        began = time.monotonic()
        db.execute(f"COPY ({QUERY.format(root=record, since=SPAN.since, until=SPAN.until)}) TO '{theirs}'")
        other = time.monotonic() - began
        only = [
            db.execute(f"SELECT count(*) FROM ({one} EXCEPT ALL {another})").fetchall()[0][0]
            for one, another in (
                (
                    f"SELECT {COLUMNS} FROM '{ours}/second/*.parquet'",
                    f"SELECT {COLUMNS} FROM '{theirs}'",
                ),
                (
                    f"SELECT {COLUMNS} FROM '{theirs}'",
                    f"SELECT {COLUMNS} FROM '{ours}/second/*.parquet'",
                ),
            )
        ]
    assert only == [0, 0], "rows that only Spark has, and rows that only DuckDB has"
    assert took < MOST * other, f"Spark took {took:.1f} s, DuckDB {other:.1f} s"
