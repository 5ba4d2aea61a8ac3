"""Tables as lists of rows, and whether two are the same."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Row = tuple[Any, ...]


def rows(files: Iterable[pathlib.Path], columns: Sequence[str]) -> list[Row]:
    """The rows of all files with these columns; times are µs since 1970."""
    made: list[Row] = []
    for file in files:
        with pq.ParquetFile(file) as opened:
            read = opened.read(list(columns)).select(list(columns))
        lists = [
            column.cast(pa.timestamp("us", "UTC")).cast("int64").to_pylist()
            if pa.types.is_timestamp(column.type)
            else column.to_pylist()
            for column in read.columns
        ]
        made += zip(*lists, strict=True)
    return made


def keyed(rows: list[Row]) -> dict[Row, list[float]]:
    """Rows by all that is no fraction; fractions are calculated in different orders, and so differ a little."""
    found = {
        tuple(x for x in row if not isinstance(x, float)): [x for x in row if isinstance(x, float)] for row in rows
    }
    assert len(found) == len(rows), "rows are there twice"
    return found


def same(reported: list[Row], calculated: list[Row]) -> None:
    """The same rows, in any order. The message shows some that differ."""
    ours, theirs = keyed(reported), keyed(calculated)
    assert ours
    wrong, missing = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
    assert not wrong | missing, (
        f"{len(wrong)} of {len(ours)} reported rows are wrong: {sorted(map(str, wrong))[:5]} "
        f"calculated: {sorted(map(str, missing))[:5]}"
    )
    for key, fractions in ours.items():
        assert fractions == pytest.approx(theirs[key], rel=1e-9, abs=1e-9), key
