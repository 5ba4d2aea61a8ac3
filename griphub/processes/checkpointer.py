"""Checkpoints of the write-ahead log, by a thread with a connection of its own.

In the writer's connection a checkpoint would delay the publications of a commit. PASSIVE ones wait for none; the thread
is in the library, without the interpreter's lock, for nearly all of its time.
"""

from __future__ import annotations

import pathlib
import sqlite3
import threading
from collections.abc import Callable
from typing import Final

from griphub.store.schema import Sync, connect_writer
from gripproxy.process.log import log

__all__ = ["INTERVAL", "Checkpointer"]

INTERVAL: Final = 0.2
"""Seconds from a commit to its checkpoint."""

EARLY: Final = 4 * 1024 * 1024
"""Bytes of events after which a checkpoint is made earlier."""

LOG_PAGES: Final = 6144
"""Pages of the log (24 MiB) above which the writer waits for a checkpoint: the log is begun anew only when a commit
finds all of it checkpointed. On a full disk the ballast has to have room for all of it."""


class Checkpointer:
    """Thread that makes checkpoints after commits.

    Args:
        path: of the store.
        sync: durability of the store.
        on_failure: called in the thread after a failed write; no checkpoint is tried again.
    """

    def __init__(self, path: pathlib.Path, sync: Sync, on_failure: Callable[[], None]) -> None:
        self._connection = connect_writer(path, sync)
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._committed = threading.Event()
        self._early = threading.Event()
        self._size = 0
        self._closed = False
        self._full = False
        self._pages = 0
        self.failure = ""
        """Reason of a failed write, empty without one."""
        self.behind = False
        """True while the log is so long that the writer should call ``passive``."""
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def committed(self, size: int) -> None:
        """Take note of a commit of the writer.

        Args:
            size: bytes of its events.
        """
        self._size += size
        if self._size >= EARLY:
            self._early.set()
        if not self._committed.is_set():
            self._committed.set()

    def passive(self) -> None:
        """Copy as much of the log as readers allow."""
        self.behind = False
        self._checkpoint("passive")

    def truncate(self) -> bool:
        """Copy the whole log and empty it; return whether that was possible now: a reader may be using the log."""
        return self._checkpoint("truncate")

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._committed.set()
        self._early.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._closed and not self.failure:
            self._committed.wait()
            self._early.wait(INTERVAL)
            self._committed.clear()
            self._early.clear()
            self._size = 0
            if not self._closed:
                self._checkpoint("passive")
                self.behind = self._pages > LOG_PAGES

    def _checkpoint(self, mode: str) -> bool:
        with self._lock:
            try:
                # Only TRUNCATE would wait, for readers.
                self._connection.execute("pragma busy_timeout = 0")
                busy, self._pages, copied = self._connection.execute(f"pragma wal_checkpoint({mode})").fetchone()
            except sqlite3.Error as error:
                return self._failed(error)
        self._full = False
        return not busy and self._pages == copied

    def _failed(self, error: sqlite3.Error) -> bool:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return False
        if name == "SQLITE_FULL":
            if not self._full:
                self._full = True
                log.warning("checkpoint failed", "the write-ahead log grows until there is space", reason=error)
            return False
        # A failed synchronisation is not tried again: the next one may succeed without the lost pages.
        self.failure = f"checkpoint: {name}: {error}"
        self._on_failure()
        return False
