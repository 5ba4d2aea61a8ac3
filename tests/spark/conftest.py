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

from spark_stats.reports.inventory import inventory
from spark_stats.reports.report import Made, make
from spark_stats.reports.session import session
from spark_stats.reports.span import Span
from spark_stats.reports.stream import SETTINGS
from tests.spark import traffic
from tests.spark.oracle import Oracle

EVENTS = int(os.environ.get("EVENTS", 1_000_000))
# For every Spark that a test starts: they are many and short-lived, and should not spend their time on compiling, nor
# Java on checking what Spark's compiler made.
os.environ["SPARK_CONF_DIR"] = str(pathlib.Path(__file__).with_name("conf"))
os.environ["JDK_JAVA_OPTIONS"] = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
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


@dataclass(frozen=True)
class Small:
    """A small record, what is in it, and the report over all of it."""

    record: pathlib.Path
    traffic: traffic.Traffic
    into: pathlib.Path

    @property
    def span(self) -> Span:
        """An hour before there was anything, too: the first reports are about that."""
        return Span(self.traffic.since - datetime.timedelta(hours=1), self.traffic.until)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    few = {**SETTINGS, "spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}
    with session("tests", "local[2]", settings=few) as made:
        yield made


@pytest.fixture(scope="session")
def record(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("record")
    assert traffic.make(root, EVENTS).events > EVENTS
    return root


@pytest.fixture(scope="session")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Small:
    root, into = tmp_path_factory.mktemp("small"), tmp_path_factory.mktemp("small report")
    made = Small(root, traffic.make(root, 4000, hours=1.5, channels=20, segment=300), into)
    make(spark, inventory(root, made.span), into, out=io.StringIO())
    return made


@pytest.fixture(scope="session")
def reported(spark: SparkSession, record: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    into = tmp_path_factory.mktemp("report")
    out = io.StringIO()
    # A million events are worth compiling for.
    compiling = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in compiling}
    for name, value in compiling.items():
        spark.conf.set(name, value)
    try:
        made = make(spark, inventory(record, SPAN), into, AT, out)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    return Reported(record, into, made, out.getvalue())


@pytest.fixture(scope="session")
def oracle(record: pathlib.Path) -> Oracle:
    return Oracle(record, SPAN.since, SPAN.until)
