"""Columns of the record: one schema for the events of every type, as Arrow and as Spark DDL.

A column that an event has no field for is null. The record is partitioned by two more columns, which stand in the
names of the folders and not in the files: ``date`` (of ``received_at``, UTC) and ``type`` (of the event, see
:func:`partition`). The fields are those of docs/grip.md §9, with ``_`` for ``-``; the ``type`` of a connection is
called ``conn_type``, because ``type`` is the partition's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

__all__ = [
    "BIGINT",
    "BOOLEAN",
    "COLUMNS",
    "FIELDS",
    "MAX_FIGURE",
    "MOST",
    "OTHER",
    "OWN",
    "PARTITION_DDL",
    "SCHEMA",
    "STRING",
    "TIMESTAMP",
    "USUAL",
    "Column",
    "ddl",
    "partition",
]

STRING: Final = "string"
BIGINT: Final = "bigint"
BOOLEAN: Final = "boolean"
TIMESTAMP: Final = "timestamp"

_ARROW: Final = {
    STRING: pa.string(),
    BIGINT: pa.int64(),
    BOOLEAN: pa.bool_(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class Column:
    """Column: its ``name`` and its ``kind``, one of Spark's type names above.

    ``field`` is the field of the event it is filled from, None for values of the recorder.
    """

    name: str
    kind: str
    field: str | None


def _fields(kind: str, *names: str) -> list[Column]:
    return [Column("conn_type" if name == "type" else name.replace("-", "_"), kind, name) for name in names]


REPORT: Final = (
    "connections",
    "minutes",
    "received",
    "sent",
    "http-response-sent",
    "blocks-received",
    "blocks-sent",
    "duration",
    *[
        f"{side}-{what}-{way}"
        for side in ("client", "server")
        for what in ("header-bytes", "content-bytes", "messages")
        for way in ("received", "sent")
    ],
)
"""Figures of a ``report`` (docs/grip.md §9)."""

COLUMNS: Final = (
    Column("session", STRING, None),
    Column("seq", BIGINT, None),
    Column("received_at", TIMESTAMP, None),
    Column("elapsed", BIGINT, None),
    Column("endpoint", STRING, None),
    Column("event", STRING, None),
    *_fields(STRING, "from", "route", "id", "type", "mode", "transport", "channel", "item-id", "peer-address"),
    *_fields(BOOLEAN, "ssl", "unavailable"),
    *_fields(BIGINT, "ttl", "subscribers", "count", "blocks", "requests-received", "events-sent", *REPORT),
    *_fields(STRING, "action"),
    Column("extra", STRING, None),
)
"""All columns, in the order in which they stand in the files."""

SCHEMA: Final = pa.schema([(column.name, _ARROW[column.kind]) for column in COLUMNS])
"""The schema of every segment."""

FIELDS: Final = {column.field: column for column in COLUMNS if column.field is not None}
"""Column by field of an event."""

USUAL: Final[dict[str, tuple[str, ...]]] = {
    "conn": ("from", "route", "id", "type", "peer-address", "ssl", "ttl", "unavailable"),
    "sub": ("from", "mode", "channel", "ttl", "subscribers", "unavailable"),
    "message": ("from", "channel", "item-id", "transport", "count", "blocks"),
    "activity": ("from", "route", "count"),
    "counts": ("from", "requests-received"),
}
"""The fields that the frequent types of events have; only these are looked for, unless an event has another one."""

PARTITION_DDL: Final = "`date` DATE, `type` STRING"
"""The columns of the folders' names, as Spark DDL."""

OWN: Final = "recorder"
"""The type of the recorder's own events: starts, stops, connections, gaps."""
OTHER: Final = "other"
"""The partition of events whose type cannot name a folder, or is one of too many; ``event`` has the type as sent."""

MAX_FIGURE: Final = 1 << 40
"""Largest number that the column of a field has: no instance counts as much between two reports, and sums of millions
of them stay below 64 bits. A larger or negative one makes no sense and is kept in ``extra``."""
MOST: Final = {"ttl": 1 << 31, "subscribers": 1 << 22}
"""Largest number by field where it is less: 68 years, so that times stay in the range of dates; subscribers, which
reports multiply with the µs of a day for an average."""

_FIT: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")


def partition(event: str) -> str:
    """Return the partition for ``event``, an event type named by a sender."""
    return event if event != OWN and _FIT.fullmatch(event) else OTHER


def ddl() -> str:
    """Return the schema of the files as Spark DDL, for ``spark.read.schema``; append :data:`PARTITION_DDL`."""
    return ", ".join(f"`{column.name}` {column.kind.upper()}" for column in COLUMNS)
