"""What is said of a record before Spark looks at it."""

from __future__ import annotations

import datetime
import pathlib
import shutil
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_stats.reports.inventory import MOST_DOUBTS, NoData, Seen, inventory, within_record
from spark_stats.reports.span import LOOK_BACK, Span
from spark_stats.schema import SCHEMA
from tests.support.spark_doubles import FakeClock, recording, tnet

AT = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
SPAN = Span(AT, AT + HOUR)
SECOND = datetime.timedelta(seconds=1)


def segment(root: pathlib.Path, kind: str, name: str, rows: list[dict[str, Any]], group: int = 1000) -> pathlib.Path:
    """A segment of the day with rows that are told in part; columns without a value are null."""
    full = [{"session": "a", "received_at": AT, **row} for row in rows]
    path = root / "date=2026-11-20" / f"type={kind}" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(full, SCHEMA), path, row_group_size=group)
    return path


def numbered(first: int, last: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"seq": seq, **fields} for seq in range(first, last + 1)]


def test_what_events_have_in_common(tmp_path: pathlib.Path) -> None:
    segment(tmp_path, "conn", "1", [
        {"seq": 1, "endpoint": "e", "from": "i", "route": "r", "conn_type": "ws"},
        {"seq": 4, "endpoint": "e", "from": "i", "route": "r", "conn_type": "ws", "received_at": AT + SECOND},
        {"seq": 2, "endpoint": "e", "from": "i", "route": "r", "conn_type": "http"},
        {"seq": 3, "endpoint": "e", "from": "i"},
        {"seq": 5, "endpoint": "e"},
    ], group=2)  # fmt: skip
    segment(tmp_path, "conn", "2", [{"seq": 6, "endpoint": "e", "from": "i", "route": "r", "conn_type": "ws"}])
    # What is only looked at in connections is not told of others.
    segment(tmp_path, "activity", "1", numbered(7, 9, endpoint="f", **{"from": "j", "route": "r"}))
    found = inventory(tmp_path, SPAN)
    assert found.rows == 9
    assert sorted(found.seen, key=lambda each: each.seq) == [
        Seen("conn", "a", "e", "i", "r", "http", 2, AT),
        Seen("conn", "a", "e", "i", "", None, 3, AT),
        Seen("conn", "a", "e", None, "", None, 5, AT),
        Seen("conn", "a", "e", "i", "r", "ws", 6, AT + SECOND),
        Seen("activity", "a", "f", "j", None, None, 9, AT),
    ]
    assert found.instances() == [("e", "i"), ("f", "j")]


def test_of_events_before_and_after_nothing_is_told(tmp_path: pathlib.Path) -> None:
    rows = [
        {"seq": 1, "from": "too early", "received_at": AT - LOOK_BACK - SECOND},
        {"seq": 2, "from": "early", "received_at": AT - LOOK_BACK},
        {"seq": 3, "from": "last", "received_at": AT + HOUR - SECOND},
        {"seq": 4, "from": "late", "received_at": AT + HOUR},
    ]
    segment(tmp_path, "sub", "1", rows)
    found = inventory(tmp_path, SPAN)
    assert [each.instance for each in found.seen] == ["early", "last"]
    assert found.rows == 4
    segment(tmp_path, "sub", "2", [{"seq": 5, "from": "timeless", "received_at": None}])
    assert [each.instance for each in inventory(tmp_path, SPAN).seen] == ["early", "last"]


def test_a_range_without_events_is_said_so(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NoData, match=r"has no record: .*gripproxy-stats record"):
        inventory(tmp_path, SPAN)
    segment(tmp_path, "sub", "1", [{"seq": 1, "received_at": AT - SECOND}, {"seq": 2, "received_at": AT + HOUR}])
    # The hour that is read to know what was there does not count.
    with pytest.raises(NoData, match=r"nothing is recorded from 2026-11-20 12.* has the days 2026-11-20 to 2026-11-20"):
        inventory(tmp_path, SPAN)
    with pytest.raises(NoData, match="nothing is recorded from 2026-11-22"):
        inventory(tmp_path, Span(AT + 48 * HOUR, AT + 49 * HOUR))
    assert inventory(tmp_path, Span(AT - HOUR, AT)).rows == 2


def test_what_a_recorder_writes(tmp_path: pathlib.Path) -> None:
    made = recording(tmp_path, FakeClock())
    made.take("tcp://there", [tnet("conn", _from="i", id="1", type="http", route="r")])
    made.end()
    found = inventory(tmp_path, SPAN)
    assert found.instances() == [("tcp://there", "i")]
    assert {each.kind for each in found.seen} == {"conn", "recorder"}
    assert not found.repeated


