"""Segments: whole or not there, and each only once."""

from __future__ import annotations

import os
import pathlib
import resource
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_stats import segment
from spark_stats.batch import Batch
from spark_stats.journal import Frame
from spark_stats.schema import SCHEMA
from spark_stats.segment import MAX_TYPES, Segments
from tests.support.spark_doubles import NOON, json, opened, rows, tnet


def table(*numbers: int, event: str = "activity") -> pa.Table:
    batch = Batch("s", lambda *_: None)
    batch.add(Frame("", NOON, 0, numbers[0], [tnet(event, count=number) for number in numbers]))
    return batch.tables()[0][1]


def files(root: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name != "lock")


def test_a_segment_per_date_and_type(tmp_path: pathlib.Path) -> None:
    segments = Segments(opened(tmp_path), "s-000001")
    segments.add("2026-11-20", "activity", table(1, 2))
    segments.add("2026-11-21", "activity", table(3))
    segments.add("2026-11-20", "conn", table(4))
    segments.add("2026-11-20", "activity", table(5))
    assert files(tmp_path) == []
    made = segments.close()
    assert files(tmp_path) == sorted(str(path.relative_to(tmp_path)) for path in made)
    assert files(tmp_path) == [
        "date=2026-11-20/type=activity/s-000001.parquet",
        "date=2026-11-20/type=conn/s-000001.parquet",
        "date=2026-11-21/type=activity/s-000001.parquet",
    ]
    assert [row["count"] for row in rows(tmp_path, "activity")] == [1, 2, 3, 5]
    assert all(pq.read_schema(path).equals(SCHEMA) for path in made)
    assert segments.close() == []


def test_many_rows_become_several_row_groups(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "ROW_GROUP", 100)
    segments = Segments(opened(tmp_path), "s-000001")
    for begin in range(0, 200, 50):
        segments.add("2026-11-20", "activity", table(*range(begin, begin + 50)))
    segments.add("2026-11-20", "activity", table(200))
    (path,) = segments.close()
    assert pq.read_metadata(path).num_row_groups == 3
    assert [row["seq"] for row in rows(tmp_path)] == list(range(201))


def test_segments_that_are_there_are_left_alone(tmp_path: pathlib.Path) -> None:
    directory = opened(tmp_path)
    first = Segments(directory, "s-000001")
    first.add("2026-11-20", "activity", table(1, 2))
    (path,) = first.close()
    before = path.stat()
    # The recorder died here, before it closed the second segment; the next one begins again.
    second = Segments(directory, "s-000001")
    second.add("2026-11-20", "activity", table(1, 2))
    second.add("2026-11-20", "conn", table(3))
    assert [made.parent.name for made in second.close()] == ["type=conn"]
    assert second.found == 1
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [row["count"] for row in rows(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("left", [0, 10, -1])
def test_a_segment_that_is_not_whole_is_written_again(tmp_path: pathlib.Path, left: int) -> None:
    directory = opened(tmp_path)
    first = Segments(directory, "s-000001")
    first.add("2026-11-20", "activity", table(1, 2))
    (path,) = first.close()
    path.write_bytes(path.read_bytes()[:left])
    second = Segments(directory, "s-000001")
    second.add("2026-11-20", "activity", table(1, 2))
    assert second.close() == [path]
    assert [row["count"] for row in rows(tmp_path)] == [1, 2]


def test_of_a_torn_journal_nothing_is_taken_back(tmp_path: pathlib.Path) -> None:
    """A power failure may cost the end of a journal whose segments are on the disk already."""
    directory = opened(tmp_path)
    first = Segments(directory, "s-000001")
    first.add("2026-11-20", "activity", table(1, 2, 3))
    first.close()
    torn = Segments(directory, "s-000001")
    torn.add("2026-11-20", "activity", table(1, 2))
    assert torn.close() == []
    assert torn.found == 1
    assert [row["count"] for row in rows(tmp_path)] == [1, 2, 3]
    # Fewer than there should be are no segment of this journal as it is.
    whole = Segments(directory, "s-000001")
    whole.add("2026-11-20", "activity", table(1, 2, 3, 4))
    assert len(whole.close()) == 1
    assert [row["count"] for row in rows(tmp_path)] == [1, 2, 3, 4]


def test_a_segment_gets_its_name_when_it_is_on_the_disk(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = Segments(opened(tmp_path), "s-000001")
    segments.add("2026-11-20", "activity", table(1, 2))
    target = tmp_path / "date=2026-11-20" / "type=activity" / "s-000001.parquet"
    synced: list[tuple[pathlib.Path, bool]] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append((pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}")), target.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    segments.close()
    # The file first, then the folders that are new, then the name.
    unfinished = tmp_path / "_recorder" / "open" / "date=2026-11-20,type=activity,s-000001.parquet"
    assert synced == [(unfinished, False), (tmp_path, False), (target.parent.parent, False), (target.parent, True)]


def test_the_number_of_types_is_bounded(tmp_path: pathlib.Path) -> None:
    segments = Segments(opened(tmp_path), "s-000001")
    for number in range(MAX_TYPES + 5):
        segments.add("2026-11-20", f"t{number}", table(number, event=f"t{number}"))
    assert len(segments.close()) == MAX_TYPES + 1
    assert [row["event"] for row in rows(tmp_path, "other")] == [f"t{MAX_TYPES + i}" for i in range(5)]


@pytest.fixture
def small_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_a_full_disk_leaves_no_broken_segment(tmp_path: pathlib.Path) -> None:
    batch = Batch("s", lambda *_: None)
    batch.add(Frame("", NOON, 0, 0, [json("conn", id=f"{number * 7919:x}") for number in range(10_000)]))
    segments = Segments(opened(tmp_path), "s-000001")
    segments.add("2026-11-20", "activity", table(1, 2))
    segments.add("2026-11-20", "conn", batch.tables()[0][1])
    with pytest.raises(OSError, match="File too large"):
        segments.close()
    assert files(tmp_path) == ["date=2026-11-20/type=activity/s-000001.parquet"]
    assert [row["count"] for row in rows(tmp_path)] == [1, 2]
