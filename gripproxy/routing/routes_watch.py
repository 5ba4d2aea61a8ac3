"""The watch over a routes file: a thread that sees changes and reads them (docs/grip.md §1.7).

Everything that touches the file is done in that thread, so that a file system which does not answer stops no event
loop: the routes stay as they are until it answers. ``Settling`` decides when to read, ``RoutesWatch`` is the thread.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from gripproxy.config import ConfigError
from gripproxy.process.log import log
from gripproxy.routing.route import RouteProblem
from gripproxy.routing.routes_file import Routes, RoutesFile, Stamp

__all__ = ["LOOK", "STALL", "Reading", "RoutesWatch", "Settling", "log_problems"]

T = TypeVar("T")

LOOK: Final = 1.0
"""Seconds between two looks at the file, and so the time for which it must not change before it is read."""

STALL: Final = 5.0
"""Seconds after which a look or a reading that goes on is called stalled, in the log."""


MAX_PROBLEMS: Final = 20
"""Bad lines of one reading that are logged, each with its reason; the others are counted."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Outcome of reading the file: its bytes and routes, or the reason of a failure in ``error``."""

    data: bytes = b""
    routes: Routes | None = None
    error: str = ""
    asked: bool = False
    """True if a request (SIGHUP) caused it, whether the file has changed or not."""

    @property
    def digest(self) -> bytes:
        """Hash of the bytes, equal for equal bytes."""
        return hashlib.blake2b(self.data, digest_size=16).digest()


def log_problems(problems: Iterable[RouteProblem]) -> None:
    """Log ``problems`` of lines of the routes, up to a bound."""
    found = list(problems)
    for problem in found[:MAX_PROBLEMS]:
        log.warning("routes", str(problem))
    if len(found) > MAX_PROBLEMS:
        log.warning("more lines of the routes are wrong", "gripproxy check shows all", lines=len(found) - MAX_PROBLEMS)


class Settling:
    """Decides when a changed file is read: once it is equal at two consecutive checks. Sans-I/O.

    Args:
        stamp: of the file as it was read first.
    """

    def __init__(self, stamp: Stamp | None) -> None:
        self._seen = stamp
        self._changing = False

    def look(self, stamp: Stamp | None) -> bool:
        """Return whether to read the file.

        Args:
            stamp: of the file now; None: stat failed.
        """
        if stamp is not None and stamp != self._seen:
            self._seen = stamp
            self._changing = True
            return False
        changed, self._changing = self._changing, False
        return changed


class RoutesWatch:
    """The thread that watches one routes file; it lives as long as the process, or until ``close``.

    Args:
        source: the file, read already.
        stamp: of the file before it was read.
        found: called in the thread with each reading; it must be safe there.
    """

    def __init__(self, source: RoutesFile, stamp: Stamp | None, found: Callable[[Reading], None]) -> None:
        self._source = source
        self._settling = Settling(stamp)
        self._found = found
        self._asked = threading.Event()
        self._read_now = False
        self._closed = False
        self._busy_since: float | None = None
        if source.path is not None:
            threading.Thread(target=self._run, name="routes file", daemon=True).start()

    def read(self) -> None:
        """Have the file read now, changed or not. Lines of the command line are not read again."""
        self._read_now = True
        self._asked.set()

    def close(self) -> None:
        """Watch no longer; a reading that goes on is thrown away."""
        self._closed = True
        self._asked.set()

    def stalled(self, now: float) -> bool:
        """Return whether the file system has not answered for STALL seconds. ``now``: the monotonic clock."""
        since = self._busy_since
        return since is not None and now - since >= STALL

    def _run(self) -> None:
        while not self._closed:
            self._asked.wait(LOOK)
            self._asked.clear()
            read, self._read_now = self._read_now, False
            reading = None
            if self._settling.look(self._touch(self._source.stamp)) or read:
                reading = self._reading(read)
            if reading is not None and not self._closed:
                self._found(reading)

    def _reading(self, asked: bool) -> Reading:
        try:
            data = self._touch(self._source.read)
            return Reading(data, self._source.parse(data), asked=asked)
        except ConfigError as error:
            return Reading(error=str(error), asked=asked)
        except Exception as error:  # noqa: BLE001 - ours; the thread must live, or no change would be seen again
            return Reading(error=f"{self._source.path}: an error of gripproxy itself: {error!r}", asked=asked)

    def _touch(self, work: Callable[[], T]) -> T:
        """Do something with the file system, which is stalled if that takes long."""
        self._busy_since = time.monotonic()
        try:
            return work()
        finally:
            self._busy_since = None
