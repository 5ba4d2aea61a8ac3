"""View of a table that is published: some columns of the rows that meet a condition, never the table itself."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

__all__ = ["BadView", "View", "quoted"]

NAME_MAX: Final = 40
"""Greatest length of a view's name in characters: PostgreSQL has 63 bytes for names that begin with it."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


class BadView(ValueError):
    """View that cannot be published, by the fault of the operator."""


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL.

    Args:
        name: the name as PostgreSQL has it, in its exact case.

    Raises:
        BadView: it is empty, longer than 63 bytes or has a NUL.
    """
    if not name or "\0" in name or len(name.encode()) > 63:
        raise BadView(f"{name[:80]!r} is no name of PostgreSQL: expected 1 to 63 bytes")
    return '"{}"'.format(name.replace('"', '""'))


@dataclass(frozen=True, slots=True)
class View:
    """View that is published.

    Attributes:
        name: of the view, lower-case letters, digits and ``_``.
        table: the table, with its schema if that is not ``public``.
        key: column with the key of each row: unique, not null.
        columns: columns that are given to the hub.
        where: condition on the columns of one row, as SQL; empty for all rows.
        schema: schema of the outbox and all that belongs to it.

    Raises:
        BadView: a name is none.
    """

    name: str
    table: str
    key: str
    columns: tuple[str, ...]
    where: str = ""
    schema: str = "griphub"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > NAME_MAX:
            raise BadView(f"view {self.name!r}: expected lower-case letters, digits and _, at most {NAME_MAX}")
        if not self.columns:
            raise BadView("a view has at least one column: name them as --columns a,b,c")
        for name in (self.schema, self.key, *self.columns):
            quoted(name)
        if len(self.table.split(".")) > 2:
            raise BadView(f"table {self.table!r}: expected TABLE or SCHEMA.TABLE")
        if "$griphub$" in self.where or "\0" in self.where:
            raise BadView("the condition must not have $griphub$ or a NUL")

    @property
    def table_sql(self) -> str:
        """Table as SQL."""
        schema, _, table = self.table.rpartition(".")
        return f"{quoted(schema or 'public')}.{quoted(table)}"

    @property
    def condition_sql(self) -> str:
        """Condition as SQL."""
        return self.where.strip() or "true"

    def part(self, suffix: str) -> str:
        """Return the name of a thing that belongs to the view, as SQL.

        Args:
            suffix: end of its name.
        """
        return f"{quoted(self.schema)}.{quoted(self.name + suffix)}"

    @property
    def channel(self) -> str:
        """Channel of NOTIFY."""
        return f"griphub_{self.name}"

    @property
    def digest(self) -> str:
        """Short text that is another one for another definition."""
        parts = (self.table_sql, self.key, *self.columns, self.condition_sql)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
