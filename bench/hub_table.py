"""Tables of the hub's figures: rows of a part as Markdown, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.hub_disk import Disk
from bench.table import figure

__all__ = ["Part", "Row"]


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        name: first cell.
        figures: by column; a column without one stays empty.
        note: remark in the last column.
        failed: whether the figures are missing because something failed.
    """

    name: str
    figures: dict[str, float] = field(default_factory=dict)
    note: str = ""
    failed: bool = False


@dataclass
class Part:
    """One table.

    Attributes:
        key: name on the command line.
        title: heading.
        columns: names of the figures, with units.
        disk: figures of the disk right before.
        rows: lines, in the order in which they were measured.
    """

    key: str
    title: str
    columns: Sequence[str]
    disk: Disk
    rows: list[Row] = field(default_factory=list)

    def markdown(self) -> str:
        """Return heading, disk and table."""
        heads = ["", *self.columns, ""]
        lines = [f"### {self.title}", "", self.disk.line(), ""]
        lines += [f"| {' | '.join(heads)} |", f"|---|{'--:|' * len(self.columns)}---|"]
        for row in self.rows:
            cells = [figure(row.figures[name]) if name in row.figures else "" for name in self.columns]
            lines.append(f"| {' | '.join([row.name, *cells, row.note])} |")
        return "\n".join(lines) + "\n"

    def plain(self) -> dict[str, Any]:
        """Return the table as a value of JSON."""
        return {
            "part": self.key,
            "title": self.title,
            "disk": {"rate": self.disk.rate, "p50": self.disk.p50, "p99": self.disk.p99, "kind": self.disk.kind},
            "rows": [
                {"name": row.name, "figures": row.figures, "note": row.note, "failed": row.failed} for row in self.rows
            ],
        }
