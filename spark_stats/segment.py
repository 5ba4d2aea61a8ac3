"""Segments: the Parquet files that readers see. Each is complete from the moment it has its name.

All segments of one journal are closed together, and their names derive from the journal's: after a crash between the
first segment and the removal of the journal, the next recorder writes the missing ones and leaves the complete ones. So
every event is in exactly one segment.
"""

from __future__ import annotations

import os
import pathlib
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_stats.directory import Directory, sync_folder
from spark_stats.schema import OTHER, SCHEMA

__all__ = ["MAX_TYPES", "Segments"]

ROW_GROUP: Final = 65_536
"""Rows that are encoded together; until then they wait as Arrow tables."""
MAX_TYPES: Final = 32
"""Different types of events in the segments of one journal; further ones go to the partition of other events. Each
open segment costs memory, and types come from outside."""


class _Open:
    """Segment in progress: encoded row groups in memory, and rows that wait to be encoded."""

    __slots__ = ("rows", "sink", "total", "waiting", "writer")

    def __init__(self) -> None:
        self.sink = pa.BufferOutputStream()
        self.writer = pq.ParquetWriter(
            self.sink, SCHEMA, compression="zstd", compression_level=1, write_page_checksum=True
        )
        self.waiting: list[pa.Table] = []
        self.rows = 0
        self.total = 0

    def encode(self) -> None:
        if self.rows:
            rows = pa.concat_tables(self.waiting, promote_options="default")
            # Only here the columns that are all null come in: they would take most of the memory.
            columns = [
                rows[field.name] if field.name in rows.column_names else pa.nulls(len(rows), field.type)
                for field in SCHEMA
            ]
            self.writer.write_table(pa.table(columns, schema=SCHEMA), row_group_size=ROW_GROUP)
            self.waiting = []
            self.rows = 0


class Segments:
    """Segments of one journal.

    Encoded rows stay in memory until :meth:`close`: the journal has them on disk already, and a segment is some ten
    times smaller than its part of the journal, whose size is limited.

    Args:
        directory: folder of the record.
        name: name of the journal, ``<session>-<number>``.
    """

    def __init__(self, directory: Directory, name: str) -> None:
        self._directory = directory
        self._name = name
        self._open: dict[tuple[str, str], _Open] = {}
        self._types: set[str] = set()
        self.found = 0
        """Segments that :meth:`close` found complete and left alone."""

    def add(self, date: str, partition: str, table: pa.Table) -> None:
        """Add rows to a segment.

        Args:
            date: UTC date, ``YYYY-MM-DD``.
            partition: type of the events; beyond MAX_TYPES different ones, the partition of other events is used.
            table: rows, with those columns of :data:`~spark_stats.schema.SCHEMA` that are not all null.
        """
        if partition not in self._types:
            if len(self._types) >= MAX_TYPES:
                partition = OTHER
            else:
                self._types.add(partition)
        segment = self._open.get((date, partition))
        if segment is None:
            segment = self._open[date, partition] = _Open()
        segment.waiting.append(table)
        segment.rows += table.num_rows
        segment.total += table.num_rows
        if segment.rows >= ROW_GROUP:
            segment.encode()

    def close(self) -> list[pathlib.Path]:
        """Write everything, and give each file its name when it is whole and on the disk.

        Returns:
            The new files.

        Raises:
            OSError: a file could not be written. Those that have their name are good, and no other is left behind.
        """
        made = []
        for (date, partition), segment in self._open.items():
            target = self._directory.partition(date, partition) / f"{self._name}.parquet"
            segment.encode()
            segment.writer.close()
            # More: the end of the journal was torn since, by a power failure.
            if (_rows(target) or 0) >= segment.total:
                self.found += 1
            else:
                self._write(target, segment.sink.getvalue())
                made.append(target)
        self._open = {}
        return made

    def _write(self, target: pathlib.Path, data: pa.Buffer) -> None:
        unfinished = self._directory.open / f"{target.parent.parent.name},{target.parent.name},{target.name}"
        try:
            with open(unfinished, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if not target.parent.exists():
                target.parent.mkdir(parents=True)
                sync_folder(self._directory.root)
                sync_folder(target.parent.parent)
            unfinished.rename(target)
            sync_folder(target.parent)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise


def _rows(path: pathlib.Path) -> int | None:
    """Number of rows of a segment, None if there is no readable file."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
