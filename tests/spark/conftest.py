"""What the Spark tests share: a session, a record of made-up traffic, and the report over it."""

from __future__ import annotations

import datetime
import io
import os
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from spark_stats.reports.report import Made, make
from spark_stats.reports.session import session
from spark_stats.reports.span import Span
from tests.spark import traffic
from tests.spark.oracle import Oracle

EVENTS = int(os.environ.get("EVENTS", 1_000_000))
# Not on the edges of minutes, hours or days.
SPAN = Span(
    datetime.datetime(2026, 11, 19, 22, 7, 31, tzinfo=datetime.UTC),
    datetime.datetime(2026, 11, 20, 1, 20, 3, tzinfo=datetime.UTC),
)
AT = datetime.datetime(2026, 11, 20, 0, 30, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Reported:
    """A report: the record it is about, where its tables are, what was made, and what it showed meanwhile."""

    record: pathlib.Path
    into: pathlib.Path
    made: Made
    shown: str


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("tests", "local[2]", settings={"spark.sql.shuffle.partitions": "4"}) as made:
        yield made


@pytest.fixture(scope="session")
def record(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("record")
    assert traffic.make(root, EVENTS).events > EVENTS
    return root


@pytest.fixture(scope="session")
def reported(spark: SparkSession, record: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    into = tmp_path_factory.mktemp("report")
    out = io.StringIO()
    made = make(spark, record, into, SPAN, AT, out)
    return Reported(record, into, made, out.getvalue())


@pytest.fixture(scope="session")
def oracle(record: pathlib.Path) -> Oracle:
    return Oracle(record, SPAN.since, SPAN.until)
