"""What is looked at: which table, in which order, which part of it. Keys change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gripproxy.top.snapshot import Snapshot

__all__ = ["SORTS", "TABLES", "View"]

Row = Any
"""A row of any of a snapshot's tables, or a pair of name and figures."""

Sorts = Mapping[str, Callable[[Row], Any]]

_OLD: Final = float("inf")


def _high(value: float | None) -> float:
    return -(value or 0.0)


SORTS: Final[Mapping[str, Sorts]] = {
    "channels": {
        "deliveries": lambda row: (-row.deliveries.rate, -row.deliveries.total, -row.subscribers, row.name),
        "items": lambda row: (-row.items.rate, -row.items.total, -row.deliveries.rate, row.name),
        "subscribers": lambda row: (-row.subscribers, -row.deliveries.rate, row.name),
        "total": lambda row: (-row.deliveries.total, -row.subscribers, row.name),
        "last": lambda row: (_OLD if row.age is None else row.age, row.name),
        "name": lambda row: row.name,
    },
    "routes": {
        "connections": lambda row: (-row.connections, _high(row.peak), row.name),
        "activity": lambda row: (-row.activity.rate, -row.activity.total, row.name),
        "deliveries": lambda row: (_high(row.sent), row.name),
        "bytes": lambda row: (_high(row.to_clients), row.name),
        "name": lambda row: row.name,
    },
    "instances": {
        "name": lambda row: row.name,
        "connections": lambda row: (-row.connections, row.name),
        "deliveries": lambda row: (-row.deliveries.rate, row.name),
        "events": lambda row: (-row.events.rate, row.name),
        "last": lambda row: (row.age, row.name),
    },
    "drops": {},
    "events": {},
}
"""Orders of each table, the usual one first. The tables without have one order only."""

TABLES: Final = tuple(SORTS)


class View:
    """State of the live view. ``sort``: order of the channels; ``filter``: a text that their names must contain."""

    def __init__(self, sort: str = "deliveries", filter: str = "") -> None:
        self.table = TABLES[0]
        self.sorts = {table: next(iter(sorts), "") for table, sorts in SORTS.items()}
        self.sorts["channels"] = sort
        self.filters = dict.fromkeys(TABLES, "")
        self.filters["channels"] = filter
        self.editing = False
        """Characters go to the filter."""
        self.paused = False
        self.help = False
        self.over = False
        """To be ended."""
        self.first = 0
        """Row at the top."""
        self._page = 1
        self._before = ""

    @property
    def filter(self) -> str:
        """Text that names must contain; empty: all."""
        return self.filters[self.table]

    @filter.setter
    def filter(self, text: str) -> None:
        self.filters[self.table] = text

    @property
    def sort(self) -> str:
        """Order of the table; empty if it has one only."""
        return self.sorts[self.table]

    def rows(self, snapshot: Snapshot, table: str = "") -> list[Row]:
        """Return the rows of a table (of the one looked at) that the filter lets through, in order."""
        table = table or self.table
        found: Sequence[Row]
        if table == "drops":
            found = [(name, *figures) for name, figures in sorted(snapshot.outcomes.items())]
            names = [row[0] for row in found]
        elif table == "events":
            found = snapshot.events
            names = [f"{row.kind} {row.text} {row.instance}" for row in found]
        else:
            found = getattr(snapshot, table)
            names = [row.name for row in found]
        wanted = self.filters[table].casefold()
        if wanted:
            rows = [row for row, name in zip(found, names, strict=True) if wanted in name.casefold()]
        else:
            rows = list(found)
        sort = SORTS[table].get(self.sorts[table])
        return sorted(rows, key=sort) if sort else rows

    def window(self, count: int, page: int) -> range:
        """Return which of ``count`` rows are seen where ``page`` have room."""
        self._page = max(1, page)
        self.first = max(0, min(self.first, count - self._page))
        return range(self.first, min(count, self.first + self._page))

    def press(self, key: str) -> None:
        """Obey a key, named as in gripproxy.top.keys."""
        if key == "quit":
            self.over = True
        elif self.editing:
            self._edit(key)
        elif self.help:
            self.help = False
            self.over = key == "q"
        elif key in _MOVES:
            pages, rows = _MOVES[key]
            self.first = max(0, self.first + pages * self._page + rows)
        elif key == "q":
            self.over = True
        elif key in ("?", "h"):
            self.help = True
        elif key in ("p", " "):
            self.paused = not self.paused
        elif key == "/":
            self.editing, self._before = True, self.filter
        elif key == "escape":
            self.filter, self.first = "", 0
        elif key in ("s", "S"):
            self._next_sort(1 if key == "s" else -1)
        elif key in ("tab", "right", "backtab", "left"):
            step = 1 if key in ("tab", "right") else -1
            self._look_at(TABLES[(TABLES.index(self.table) + step) % len(TABLES)])
        elif key in _NUMBERS:
            self._look_at(TABLES[int(key) - 1])

    def _look_at(self, table: str) -> None:
        self.table, self.first = table, 0

    def _next_sort(self, step: int) -> None:
        sorts = list(SORTS[self.table])
        if sorts:
            self.sorts[self.table] = sorts[(sorts.index(self.sort) + step) % len(sorts)]
            self.first = 0

    def _edit(self, key: str) -> None:
        if key == "enter":
            self.editing = False
        elif key == "escape":
            self.editing, self.filter = False, self._before
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif key == "clear":
            self.filter = ""
        elif len(key) == 1 and len(self.filter) < MAX_FILTER:
            self.filter += key
        self.first = 0


MAX_FILTER: Final = 60
"""Characters of a filter."""

_NUMBERS: Final = [str(number) for number in range(1, len(TABLES) + 1)]

_MOVES: Final = {
    "down": (0, 1),
    "j": (0, 1),
    "up": (0, -1),
    "k": (0, -1),
    "page down": (1, 0),
    "page up": (-1, 0),
    "home": (0, -1_000_000_000),
    "g": (0, -1_000_000_000),
    "end": (0, 1_000_000_000),
    "G": (0, 1_000_000_000),
}
"""Keys that scroll: by pages, and by rows."""
