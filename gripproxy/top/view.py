"""View: the table shown, its order, filter and position. Keys change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gripproxy.live.snapshot import Snapshot

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
"""Orders of each table, the default first; a table without any is not sorted."""

TABLES: Final = tuple(SORTS)


class View:
    """State of the live view.

    Args:
        sort: order of the channels, one of SORTS.
        filter: text that channel names must contain.
    """

    def __init__(self, sort: str = "deliveries", filter: str = "") -> None:
        self.table = TABLES[0]
        self.sorts = {table: next(iter(sorts), "") for table, sorts in SORTS.items()}
        self.sorts["channels"] = sort
        self.filters = dict.fromkeys(TABLES, "")
        self.filters["channels"] = filter
        self.editing = False
        """True while the filter is being edited: characters are added to it."""
        self.paused = False
        self.help = False
        self.over = False
        """True once the view has to end."""
        self.first = 0
        """Row at the top."""
        self._page = 1
        self._before = ""

    @property
    def filter(self) -> str:
        """Text that names in the table must contain; empty for all."""
        return self.filters[self.table]

    @filter.setter
    def filter(self, text: str) -> None:
        self.filters[self.table] = text

    @property
    def sort(self) -> str:
        """Order of the table; empty for a table that is not sorted."""
        return self.sorts[self.table]

    def rows(self, snapshot: Snapshot, table: str = "") -> list[Row]:
        """Return the rows of a table that match its filter, in order.

        Args:
            snapshot: the figures.
            table: name of the table; empty for the one shown.
        """
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
        """Return the range of rows that is shown, and scroll into it.

        Args:
            count: number of rows.
            page: number of rows that fit.
        """
        self._page = max(1, page)
        self.first = max(0, min(self.first, count - self._page))
        return range(self.first, min(count, self.first + self._page))

    def end(self) -> None:
        """End the view."""
        self.over = True

    def press(self, key: str) -> None:
        """Apply a key.

        Args:
            key: its name, as in gripproxy.top.keys.
        """
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
        elif key in ("tab", "right", "backtab", "left"):
            step = 1 if key in ("tab", "right") else -1
            self._show(TABLES[(TABLES.index(self.table) + step) % len(TABLES)])
        elif key in _NUMBERS:
            self._show(TABLES[int(key) - 1])
        else:
            self._command(key)

    def _command(self, key: str) -> None:
        """Apply a key that is neither text nor a move."""
        if key == "q":
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

    def _show(self, table: str) -> None:
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
