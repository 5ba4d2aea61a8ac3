"""What a round of the stream is about: which minutes become final, which segments are read, which are copies."""

from __future__ import annotations

import datetime
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_stats.reports.position import MEMORY, Position, Round, Segment
from spark_stats.schema import SCHEMA

BEGIN = datetime.datetime(2026, 11, 20, 12, 0, 30, tzinfo=datetime.UTC)
LATER = BEGIN + datetime.timedelta(days=30)
MICROS = int(BEGIN.timestamp()) * 1_000_000
DELAY = 600.0


def segment(number: int, kind: str = "conn", *, seq: int | None = None, rows: int = 10, name: str = "") -> Segment:
    """The one of the five minutes with this number, with a hundred numbers of the session for itself."""
    first = number * 100 if seq is None else seq
    since = MICROS + number * 300_000_000
    path = f"date=2026-11-20/type={kind}/{name}{number:06d}.parquet"
    return Segment(path, kind, "s", first, first + 99, rows, since, since + 299_000_000)


def go(position: Position, *new: Segment, now: datetime.datetime = LATER) -> tuple[Round, Position]:
    return position.following(new, DELAY, now)


def minute(hour: int, number: int) -> datetime.datetime:
    return datetime.datetime(2026, 11, 20, hour, number, tzinfo=datetime.UTC)


def test_minutes_become_final_when_an_event_is_younger_by_the_delay() -> None:
    work, position = go(Position(), *map(segment, range(4)))
    assert work.span is not None
    # The hour before: reports are about what was before them.
    assert (work.span.since, work.span.until) == (minute(11, 0), minute(12, 10))
    work, position = go(position, segment(4))
    assert work.span is not None
    assert (work.span.since, work.span.until) == (minute(12, 10), minute(12, 15))
    # Those with later events than were final are read once more.
    assert work.segments == [segment(1), segment(2), segment(3), segment(4)]
    assert not work.late
    work, position = go(position, segment(4, "sub"))
    assert work.span is None
    assert position.final == MICROS + 870_000_000


def test_while_nothing_is_final_all_is_kept() -> None:
    first = Position()
    work, position = first.following([segment(0)], 7200, LATER)
    assert work.span is None
    assert position.final is None
    work, position = position.following([segment(40)], 7200, LATER)
    assert work.span is not None
    assert (work.span.since, work.span.until) == (minute(11, 0), minute(13, 25))
    assert work.segments == [segment(0), segment(40)]


def test_what_comes_later_than_that_is_late() -> None:
    _, position = go(Position(), *map(segment, range(1, 9)))
    work, after = go(position, segment(0), segment(9))
    assert work.late == [segment(0)]
    assert segment(0) not in work.segments
    assert after.final is not None
    assert position.final is not None
    assert after.final > position.final
    # A report may be about a minute before it.
    work, _ = go(position, segment(9, "report"))
    assert work.late == [segment(9, "report")]
    assert segment(9, "report") in work.segments


def test_copies_are_left_out_now_and_later() -> None:
    work, position = go(Position(), segment(0), segment(0, name="restored "), segment(1))
    assert work.copies == [segment(0, name="restored ")]
    assert work.segments == [segment(0), segment(1)]
    work, position = go(position, *map(segment, range(2, 20)))
    work, position = go(position, segment(19, "sub"))
    assert segment(0) not in work.segments
    work, position = go(position, segment(0, name="again "), segment(19, name="again "))
    assert len(work.copies) == 2
    assert not work.late
    assert segment(19) in work.segments


def test_a_copy_takes_the_place_of_one_that_was_moved_away() -> None:
    _, position = go(Position(), segment(0), segment(1))
    moved = segment(1, name="moved ")
    work, position = position.following([moved], DELAY, LATER, lambda each: each != segment(1))
    assert not work.copies
    assert not work.gone
    assert work.segments == [segment(0), moved]


def test_one_that_is_gone_is_named() -> None:
    _, position = go(Position(), segment(0), segment(1))
    work, position = position.following([segment(2)], DELAY, LATER, lambda each: each != segment(1))
    assert work.gone == [segment(1)]
    work, position = position.following([segment(3)], DELAY, LATER, lambda each: each != segment(1))
    assert not work.gone


def test_segments_that_overlap_are_compared_event_by_event() -> None:
    work, position = go(Position(), segment(0), segment(1), segment(1, "sub", seq=50))
    assert not work.repeated
    work, position = go(position, segment(1, seq=150, rows=3, name="part of "))
    assert work.repeated == {"conn"}


def test_a_clock_that_jumped_makes_nothing_final() -> None:
    work, position = go(Position(), segment(0), segment(100_000), now=BEGIN + datetime.timedelta(seconds=660))
    assert work.span is not None
    assert work.span.until == minute(12, 1)
    assert segment(100_000) in position.segments
    # Nor does one that jumped back.
    work, after = go(position, segment(-50))
    assert after.final == position.final
    assert work.late == [segment(-50)]


def test_those_that_are_final_are_forgotten_after_a_while() -> None:
    _, position = go(Position(), segment(0), segment(1))
    _, position = go(position, segment(MEMORY // 300_000_000 + 1))
    assert segment(0) not in position.segments
    assert segment(1) in position.segments


def test_it_is_written_down_whole() -> None:
    _, position = go(Position(), segment(0), segment(9))
    assert Position.of_json(position.to_json()) == position
    assert Position.of_json(Position().to_json()) == Position()


def test_the_end_of_a_segment_says_what_is_in_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "date=2026-11-20" / "type=conn" / "a b.parquet"
    path.parent.mkdir(parents=True)
    times = [BEGIN, BEGIN - datetime.timedelta(microseconds=1), BEGIN + datetime.timedelta(seconds=1)]
    rows = {"session": ["s"] * 3, "seq": [5, 7, 6], "received_at": times}
    full = [pa.array(rows.get(field.name, [None] * 3), field.type) for field in SCHEMA]
    pq.write_table(pa.table(full, schema=SCHEMA), path, row_group_size=2)
    below = "date=2026-11-20/type=conn/a b.parquet"
    assert Segment.read(tmp_path, path) == Segment(below, "conn", "s", 5, 7, 3, MICROS - 1, MICROS + 1_000_000)
    pq.write_table(pa.table(full, schema=SCHEMA).slice(0, 0), path)
    assert Segment.read(tmp_path, path) is None
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"a b\.parquet is broken"):
        Segment.read(tmp_path, path)
    pq.write_table(pa.table({"seq": [1]}), path)
    with pytest.raises(ValueError, match="is broken, or no segment"):
        Segment.read(tmp_path, path)
    pq.write_table(pa.table({**rows, "session": ["s", "t", "s"]}), path)
    with pytest.raises(ValueError, match="of one session"):
        Segment.read(tmp_path, path)
