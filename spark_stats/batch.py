"""Batches of events, turned from messages into Arrow tables, one per type.

Events of a type look alike, so that columns can be made with one pass each over the decoded messages. Values that
do not fit (of an unknown field, of another type than the column's) cost more and are kept, as JSON, in the column
``extra``. No message that decodes as an event is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from spark_stats.event import Malformed, name, parse, plain
from spark_stats.journal import Frame
from spark_stats.schema import (
    BIGINT,
    BOOLEAN,
    FIELDS,
    MAX_FIGURE,
    MOST,
    OWN,
    SCHEMA,
    STRING,
    USUAL,
    Column,
    partition,
)

__all__ = ["Batch"]

_JSON_OPTIONS: Final = orjson.OPT_SORT_KEYS

_EVERY: Final = tuple(FIELDS)


class _Alike:
    """Decoded events of one type and format."""

    __slots__ = ("event", "frames", "json", "partition", "rows", "seqs")

    def __init__(self, event: str, partition: str, json: bool) -> None:
        self.event = event
        self.partition = partition
        self.json = json
        self.rows: list[dict[Any, Any]] = []
        self.seqs: list[int] = []
        self.frames: list[Frame] = []


class Batch:
    """Events of one session on the way to a table.

    Args:
        session: the session's name.
        refused: called with the reason, the frame, the sequence number and the message for each malformed message.
        seen: called with the type, the fields, True for JSON, and the frame, for each event of a stats socket; None
            to skip.
    """

    def __init__(
        self,
        session: str,
        refused: Callable[[str, Frame, int, bytes], None],
        seen: Callable[[bytes, dict[Any, Any], bool, Frame], None] | None = None,
    ) -> None:
        self._session = session
        self._refused = refused
        self._seen = seen
        self._alike: dict[tuple[bytes, bool, bool], _Alike] = {}
        self.repaired = 0
        """Values so far that did not fit their column and went into ``extra``, or were not UTF-8."""

    def add(self, frame: Frame) -> None:
        """Decode the messages of ``frame``."""
        seq = frame.seq
        own = frame.own
        seen = None if own else self._seen
        alike = self._alike
        for message in frame.messages:
            try:
                event, fields, json = parse(message)
            except Malformed as e:
                self._refused(str(e), frame, seq, message)
            else:
                group = alike.get((event, json, own))
                if group is None:
                    text = event.decode("ascii")
                    group = _Alike(text, OWN if own else partition(text), json)
                    alike[event, json, own] = group
                group.rows.append(fields)
                group.seqs.append(seq)
                group.frames.append(frame)
                if seen is not None:
                    seen(event, fields, json, frame)
            seq += 1

    def tables(self) -> list[tuple[str, pa.Table]]:
        """Return the events added since the last call: pairs of a partition and a table, in order of appearance.

        A table has those columns of the schema that its events may have, in any order.
        """
        made = [(group.partition, self._table(group)) for group in self._alike.values()]
        self._alike = {}
        return made

    def _table(self, group: _Alike) -> pa.Table:
        rows, json = group.rows, group.json
        fields = USUAL.get(group.event, _EVERY)
        extras: dict[int, dict[str, Any]] = {}
        known = frozenset(fields if json else [field.encode() for field in fields])
        strange = [i for i, row in enumerate(rows) if not known.issuperset(row)]
        if strange and fields is not _EVERY:
            fields = _EVERY
            known = frozenset(fields if json else [field.encode() for field in fields])
        for i in strange:
            row = rows[i]
            if unknown := row.keys() - known:
                extras[i] = {name(key): plain(row[key]) for key in unknown}
        arrays: dict[str, pa.Array] = {
            "session": pa.repeat(self._session, len(rows)),
            "seq": pa.array(group.seqs, pa.int64()),
            "received_at": pa.array([frame.received for frame in group.frames], pa.int64()).cast(
                SCHEMA.field("received_at").type
            ),
            "elapsed": pa.array([frame.elapsed for frame in group.frames], pa.int64()),
            "endpoint": pa.array([frame.endpoint for frame in group.frames], pa.string()),
            "event": pa.repeat(group.event, len(rows)),
        }
        for field in fields:
            key = field if json else field.encode()
            values = [row.get(key) for row in rows]
            arrays[FIELDS[field].name] = self._column(FIELDS[field], values, json, extras)
        if extras:
            texts = [orjson.dumps(extras[i], option=_JSON_OPTIONS) if i in extras else None for i in range(len(rows))]
            arrays["extra"] = pa.array(texts, pa.string())
        return pa.table(arrays)

    def _column(self, column: Column, values: list[Any], json: bool, extras: dict[int, dict[str, Any]]) -> pa.Array:
        kind = SCHEMA.field(column.name).type
        right = _RIGHT[column.kind, json]
        if not right.issuperset(map(type, values)):
            for i, value in enumerate(values):
                if type(value) not in right:
                    extras.setdefault(i, {})[str(column.field)] = plain(value)
                    values[i] = None
                    self.repaired += 1
        most = MOST.get(str(column.field), MAX_FIGURE)
        try:
            made = pa.array(values, kind)
            if column.kind != BIGINT or _within(made, most):
                return made
        # Not UTF-8, half of a surrogate pair, or a number beyond 64 bits; nothing else is left that could fail.
        except (pa.ArrowInvalid, UnicodeEncodeError, OverflowError):
            pass
        for i, value in enumerate(values):
            if value is None:
                continue
            if column.kind == BIGINT:
                if not 0 <= value <= most:
                    extras.setdefault(i, {})[str(column.field)] = plain(value)
                    values[i] = None
                    self.repaired += 1
            elif column.kind == STRING:
                text = plain(value).encode("utf-8", "backslashreplace").decode()
                self.repaired += text.encode() != value if type(value) is bytes else text != value
                values[i] = text
        return pa.array(values, kind)


def _within(numbers: pa.Array, most: int) -> bool:
    """Return True if all numbers are from 0 to ``most``."""
    ends = pc.min_max(numbers)
    least = ends["min"].as_py()
    return least is None or (least >= 0 and ends["max"].as_py() <= most)


_RIGHT: Final = {
    (STRING, True): frozenset([str, type(None)]),
    (STRING, False): frozenset([bytes, type(None)]),
    (BIGINT, True): frozenset([int, type(None)]),
    (BIGINT, False): frozenset([int, type(None)]),
    (BOOLEAN, True): frozenset([bool, type(None)]),
    (BOOLEAN, False): frozenset([bool, type(None)]),
}
"""Types of decoded values that a column takes unchanged, by kind of the column and True for JSON."""