def test_a_broken_segment_is_named(tmp_path: pathlib.Path) -> None:
    data = segment(tmp_path, "sub", "good", numbered(1, 5000)).read_bytes()
    broken = tmp_path / "date=2026-11-20" / "type=sub" / "zzz.parquet"
    for content in (b"", b"PAR1 no PAR1", data[: len(data) // 2], data[:-1], bytes(len(data))):
        broken.write_bytes(content)
        with pytest.raises(ValueError, match=r"zzz\.parquet is broken.*move it away"):
            inventory(tmp_path, SPAN)
    # Another table, one without what tells segments apart, and one whose times are none.
    for columns in ({"x": [1]}, {"session": ["a"], "seq": [1]}, {"session": ["a"], "seq": [1], "received_at": [True]}):
        pq.write_table(pa.table(columns), broken)
        with pytest.raises(ValueError, match=r"zzz\.parquet is broken.*move it away"):
            inventory(tmp_path, SPAN)


def test_columns_of_a_later_version_may_be_missing(tmp_path: pathlib.Path) -> None:
    path = segment(tmp_path, "conn", "1", [{"seq": 1, "from": "i", "route": "r"}])
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["route", "endpoint"]), path)
    assert inventory(tmp_path, SPAN).seen == [Seen("conn", "a", None, "i", "", None, 1, AT)]


def test_files_that_are_not_finished_and_empty_ones_are_left_out(tmp_path: pathlib.Path) -> None:
    good = segment(tmp_path, "sub", "1", numbered(1, 3))
    segment(tmp_path, "sub", "2", [])
    for name in (".zzz.parquet.unfinished", "_zzz.parquet"):
        good.with_name(name).write_bytes(b"PAR1 half")
    assert inventory(tmp_path, SPAN).rows == 3


def test_copies_and_overlaps(tmp_path: pathlib.Path) -> None:
    first = segment(tmp_path, "sub", "1", numbered(1, 100))
    segment(tmp_path, "sub", "2", numbered(101, 200))
    same = inventory(tmp_path, SPAN)
    assert (same.repeated, same.once, same.doubtful) == (set(), {}, {})
    # The same file again is read once.
    shutil.copy(first, first.with_name("1 copy.parquet"))
    copied = inventory(tmp_path, SPAN)
    assert (copied.repeated, copied.doubtful) == ({"sub"}, {})
    assert [path.name for path in copied.once["sub"]] == ["1 copy.parquet", "2.parquet"]
    # The same numbers in another type or session are other events.
    segment(tmp_path, "conn", "1", numbered(1, 100))
    segment(tmp_path, "conn", "2", numbered(1, 100, session="b"))
    assert inventory(tmp_path, SPAN).repeated == {"sub"}
    # Part of a segment: where both have numbers is doubtful, and not what is far from it.
    segment(tmp_path, "sub", "part", numbered(150, 160))
    doubt = inventory(tmp_path, SPAN).doubtful["sub"]
    assert [(run.session, run.first, run.last, len(run.paths)) for run in doubt] == [("a", 101, 200, 2)]


def test_many_doubts_become_one(tmp_path: pathlib.Path) -> None:
    for place in range(MOST_DOUBTS + 1):
        segment(tmp_path, "sub", f"{place}", numbered(place * 100, place * 100 + 9))
        segment(tmp_path, "sub", f"{place} part", numbered(place * 100 + 2, place * 100 + 3))
        segment(tmp_path, "sub", f"{place} sure", numbered(place * 100 + 50, place * 100 + 51))
    (doubt,) = inventory(tmp_path, SPAN).doubtful["sub"]
    assert (doubt.first, doubt.last) == (0, MOST_DOUBTS * 100 + 9)


class TestWithinTheRecord:
    def test_the_range_is_that_of_the_events(self, tmp_path: pathlib.Path) -> None:
        segment(tmp_path, "conn", "1", [{"seq": 1, "received_at": AT + 10.5 * SECOND}])
        segment(tmp_path, "sub", "1", [{"seq": 2, "received_at": AT + 20 * SECOND}, {"seq": 3}], group=1)
        wide = Span(AT - HOUR, AT + HOUR)
        assert within_record(tmp_path, wide, True, True) == Span(AT, AT + 21 * SECOND)
        assert within_record(tmp_path, wide, False, True) == Span(AT - HOUR, AT + 21 * SECOND)
        assert within_record(tmp_path, wide, True, False) == Span(AT, AT + HOUR)

    def test_a_range_inside_the_record_stays(self, tmp_path: pathlib.Path) -> None:
        segment(tmp_path, "conn", "1", [{"seq": 1}, {"seq": 2, "received_at": AT + HOUR}])
        inside = Span(AT + 60 * SECOND, AT + 90 * SECOND)
        assert within_record(tmp_path, inside, True, True) == inside

    def test_a_range_without_events_stays(self, tmp_path: pathlib.Path) -> None:
        assert within_record(tmp_path, SPAN, True, True) == SPAN
        segment(tmp_path, "conn", "1", [{"seq": 1}])
        before = Span(AT - 2 * HOUR, AT - HOUR)
        assert within_record(tmp_path, before, True, True) == before

    def test_a_file_that_is_no_segment(self, tmp_path: pathlib.Path) -> None:
        segment(tmp_path, "conn", "1", [{"seq": 1}]).write_bytes(b"PAR1 half")
        with pytest.raises(ValueError, match=r"1\.parquet is broken, or no segment .*: move it away"):
            within_record(tmp_path, SPAN, True, True)
