"""The history of a run: who did or saw what, and when, in the order in which it was noted.

Clients, publishers, backends and the injector of faults all write records of the same form. Those of other processes
come as files of JSON lines, which survive the SIGKILL of their writers; times are of the machine's monotonic clock,
so that they compare between processes.
"""

from __future__ import annotations

import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

__all__ = ["KINDS", "Diary", "History", "Record", "read_diary"]

KINDS: Final[dict[str, tuple[str, ...]]] = {
    # clients: a connection is one session, counted from 1; ``after`` is the number of the last item the client has
    "opened": ("connection", "channel", "after"),
    "got": ("connection", "channel", "number", "id"),
    "misled": ("connection", "text"),
    "ended": ("connection", "why"),
    "paused": ("connection",),
    "reading": ("connection",),
    # publishers
    "wrote": ("channel", "number"),
    "published": ("channel", "number", "how"),
    # backends: which session asked, empty for the proxy itself; ``after`` as above, ``upto`` what the answer contains
    "asked": ("client", "channel", "form", "after", "recovery"),
    "answered": ("client", "channel", "upto"),
    "refused": ("client", "why"),
    # the run itself
    "fault": ("kind", "target"),
    "healed": ("kind", "target"),
    "process": ("name", "pid"),
    "memory": ("name", "kb"),
    "phase": ("name",),
    "behind": ("client", "channel", "number"),
}
"""What a record can be about, and the names of its values."""


class Record(NamedTuple):
    """One thing that happened: ``at`` in seconds of the monotonic clock, ``values`` as KINDS names them."""

    at: float
    who: str
    what: str
    values: tuple[Any, ...]

    def line(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps({"at": round(self.at, 6), "who": self.who, "what": self.what} | self.named())

    def named(self) -> dict[str, Any]:
        """Return the values by name."""
        return dict(zip(KINDS[self.what], self.values, strict=True))


class History:
    """All records of a run, oldest first within each writer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: list[Record] = []

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def add(self, who: str, what: str, *values: Any) -> Record:
        """Note that something happened now. Raises ValueError for a kind or a number of values that is not known."""
        if len(values) != len(KINDS.get(what, (None,) * (len(values) + 1))):
            raise ValueError(f"{what!r} with {len(values)} values is no kind of record")
        record = Record(self._clock(), who, what, values)
        self._records.append(record)
        return record

    def select(self, *kinds: str) -> Iterator[Record]:
        """Return the records of these kinds."""
        return (record for record in self._records if record.what in kinds)

    def merge(self, records: Iterable[Record]) -> None:
        """Take in the records of another process, and put all into the order of their times."""
        self._records += records
        self._records.sort(key=lambda record: record.at)

    def write(self, path: pathlib.Path) -> None:
        """Write everything as JSON lines."""
        with path.open("w") as file:
            for record in self._records:
                file.write(record.line() + "\n")


class Diary:
    """The records of one process among several, written to a file at once: what was noted survives any death."""

    def __init__(self, path: pathlib.Path, who: str) -> None:
        self._who = who
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, what: str, *values: Any) -> None:
        """Note that something happened now."""
        record = Record(time.monotonic(), self._who, what, values)
        os.write(self._file, record.line().encode() + b"\n")

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)


def read_diary(path: pathlib.Path) -> list[Record]:
    """Return the records of a diary; none if nobody has begun it. A line cut by a death is left out."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text().splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        values = tuple(fields[name] for name in KINDS[fields["what"]])
        records.append(Record(fields["at"], fields["who"], fields["what"], values))
    return records
