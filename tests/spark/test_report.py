"""The command and the job around the tables: what is said when there is nothing to report, or not all is right."""

from __future__ import annotations

import datetime
import io
import pathlib
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_stats.__main__ import main
from spark_stats.reports import gaps, stream
from spark_stats.reports.events import Events
from spark_stats.reports.gaps import Gap, Gaps
from spark_stats.reports.intervals import Interval
from spark_stats.reports.inventory import inventory
from spark_stats.reports.report import make
from spark_stats.reports.span import Span
from spark_stats.schema import MAX_FIGURE, MOST
from tests.spark import traffic
from tests.spark.conftest import SPAN
from tests.support.spark_doubles import NOON, FakeClock, json, recording


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("small")
    traffic.make(root, 2000)
    return root


def test_temporary_files_are_left_out(spark: SparkSession, small: pathlib.Path) -> None:
    before = Events(spark, inventory(small, SPAN))
    good = next(small.glob("date=*/type=sub/*"))
    temporary = [good.with_name(name) for name in (".zzz.parquet.unfinished", "_zzz.parquet")]
    try:
        for path in temporary:
            path.write_bytes(b"PAR1 half")
        after = Events(spark, inventory(small, SPAN))
        assert after.found.rows == before.found.rows
        assert after.of("sub").count() == before.of("sub").count()
    finally:
        for path in temporary:
            path.unlink()


def strange(root: pathlib.Path) -> Span:
    """Make a record of what nobody should send, a plain item in each round, and a clock that jumps; return its span."""
    clock = FakeClock()
    made = recording(root, clock)
    for days in (0, 40, -80):
        absurd = (1 << 63) - 1
        for most, ttl, subscribers in (
            (absurd, absurd, absurd),
            (MAX_FIGURE, MOST["ttl"], MOST["subscribers"]),
            (-7, -7, -7),
        ):
            made.take(
                "tcp://there",
                [
                    json("conn", from_="a", id="x", ttl=ttl, type="strange"),
                    json("conn", from_="a", id="", ttl=0, route="\0<b>\n"),
                    json("conn", from_="a"),
                    json("conn", id="of nobody", ttl=ttl),
                    json("conn", from_=7, id=8, ttl="60"),
                    json("conn", from_="a", id="never there", unavailable=True),
                    json("sub", from_="a", mode="stream", channel="c", ttl=ttl, subscribers=subscribers),
                    json("sub", from_="a", mode="strange", channel="", ttl=60, subscribers=subscribers),
                    json("sub", from_="a", mode="ws"),
                    json("message", from_="a", channel="d", transport="http-stream", count=most, blocks=most),
                    json("message", from_="a", transport="strange"),
                    json("activity", from_="a", count=most),
                    json("counts", from_="a", requests_received=most),
                    json("report", from_="a", duration=most, connections=most, sent=most, events_sent=most),
                    json("report", from_="a", route="r", duration=10_000, connections=1),
                    json("delivery", from_="a", written=most, news=most, nested={"a": [1]}),
                    json("recovery", from_="a", transport="ws", gaps=most, recoveries="many"),
                    json("push", from_="a", channel="p/s", ack=most, backlog="many", oldest=-1),
                    json("push", from_="a", ack=1),
                    json("unknown", from_="a", count=most),
                    json("../..", from_="a"),
                    json("recorder", from_="a", action="start"),
                    b"nonsense",
                ],
            )
            clock.forward(10)
        made.take("tcp://there", [json("message", from_="a", channel="c", transport="http-stream", count=3)])
        clock.forward(30)
        clock.jump(days * 86400)
        made.tick()
    made.end()
    # Not a recorder's: that would not have kept the time to live.
    path = next(root.glob("date=2026-11-20/type=conn/*"))
    table = pq.ParquetFile(path).read()
    for name, value in (("ttl", 1 << 40), ("session", "from elsewhere")):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), pa.array([value] * len(table)))
    pq.write_table(table, path.with_name("from elsewhere-000001.parquet"))
    noon = datetime.datetime.fromtimestamp(NOON / 1e6, datetime.UTC)
    return Span(noon - datetime.timedelta(hours=1), noon + datetime.timedelta(hours=1))


