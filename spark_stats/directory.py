"""Folder of a record: the layout of its files, and the lock that excludes a second recorder.

    date=2026-11-20/type=conn/<session>-000001.parquet    closed segments: all that readers see
    _recorder/lock                                        held while a recorder runs
    _recorder/journal/<session>-000002.journal            messages that are in no closed segment yet
    _recorder/open/                                       segments being written
    _recorder/quarantine/2026-11-20.jsonl                 samples of malformed messages

Spark and most other readers leave out names that begin with ``_`` or ``.``. Everything must be on one file system: a
segment is written below ``_recorder`` and renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib

from spark_stats.errors import OperatorError

__all__ = ["Directory", "DirectoryInUse", "sync_folder"]


class DirectoryInUse(OperatorError):
    """Another recorder writes into the folder; the text names its process."""


def sync_folder(path: pathlib.Path) -> None:
    """Make the names in a folder survive a power failure.

    Args:
        path: folder in which files were created, renamed or removed.

    Raises:
        OSError: the disk refuses.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Directory:
    """Folder ``root`` and the paths below it. :meth:`lock` is the first to create any of them."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        own = root / "_recorder"
        self.journals = own / "journal"
        self.open = own / "open"
        self.quarantine = own / "quarantine"
        self.lock_file = own / "lock"
        self._lock: int | None = None

    def lock(self) -> None:
        """Create the folder where it is missing, and take the lock, which ends with this process at the latest.

        Raises:
            DirectoryInUse: another recorder has it.
            OSError: the folder cannot be created or written.
        """
        for path in (self.journals, self.open, self.quarantine):
            path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 100).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise DirectoryInUse(
                f"another recorder (process {holder or 'unknown'}) writes into {self.root}; "
                "give each recorder a folder of its own"
            ) from None
        self._lock = descriptor
        # The number is for the error message only: a full disk is no reason not to lock.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)

    def unlock(self) -> None:
        """Give the lock back, if it is held."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def partition(self, date: str, kind: str) -> pathlib.Path:
        """Return the folder of segments.

        Args:
            date: UTC date of the events, ``YYYY-MM-DD``.
            kind: type of the events.
        """
        return self.root / f"date={date}" / f"type={kind}"
