"""The source of the routes: a file that may change, or the lines of ``--route`` (docs/grip.md §1.7).

Reading and judging are apart: ``read`` is the only I/O, and its result decides alone whether the routes are taken.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gripproxy.config import Config, ConfigError
from gripproxy.process.hub_sockets import hub_socket
from gripproxy.routing.grammar import parse_routes
from gripproxy.routing.route import RouteProblem, RouteScope
from gripproxy.routing.table import RouteTable

__all__ = ["MAX_FILE", "Routes", "RoutesFile", "Stamp"]

MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes of a routes file, some 250,000 lines. A larger one is refused whole."""

_READ: Final = 1024 * 1024
"""Bytes of one read."""

Stamp = tuple[int, int, int]
"""Modification time (ns), size (bytes) and inode of a file: they change when it is written."""


@dataclass(frozen=True, slots=True)
class Routes:
    """Routes as parsed, before it is decided whether they are used.

    ``damage`` is the reason why a running service refuses them, empty if it does not: a file that is being written, or
    that is wrong as a whole, must not replace routes that work.
    """

    table: RouteTable
    problems: tuple[RouteProblem, ...]
    damage: str = ""


class RoutesFile:
    """Where the routes are read from.

    Args:
        path: of the file, or None.
        lines: replace the file if there are any.
        base: directory that relative files in routes start from (default: that of ``path``).
        scope: parts of the configuration that lines refer to; None: the defaults.
    """

    __slots__ = ("base", "lines", "path", "scope")

    def __init__(
        self,
        path: str | None,
        lines: Iterable[str] = (),
        base: str | None = None,
        scope: RouteScope | None = None,
    ) -> None:
        self.lines: tuple[str, ...] = tuple(lines)
        self.path: str | None = None if self.lines else path
        """The file to watch, None if there is none."""
        self.base = base
        self.scope = RouteScope() if scope is None else scope

    @classmethod
    def of(cls, config: Config) -> RoutesFile:
        """Return the source of routes of ``config``: --route lines, the routes file, or the test route."""
        scope = RouteScope(
            reserved=config.handler.reserved_prefix.encode(),
            hub_socket=hub_socket(config) if config.hub.store else "",
        )
        return cls(config.proxy.routesfile or None, config.route_lines, config.directory, scope)

    def stamp(self) -> Stamp | None:
        """Return the stamp of the file, which changes with it; None without a file, or while stat fails."""
        if self.path is None:
            return None
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino)

    def read(self) -> bytes:
        """Return the text of the routes. A stalled file system blocks the calling thread.

        Raises:
            ConfigError: the file cannot be read, is no regular file, or has more than MAX_FILE bytes.
        """
        if self.path is None:
            return "\n".join(self.lines).encode("utf-8", "surrogateescape")
        try:
            # Without O_NONBLOCK the open of a FIFO waits for a writer, without a limit.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise ConfigError(self.path, None, f"routes file must be a regular file, not {_kind(status)}")
                data = _read_all(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ConfigError(self.path, None, f"routes file cannot be read: {error.strerror}") from error
        if len(data) > MAX_FILE:
            raise ConfigError(self.path, None, f"routes file has more than {MAX_FILE} bytes")
        return data

    def parse(self, data: bytes) -> Routes:
        """Return the routes in ``data``, as ``read`` returned it."""
        text = data.decode("utf-8", "surrogateescape")
        if self.path is None:
            table, problems = parse_routes(text, "--route", self.base, self.scope)
            return Routes(table, tuple(problems))
        table, problems = parse_routes(text, self.path, self.base, self.scope)
        return Routes(table, tuple(problems), _damage(self.path, data, table, problems))

    def refused_lines(self, routes: Routes) -> list[ConfigError]:
        """Return an error for each invalid ``--route`` line of ``routes``; lines of a file are only skipped."""
        if self.path is not None:
            return []
        texts = "\n".join(self.lines).split("\n")
        errors = [
            ConfigError("--route", None, f"{problem.reason}: '{texts[problem.line - 1]}'")
            for problem in routes.problems
            if problem.skipped
        ]
        if self.lines and not routes.table.routes and not errors:
            errors.append(ConfigError("--route", None, f"no route in '{self.lines[0]}'"))
        return errors

    def load(self) -> Routes:
        """Read and parse the routes for a start. Lines of a file that have an error are left out.

        Raises:
            ConfigError: the file cannot be read (see ``read``), or a line of ``--route`` cannot be used.
        """
        routes = self.parse(self.read())
        for error in self.refused_lines(routes):
            raise error
        return routes


def _kind(status: os.stat_result) -> str:
    kinds = {
        stat.S_IFIFO: "a FIFO",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFDIR: "a directory",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(status.st_mode), "something else")


def _read_all(descriptor: int) -> bytes:
    """Read to the end of the file, or one byte beyond MAX_FILE."""
    pieces, size = [], 0
    while size <= MAX_FILE:
        piece = os.read(descriptor, min(_READ, MAX_FILE + 1 - size))
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _damage(path: str, data: bytes, table: RouteTable, problems: list[RouteProblem]) -> str:
    """Return why a running service must not take a changed file, with file and line; empty if it may."""
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        return f"{path}:{line}: has a NUL byte: it was not written completely"
    skipped = [problem for problem in problems if problem.skipped]
    if not table.routes:
        if not skipped:
            return f"{path}: has no route"
        others = f", and {len(skipped) - 1} other lines" if len(skipped) > 1 else ""
        return f"{skipped[0]}{others}; no line can be used"
    # A file that is cut off mostly ends within a line. One that only lacks its last newline is read as it is.
    if skipped and not data.endswith(b"\n") and skipped[-1].line == data.count(b"\n") + 1:
        return f"{skipped[-1]}; the last line has no end: the file was not written completely"
    return ""
