"""The parts of a table become one Parquet file and one CSV file."""

from __future__ import annotations

import csv
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


FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1",
    "\uff0b1",
    "\uff0d1",
    "\uff201",
    "'quoted",
]
HARMLESS = ["a=1", "", " ", "1", "news", "a\n=1", "\u2212", "\U0001f600"]


def test_a_cell_that_would_be_a_formula_begins_with_an_apostrophe(tmp_path: pathlib.Path) -> None:
    texts = [*FORMULAS, *HARMLESS, None]
    table = pa.table([[NOON] * len(texts), texts, range(-1, len(texts) - 1)], schema=SCHEMA)
    write(table, tmp_path / "table")
    with open(tmp_path / "table.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    cells = [row["channel"] for row in rows]
    assert cells == [*("'" + text for text in FORMULAS), *HARMLESS, ""]
    # Without the apostrophe in front it is what it was, and a number stays one, with its sign.
    assert [cell.removeprefix("'") for cell in cells] == [text or "" for text in texts]
    assert [row["items"] for row in rows][:3] == ["-1", "0", "1"]
    assert pq.read_table(tmp_path / "table.parquet").equals(table)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_text_of_any_size_is_looked_at(tmp_path: pathlib.Path, kind: pa.DataType) -> None:
    write(pa.table([pa.array(["=1", None, "b"], kind)], names=["channel"]), tmp_path / "table")
    assert (tmp_path / "table.csv").read_text() == '"channel"\n"\'=1"\n\n"b"\n'


def test_parts_are_made_harmless_too(tmp_path: pathlib.Path) -> None:
    part(tmp_path / ".parts" / "part-0.parquet", (NOON, "=cmd|' /C calc'!A0", 1))
    join(tmp_path / ".parts", tmp_path / "table")
    assert (tmp_path / "table.csv").read_text().endswith(""","'=cmd|' /C calc'!A0",1\n""")
