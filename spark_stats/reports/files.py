"""Tables as one Parquet file and one CSV file each.

Spark writes a table in parts, from all its workers in parallel; the parts are joined here, a few thousand rows at a
time.
"""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

__all__ = ["join", "write"]

ROWS: Final = 65_536
"""Rows in memory at a time."""

_FORMULA: Final = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20']"
"""Beginnings of text that a spreadsheet would take for a formula (OWASP, CSV Injection), full-width signs too.

Clients and publishers choose names, which must not run on the machine where a table is opened. Text that begins with
the apostrophe itself is among them, so that the one in front can be removed again without ambiguity.
"""


def join(parts: pathlib.Path, target: pathlib.Path) -> int:
    """Join parts to ``<target>.parquet`` and ``<target>.csv``, and remove the parts.

    In the CSV times are ISO 8601, UTC, and text that a spreadsheet would take for a formula begins with an apostrophe.
    Neither file has its name before it is whole.

    Args:
        parts: folder of Parquet files, joined in the order of their names.
        target: path of both files without the suffix.

    Returns:
        Number of rows.

    Raises:
        FileNotFoundError: the folder has no Parquet file.
    """
    files = sorted(parts.glob("*.parquet"))
    if not files:
        raise FileNotFoundError(f"{parts} has no Parquet files: Spark wrote them elsewhere, on another machine?")
    rows = _write(_batches(files), pq.read_schema(files[0]), target)
    shutil.rmtree(parts)
    return rows


def write(table: pa.Table, target: pathlib.Path) -> int:
    """Write ``<target>.parquet`` and ``<target>.csv`` from a table in memory.

    Args:
        table: the rows.
        target: path of both files without the suffix.

    Returns:
        Number of rows.
    """
    return _write(table.to_batches(ROWS), table.schema, target)


def _write(batches: Iterable[pa.RecordBatch], schema: pa.Schema, target: pathlib.Path) -> int:
    parquet, text = target.with_suffix(".parquet"), target.with_suffix(".csv")
    rows = 0
    unfinished = [path.with_name(f".{path.name}.unfinished") for path in (parquet, text)]
    with (
        pq.ParquetWriter(unfinished[0], schema, compression="zstd") as tables,
        pyarrow.csv.CSVWriter(unfinished[1], _texts(schema)) as lines,
    ):
        for batch in batches:
            rows += batch.num_rows
            tables.write_batch(batch)
            lines.write_batch(_text(batch))
    for made, path in zip(unfinished, (parquet, text), strict=True):
        made.replace(path)
    return rows


def _batches(files: Iterable[pathlib.Path]) -> Iterable[pa.RecordBatch]:
    for file in files:
        with pq.ParquetFile(file) as opened:
            yield from opened.iter_batches(ROWS)


def _texts(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [(field.name, pa.string() if pa.types.is_timestamp(field.type) else field.type) for field in schema]
    )


def _text(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        _shown(column)
        if pa.types.is_timestamp(column.type)
        else _harmless(column)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in batch.columns
    ]
    return pa.record_batch(columns, schema=_texts(batch.schema))


def _shown(times: pa.Array) -> pa.Array:
    # Each different time once: most stand in many rows, and this costs more than all else about the CSV.
    different = times.dictionary_encode()
    return pc.strftime(different.dictionary, "%Y-%m-%dT%H:%M:%SZ").take(different.indices)


def _harmless(texts: pa.Array) -> pa.Array:
    """Return texts with an apostrophe before those that would be formulas; numbers are in columns of their own type."""
    kind = texts.type
    formulas = pc.match_substring_regex(texts, _FORMULA)
    if not pc.any(formulas).as_py():
        return texts
    return pc.if_else(formulas, pc.binary_join_element_wise(pa.scalar("'", kind), texts, pa.scalar("", kind)), texts)
