"""Survey of a record: its segments, and those among them that reports must not count.

A recorder never writes an event twice, but files are copied, restored and cut off. Every event has a sequence number in
its session, and the segments of a session and partition share none: two that do are duplicates.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_stats.directory import Directory
from spark_stats.schema import SCHEMA

__all__ = ["Survey", "survey"]


@dataclass(slots=True)
class Survey:
    """Findings about a record.

    Attributes:
        segments: number of good segments.
        events: number of events in them.
        duplicates: paths of segments whose events another one has, the first of each group excepted.
        unreadable: paths of files that are no segments, or broken ones.
        journals: paths of journals that no recorder has turned into segments yet.
    """

    segments: int = 0
    events: int = 0
    duplicates: list[pathlib.Path] = field(default_factory=list)
    unreadable: list[pathlib.Path] = field(default_factory=list)
    journals: list[pathlib.Path] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """True if every segment counts."""
        return not self.duplicates and not self.unreadable


def survey(directory: Directory) -> Survey:
    """Read every segment.

    Args:
        directory: folder of the record; it need not be locked.

    Returns:
        The findings.

    Raises:
        OSError: a folder or file cannot be read.
    """
    found = Survey()
    if directory.journals.exists():
        found.journals = sorted(directory.journals.glob("*.journal"))
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for path in sorted(directory.root.glob("date=*/type=*/*")):
        if path.name.startswith(("_", ".")):
            continue
        try:
            span = _span(path)
        except (pa.ArrowInvalid, OSError) as e:
            if getattr(e, "errno", None) is not None:
                raise
            found.unreadable.append(path)
            continue
        if span is None:
            continue
        session, first, last, rows = span
        taken = spans.setdefault((session, path.parent.name), [])
        if any(first <= other_last and other_first <= last for other_first, other_last in taken):
            found.duplicates.append(path)
            continue
        taken.append((first, last))
        found.segments += 1
        found.events += rows
    return found


def _span(path: pathlib.Path) -> tuple[str, int, int, int] | None:
    """Session, first and last sequence number, number of rows; None for a file without rows.

    All of the file is read: each page has a checksum.

    Raises:
        pyarrow.ArrowInvalid: not a whole Parquet file, or without the columns of a record.
        OSError: the file cannot be read, or (without ``errno``) is damaged inside.
    """
    table = pq.read_table(path, schema=SCHEMA, partitioning=None, page_checksum_verification=True)
    if not table.num_rows:
        return None
    sessions, numbers = table["session"].unique(), pc.min_max(table["seq"])
    if len(sessions) != 1 or sessions.null_count or table["seq"].null_count:
        raise pa.ArrowInvalid("not of one session")
    return sessions[0].as_py(), numbers["min"].as_py(), numbers["max"].as_py(), table.num_rows