def test_strange_events_stop_neither_report_nor_stream(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    span = strange(tmp_path / "record")
    make(spark, inventory(tmp_path / "record", span), tmp_path / "report", span.since, out=io.StringIO())
    stream.run(spark, tmp_path / "record", tmp_path / "minutes", 1, once=True)
    for path in (tmp_path / "report" / "deliveries.parquet", *(tmp_path / "minutes" / "deliveries").glob("*.parquet")):
        rows = [row for row in pq.read_table(path).to_pylist() if row["by"] == "channel" and row["channel"] == "c"]
        plain = [row for row in rows if row["start"].minute == 0 and row.get("per") in (None, "minute")]
        # The first two rounds, before and behind the jump, are not of one day.
        assert [(row["items"], row["deliveries"]) for row in plain if row["start"].day == 20] == [(1, 3)], path


def test_less_than_a_second_at_the_edges_of_a_range_is_no_gap() -> None:
    """A record that is the whole range is complete: its range is on whole seconds, its recorder is not."""
    since = datetime.datetime(2026, 11, 20, 12, 0, tzinfo=datetime.UTC)
    span = Span(since, since + datetime.timedelta(seconds=25))

    def gap(reason: str, first: float, last: float) -> Gap:
        times = (since + datetime.timedelta(seconds=seconds) for seconds in (first, last))
        return Gap(reason, None if reason == "no recorder" else "tcp://x:1", None, Interval(*times))

    edges = [gap("no recorder", -3600, 0.9), gap("disconnected", 0.9, 0.95), gap("no recorder", 24.5, 3600)]
    known = Gaps([*edges, gap("disconnected", 0.5, 1.5)], [("tcp://x:1", "i")], ["tcp://x:1"])
    [row] = gaps.table(known, span).to_pylist()
    assert (row["reason"], row["began_at"]) == ("disconnected", since + datetime.timedelta(seconds=0.5))
    [minute] = [
        row for row in gaps.coverage(known, span).to_pylist() if (row["per"], row["instance"]) == ("minute", "i")
    ]
    assert minute["unrecorded"] == pytest.approx(1.5)  # with the recorder's absence before, it is one interval


def test_a_second_without_a_recorder_is_a_gap() -> None:
    since = datetime.datetime(2026, 11, 20, 12, 0, tzinfo=datetime.UTC)
    hour, second = datetime.timedelta(hours=1), datetime.timedelta(seconds=1)
    known = Gaps([Gap("no recorder", None, None, Interval(since - hour, since + hour))])
    [row] = gaps.table(known, Span(since, since + second)).to_pylist()
    assert row["ended_at"] - row["began_at"] == second


def test_copied_segments_are_noticed(spark: SparkSession, small: pathlib.Path) -> None:
    events = Events(spark, inventory(small, SPAN))
    assert events.found.repeated == {"conn", "message", "report"}


def test_events_of_copies_and_of_parts_of_segments_are_there_once(
    spark: SparkSession, small: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    root = tmp_path / "record"
    shutil.copytree(small, root)
    once = Events(spark, inventory(small, SPAN))
    numbers = sorted(row.seq for row in once.of("sub").select("seq").collect())
    assert len(numbers) == len(set(numbers)) > 0
    first, second, *_ = sorted(root.glob("date=*/type=sub/*"))
    shutil.copy(first, first.with_name("copy.parquet"))
    # As many events, from the same number to the same number, and not the same ones in between.
    table = pq.ParquetFile(second).read()
    places = [0, *range(1, len(table) // 2), *range(len(table) // 2, len(table) - 1), len(table) - 1]
    places[1] = places[2]
    pq.write_table(table.take(places), second.with_name("other.parquet"))
    pq.write_table(table.slice(3, 5), second.with_name("part.parquet"))
    again = Events(spark, inventory(root, SPAN))
    assert "sub" in again.found.repeated
    assert sorted(row.seq for row in again.of("sub").select("seq").collect()) == numbers


def test_a_folder_whose_name_looks_like_a_pattern(
    spark: SparkSession, small: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    odd = tmp_path / "a[1]{b,c}*?"
    shutil.copytree(small, odd)
    # What the pattern would find: less.
    shutil.copytree(small, tmp_path / "a1bcd", ignore=lambda folder, _: ["type=sub", "type=conn"])
    found = {}
    for root in (small, odd):
        events = Events(spark, inventory(root, SPAN))
        # Some of the segments of connections are there twice.
        found[root] = [events.of(kind).count() for kind in ("conn", "sub")]
    assert found[odd] == found[small]
    assert all(found[odd])
    # The folder of the report too: one table is made of another one there.
    into = tmp_path / "into [x]"
    make(spark, inventory(odd, SPAN), into, out=io.StringIO())
    assert pq.read_metadata(into / "channels.parquet").num_rows > 0


def test_wrong_arguments(small: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    into = ["--into", str(tmp_path)]
    for arguments, text in (
        (["report", str(small), *into, "--since", "1h", "--until", "2h"], "before it has begun"),
        (["report", str(small), *into, "--at", "2d"], "is not in the range"),
        (["report", str(tmp_path / "nowhere"), *into], "is no folder"),
    ):
        assert main(arguments) == 2
        assert text in capsys.readouterr().err
