"""The parts of a table become one Parquet file and one CSV file."""

from __future__ import annotations

import datetime
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_stats.reports.files import join, write

SCHEMA = pa.schema([("start", pa.timestamp("us", tz="UTC")), ("channel", pa.string()), ("items", pa.int64())])
NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)


def part(path: pathlib.Path, *rows: tuple[object, ...]) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table([list(column) for column in zip(*rows, strict=True)] or [[], [], []], schema=SCHEMA), path)


def test_parts_are_joined_in_order(tmp_path: pathlib.Path) -> None:
    parts = tmp_path / ".parts"
    part(parts / "part-1.parquet", (NOON, None, 3))
    part(parts / "part-0.parquet", (NOON, "a", 1), (NOON, 'b, "c"\n', 2))
    part(parts / "part-2.parquet")
    assert join(parts, tmp_path / "table") == 3
    assert pq.read_table(tmp_path / "table.parquet")["items"].to_pylist() == [1, 2, 3]
    assert (tmp_path / "table.csv").read_text() == (
        '"start","channel","items"\n'
        '"2026-11-20T12:00:00.000000Z","a",1\n'
        '"2026-11-20T12:00:00.000000Z","b, ""c""\n",2\n'
        '"2026-11-20T12:00:00.000000Z",,3\n'
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.csv", "table.parquet"]


def test_parts_that_are_not_here_are_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="another machine"):
        join(tmp_path, tmp_path / "table")


def test_a_table_in_memory(tmp_path: pathlib.Path) -> None:
    table = pa.table([[NOON, NOON], ["a", None], [1, 2]], schema=SCHEMA)
    assert write(table, tmp_path / "table") == 2
    assert pq.read_table(tmp_path / "table.parquet").equals(table)
    assert (tmp_path / "table.csv").read_text() == (
        '"start","channel","items"\n"2026-11-20T12:00:00.000000Z","a",1\n"2026-11-20T12:00:00.000000Z",,2\n'
    )
    assert write(table.slice(0, 0), tmp_path / "table") == 0
    assert pq.read_table(tmp_path / "table.parquet").num_rows == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.csv", "table.parquet"]
